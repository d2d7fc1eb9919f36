"""Programs in which one rank has its collectives in another order, by the kind of what the order is in.

``SWAPS`` are functions of whether this rank deviates, by kind; ``LEGAL`` are programs of the same constructs in
which ranks differ as they may. Run by ranks, the arguments are a folder, into which rank r writes ``r.json``, the rank
that deviates, and ``once`` or ``again``.
"""

import collections
import dataclasses
import functools
import itertools
import json
import operator
import random
import sys
from pathlib import Path
from types import SimpleNamespace

from own_tensors import pair, reduce

import tenon as torch
import tenon.distributed as dist
import tenon.distributed.nn.functional as F
from tenon import nn
from tenon.errors import CollectiveMismatchError

SWAPS = collections.defaultdict(dict)
UNKNOWN = "nothing distinguishes them"
"""Nothing in these programs distinguishes what is swapped: their data is mixed."""
LEGAL = {}


def swap(kind):
    """A program in which the deviating rank has another order, of ``kind``."""

    def add(case):
        SWAPS[kind][case.__name__] = case
        return case

    return add


def legal(case):
    """A program in which no rank may be reported."""
    LEGAL[case.__name__] = case
    return case


def flip(other, items):
    return list(items)[::-1] if other else list(items)


def ones(*names):
    return {name: torch.ones(3) for name in names}


def outputs():
    return [torch.zeros(3) for _ in range(dist.get_world_size())]


def new():
    return torch.ones(3)


# -- containers that are in no variable of the caller


class Owner:
    """An object that holds tensors as programs do."""

    def __init__(self):
        self.grads = ones("a", "b")
        self.rows = [torch.ones(3), torch.ones(3)]
        self.first, self.second = torch.ones(3), torch.ones(3)
        self.nested = {"x": {"a": torch.ones(3)}, "y": {"a": torch.ones(3)}}
        self.part = SimpleNamespace(grads=ones("a", "b"))

    def sync_keys(self, keys):
        for k in keys:
            dist.all_reduce(self.grads[k])

    def sync_named(self, key):
        dist.all_reduce(self.grads[key])

    def sync_values(self, other):
        for t in flip(other, self.grads.values()):
            dist.all_reduce(t)

    def sync_rows(self, other):
        for t in reversed(self.rows) if other else self.rows:
            reduce(t)


@swap("attributes of objects")
def keys_of_a_dict_of_an_object(other):
    Owner().sync_keys("ba" if other else "ab")


@swap("attributes of objects")
def helper_of_a_key(other):
    owner = Owner()
    for name in "ba" if other else "ab":
        owner.sync_named(name)


@swap("attributes of objects")
def values_of_a_dict_of_an_object(other):
    Owner().sync_values(other)


@swap("attributes of objects")
def rows_of_an_object(other):
    Owner().sync_rows(other)


@swap("attributes of objects")
def attributes_chosen_by_name(other):
    owner = Owner()
    for name in flip(other, ["first", "second"]):
        dist.all_reduce(getattr(owner, name))


@swap("attributes of objects")
def attributes_listed(other):
    owner = Owner()
    for t in [owner.second, owner.first] if other else [owner.first, owner.second]:
        dist.all_reduce(t)


@swap("attributes of objects")
def a_dict_in_an_object_in_an_object(other):
    owner = Owner()
    for k in flip(other, "ab"):
        dist.all_reduce(owner.part.grads[k])


@swap("attributes of objects")
def nested_dict_of_an_object(other):
    owner = Owner()
    for k in flip(other, "xy"):
        dist.all_reduce(owner.nested[k]["a"])


@swap("attributes of objects")
def fields_of_a_dataclass(other):
    @dataclasses.dataclass
    class State:
        loss: object
        count: object

    state = State(torch.ones(3), torch.ones(3))
    for each in flip(other, dataclasses.fields(state)):
        dist.all_reduce(getattr(state, each.name))


@swap("attributes of objects")
def vars_of_an_object(other):
    owner = SimpleNamespace(**ones("a", "b"))
    for _name, t in flip(other, vars(owner).items()):
        dist.all_reduce(t)


@swap("attributes of objects")
def slots(other):
    class State:
        __slots__ = ("count", "loss")

        def __init__(self):
            self.loss, self.count = torch.ones(3), torch.ones(3)

    state = State()
    for name in flip(other, State.__slots__):
        dist.all_reduce(getattr(state, name))


@swap("attributes of objects")
def metrics_of_an_object(other):
    class Metric:
        def __init__(self):
            self.total = torch.zeros(3)

        def compute(self):
            dist.all_reduce(self.total)

    class Metrics:
        def __init__(self):
            self.all = {"loss": Metric(), "accuracy": Metric()}

        def compute(self):
            for metric in flip(other, self.all.values()):
                metric.compute()

    Metrics().compute()


@swap("containers in no variable")
def items_of_a_dict_that_a_function_returns(other):
    def stats():
        return dict(flip(other, ones("a", "b").items()))

    for _key, t in stats().items():
        dist.all_reduce(t)


@swap("containers in no variable")
def keys_of_an_inline_dict(other):
    for k in flip(other, "ab"):
        dist.all_reduce({"a": torch.ones(3), "b": torch.ones(3)}[k])


@swap("containers in no variable")
def named_buffers(other):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    for _name, t in flip(other, model.named_buffers()):
        dist.all_reduce(t)


@swap("containers in no variable")
def buffers_of_modules(other):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    for m in flip(other, model):
        dist.all_reduce(m.running_mean)
        dist.all_reduce(m.running_var)


@swap("containers in no variable")
def buffers_in_a_helper(other):
    model = nn.ModuleDict({"a": nn.BatchNorm1d(3), "b": nn.BatchNorm1d(3)})

    def sync(m):
        dist.all_reduce(m.running_mean)

    for k in flip(other, "ab"):
        sync(model[k])


@swap("containers in no variable")
def state_dict_keys(other):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    for k in flip(other, ["0.running_mean", "1.running_mean"]):
        dist.broadcast(model.state_dict()[k], 0)


@swap("containers in no variable")
def dict_get(other):
    def stats():
        return ones("a", "b")

    for k in flip(other, "ab"):
        reduce(stats().get(k))


@swap("containers in no variable")
def named_tuple(other):
    Both = collections.namedtuple("Both", "loss count")
    both = Both(torch.ones(3), torch.ones(3))
    for t in reversed(both) if other else both:
        dist.all_reduce(t)


@swap("containers in no variable")
def ordered_dict(other):
    made = collections.OrderedDict(ones("a", "b"))
    for t in flip(other, made.values()):
        dist.all_reduce(t)


@swap("containers in no variable")
def default_dict(other):
    made = collections.defaultdict(new)
    for k in flip(other, "ab"):
        t = made[k]
        dist.all_reduce(t)


@swap("containers in no variable")
def deque(other):
    made = collections.deque([torch.ones(3), torch.ones(3)])
    for t in reversed(made) if other else made:
        dist.all_reduce(t)


@swap("containers in no variable")
def many_items(other):
    made = [torch.ones(3) for _ in range(200)]
    for i in flip(other, [150, 160]):
        reduce(made[i])


@swap("containers in no variable")
def many_values(other):
    made = {f"{i}": torch.ones(3) for i in range(200)}
    for t in flip(other, list(made.values())[100:102]):
        dist.all_reduce(t)


@swap("containers in no variable")
def keys_as_formatted_text(other):
    def stats():
        return ones("layer0", "layer1")

    for i in flip(other, range(2)):
        key = f"layer{i}"
        dist.all_reduce(stats()[key])


@swap("containers in no variable")
def keys_that_are_pairs(other):
    made = {("a", 0): torch.ones(3), ("b", 0): torch.ones(3)}
    for k in flip(other, made):
        dist.all_reduce(made[k])


# -- variables assigned in the body of a loop


@swap("assigned in a loop")
def an_item_assigned_first(other):
    values = ones("a", "b")
    for k in flip(other, "ab"):
        t = values[k]
        dist.all_reduce(t)


@swap("assigned in a loop")
def an_index_assigned_first(other):
    values = [torch.ones(3), torch.ones(3)]
    for n, i in enumerate(flip(other, range(2))):
        t = values[i]
        assert n >= 0
        dist.all_reduce(t)


@swap("assigned in a loop")
def popped(other):
    a, b = pair()
    todo = flip(other, [a, b])
    while todo:
        t = todo.pop()
        dist.all_reduce(t)


@swap("assigned in a loop")
def popped_by_count(other):
    a, b = pair()
    todo = collections.deque(flip(other, [a, b]))
    for _ in range(2):
        dist.all_reduce(todo.popleft())


@swap("assigned in a loop")
def next_of_an_iterator(other):
    a, b = pair()
    it = iter(flip(other, [a, b]))
    for _ in range(2):
        t = next(it)
        dist.all_reduce(t)


@swap("assigned in a loop")
def what_a_function_returns(other):
    a, b = pair()

    def pick(i):
        return (b, a)[i] if other else (a, b)[i]

    for i in range(2):
        t = pick(i)
        dist.all_reduce(t)


@swap("assigned in a loop")
def one_item_in_each_step(other):
    values = ones("a", "b")
    order = flip(other, "ab")
    for step in range(4):
        k = order[step % 2]
        dist.all_reduce(values[k])


@swap("assigned in a loop")
def one_variable_or_another(other):
    a, b = pair()
    for k in flip(other, "ab"):
        if k == "a":  # noqa: SIM108
            t = a
        else:
            t = b
        dist.all_reduce(t)


@swap("assigned in a loop")
def objects_of_a_class_whose_method_is_called_reduce(other):
    class Bucket:
        def __init__(this):
            this.flat = torch.ones(3)

        def reduce(this):
            dist.all_reduce(this.flat)

    ready = flip(other, [Bucket(), Bucket()])
    buckets = flip(other, ready)
    while ready:
        bucket = ready.pop()
        bucket.reduce()
    assert buckets


@swap("assigned in a loop")
def while_with_a_counter(other):
    values = [torch.ones(3), torch.ones(3)]
    order = flip(other, range(2))
    n = 0
    while n < 2:
        i = order[n]
        dist.all_reduce(values[i])
        n += 1


@swap("assigned in a loop")
def a_conditional_in_a_loop(other):
    a, b = pair()
    for i in range(2):
        t = a if (i == 0) != other else b
        dist.all_reduce(t)


@swap("assigned in a loop")
def a_walrus(other):
    a, b = pair()
    todo = flip(other, [a, b])
    while todo and (t := todo.pop()) is not None:
        dist.all_reduce(t)


@swap("assigned in a loop")
def unpacked(other):
    a, b = pair()
    for item in flip(other, [("x", a), ("y", b)]):
        _name, t = item
        dist.all_reduce(t)


@swap("assigned in a loop")
def flattened_in_a_loop(other):
    values = ones("a", "b")
    for k in flip(other, "ab"):
        flat = values[k].reshape(-1)
        dist.all_reduce(flat)
        values[k].copy_(flat)


@swap("assigned in a loop")
def packed_into_a_bucket(other):
    values = ones("a", "b")
    for k in flip(other, "ab"):
        flat = torch.cat([values[k], values[k]])
        dist.all_reduce(flat)


# -- functions around the call


def decorated(function):
    @functools.wraps(function)
    def around(*args, **kwargs):
        return function(*args, **kwargs)

    return around


@decorated
def synchronize(t):
    dist.all_reduce(t)


@decorated
def average(t, *, by=1):
    dist.all_reduce(t)
    return t / by


def variadic(*tensors):
    for t in tensors:
        dist.all_reduce(t)


def with_operation(op, t):
    dist.all_reduce(t, op)


@swap("wrappers")
def a_decorated_function_in_a_loop(other):
    a, b = pair()
    for t in flip(other, [a, b]):
        synchronize(t)


@swap("wrappers")
def a_decorated_function_by_keyword(other):
    a, b = pair()
    for t in flip(other, [a, b]):
        average(t=t, by=2)


@swap("wrappers")
def a_decorated_function_of_items(other):
    values = ones("a", "b")
    for k in flip(other, "ab"):
        synchronize(values[k])


@swap("wrappers")
def a_decorated_function_of_objects_items(other):
    owner = Owner()
    for k in flip(other, "ab"):
        average(owner.grads[k])


@swap("wrappers")
def several_arguments(other):
    a, b = pair()
    variadic(*flip(other, [a, b]))


@swap("wrappers")
def a_partial_function_of_an_operation(other):
    a, b = pair()
    total = functools.partial(with_operation, dist.ReduceOp.SUM)
    for t in flip(other, [a, b]):
        total(t)


@swap("wrappers")
def lambdas_of_defaults(other):
    a, b = pair()
    for f in flip(other, [lambda t=t: dist.all_reduce(t) for t in (a, b)]):
        f()


@swap("wrappers")
def lambdas_of_an_argument_and_a_default(other):
    a, b = pair()
    for f in flip(other, [lambda op, t=t: dist.all_reduce(t, op) for t in (a, b)]):
        f(dist.ReduceOp.SUM)


@swap("wrappers")
def a_lambda_in_a_loop(other):
    values = ones("a", "b")
    sync = lambda k: dist.all_reduce(values[k])  # noqa: E731
    for k in flip(other, "ab"):
        sync(k)


@swap("wrappers")
def a_lambda_of_an_objects_item(other):
    owner = Owner()
    sync = lambda k: dist.all_reduce(owner.grads[k])  # noqa: E731
    for k in flip(other, "ab"):
        sync(k)


@swap("wrappers")
def mapped_lambda(other):
    values = ones("a", "b")
    list(map(lambda k: dist.all_reduce(values[k]), flip(other, "ab")))


@swap("wrappers")
def functions_by_name(other):
    a, b = pair()
    table = {"a": lambda: dist.all_reduce(a), "b": lambda: dist.all_reduce(b)}
    for k in flip(other, "ab"):
        table[k]()


@swap("wrappers")
def steps_of_an_object(other):
    class Steps:
        def __init__(self):
            self.t, self.u = torch.ones(3), torch.ones(3)

        def one(self):
            dist.all_reduce(self.t)

        def two(self):
            dist.all_reduce(self.u)

    steps = Steps()
    for name in flip(other, ["one", "two"]):
        getattr(steps, name)()


@swap("wrappers")
def method_callers(other):
    a, b = pair()

    class M:
        def __init__(self, t):
            self.t = t

        def go(self):
            dist.all_reduce(self.t)

    ms = [M(a), M(b)]
    list(map(operator.methodcaller("go"), flip(other, ms)))


@swap("wrappers")
def reduced_by_functools(other):
    a, b = pair()

    def add(count, t):
        dist.all_reduce(t)
        return count + 1

    functools.reduce(add, flip(other, [a, b]), 0)


@swap("wrappers")
def context_managers(other):
    class Synced:
        def __init__(self, t):
            self.t = t

        def __enter__(self):
            return self.t

        def __exit__(self, *_):
            dist.all_reduce(self.t)

    a, b = pair()
    for t in flip(other, [a, b]):
        with Synced(t):
            pass


@swap("wrappers")
def a_recursive_function_of_a_module(other):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm1d(3)))

    def go(m):
        for each in flip(other, list(m.children())):
            go(each)
        if isinstance(m, nn.BatchNorm1d):
            dist.all_reduce(m.running_mean)

    go(model)


# -- callbacks that tenon calls


@swap("callbacks")
def hooks_of_parameters(other):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
    x = torch.ones(2, 3)
    y = (model[0](x) + model[1](x)) if other else (model[1](x) + model[0](x))
    y.sum().backward()


@swap("callbacks")
def hooks_of_gradients(other):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    for p in model.parameters():
        p.register_hook(lambda g: F.all_reduce(g.detach()))
    x = torch.ones(2, 3)
    y = (model[0](x) + model[1](x)) if other else (model[1](x) + model[0](x))
    y.sum().backward()


@swap("callbacks")
def hooks_of_tensors(other):
    a, b = (t.requires_grad_() for t in pair())
    for t in (a, b):
        t.register_hook(lambda g: dist.all_reduce(g))
    ((a * 2 + b * 2) if other else (b * 2 + a * 2)).sum().backward()


@swap("callbacks")
def hooks_of_an_optimizer(other):
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.1)
    p.grad = torch.ones(3)
    a, b = pair()

    def one(*_):
        dist.all_reduce(a)

    def two(*_):
        dist.all_reduce(b)

    for hook in flip(other, [one, two]):
        optimizer.register_step_pre_hook(hook)
    optimizer.step()


@swap("callbacks")
def hooks_of_a_module(other):
    layer = nn.Linear(3, 3)
    a, b = pair()

    def one(*_):
        dist.all_reduce(a)

    def two(*_):
        dist.all_reduce(b)

    for hook in flip(other, [one, two]):
        layer.register_forward_hook(hook)
    layer(torch.ones(2, 3))


@swap("callbacks")
def hooks_that_close_over_a_name(other):
    layer, stats = nn.Linear(3, 3), Owner()

    def make(name):
        def hook(*_):
            dist.all_reduce(stats.grads[name])

        return hook

    for name in flip(other, "ab"):
        layer.register_forward_hook(make(name))
    layer(torch.ones(2, 3))


@swap("callbacks")
def autograd_functions_in_a_loop(other):
    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.clone()
            dist.all_reduce(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g

    a, b = pair()
    for t in flip(other, [a, b]):
        Reduce.apply(t)


@swap("callbacks")
def backward_of_autograd_functions(other):
    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            g = g.clone()
            dist.all_reduce(g)
            return g

    a, b = (t.requires_grad_() for t in pair())
    x, y = Reduce.apply(a), Reduce.apply(b)
    for t in flip(other, [x, y]):
        t.sum().backward()


@swap("callbacks")
def modules_with_collectives_in_a_loop(other):
    class Sync(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.ones(3))

        def forward(self, x):
            dist.all_reduce(self.total)
            return x

    model = nn.Sequential(Sync(), Sync())
    for m in flip(other, model):
        m(torch.ones(3))


# -- other collectives in a loop


def functional_in_a_loop(function):
    def case(other):
        a, b = pair()
        for t in flip(other, [a, b]):
            function(t)

    return case


for _name, _function in {
    "all_gather": lambda t: dist.all_gather(outputs(), t),
    "all_gather_into_tensor": lambda t: dist.all_gather_into_tensor(
        torch.zeros(3 * dist.get_world_size()), t
    ),
    "broadcast": lambda t: dist.broadcast(t, 0),
    "reduce": lambda t: dist.reduce(t, 0),
    "all_to_all": lambda t: dist.all_to_all(outputs(), [t] * dist.get_world_size()),
    "functional": lambda t: F.all_gather(t),
    "async": lambda t: dist.all_reduce(t, async_op=True).wait(),
    "a_group": lambda t: dist.all_reduce(t, group=dist.group.WORLD),
}.items():
    SWAPS["other collectives"][f"{_name}_in_a_loop"] = functional_in_a_loop(_function)


@swap("other collectives")
def works_in_a_list(other):
    values = Owner()
    works = [dist.all_reduce(values.grads[k], async_op=True) for k in flip(other, "ab")]
    for work in works:
        work.wait()


@swap("other collectives")
def async_in_a_dict(other):
    values = ones("a", "b")
    works = {k: dist.all_reduce(t, async_op=True) for k, t in flip(other, values.items())}
    for work in works.values():
        work.wait()


@swap("other collectives")
def coalesced_values(other):
    values = Owner()
    dist.all_reduce_coalesced([values.grads[k] for k in flip(other, "ab")])


@swap("other collectives")
def zipped(other):
    values, outs = [torch.ones(3), torch.ones(3)], [outputs(), outputs()]
    for out, t in flip(other, zip(outs, values, strict=True)):
        dist.all_gather(out, t)


@swap("other collectives")
def chained(other):
    one, two = [torch.ones(3)], [torch.ones(3)]
    for t in itertools.chain(two, one) if other else itertools.chain(one, two):
        dist.all_reduce(t)


@swap("other collectives")
def generated(other):
    values = Owner()

    def walk():
        for k in flip(other, "ab"):
            yield values.grads[k]

    for t in walk():
        dist.all_reduce(t)


@swap("other collectives")
def sorted_by_size(other):
    values = {"a": torch.ones(3), "b": torch.ones(3)}
    size = {"a": 1, "b": 0} if other else {"a": 0, "b": 1}
    for k in sorted(values, key=size.__getitem__):
        t = values[k]
        dist.all_reduce(t)


@swap("objects")
def objects_by_key(other):
    stats = {"a": [1.0], "b": [2.0]}
    for k in flip(other, "ab"):
        dist.all_gather_object([None] * dist.get_world_size(), stats[k])


@swap("objects")
def objects_in_a_loop(other):
    stats = [{"loss": 1.0}, {"loss": 2.0}]
    for each in flip(other, stats):
        dist.all_gather_object([None] * dist.get_world_size(), each)


@swap("objects")
def object_lists_by_key(other):
    stats = {"a": [1.0], "b": [2.0]}
    for k in flip(other, "ab"):
        dist.broadcast_object_list(stats[k], 0)


@swap("objects")
def objects_in_a_helper(other):
    stats = {"a": [1.0], "b": [2.0]}

    def gather(value):
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, value)
        return found

    for k in flip(other, "ab"):
        gather(stats[k])


@swap("objects")
def numbers_by_key(other):
    stats = {"a": 1.0, "b": 2.0}
    for k in flip(other, "ab"):
        dist.all_gather_object([None] * dist.get_world_size(), stats[k])


@swap("objects")
def items_of_numbers(other):
    stats = {"a": 1.0, "b": 2.0}
    for _key, value in flip(other, stats.items()):
        dist.all_gather_object([None] * dist.get_world_size(), value)


@swap("objects")
def attributes_of_numbers(other):
    stats = SimpleNamespace(a=1.0, b=2.0)
    for k in flip(other, "ab"):
        dist.gather_object(
            getattr(stats, k), [None] * dist.get_world_size() if dist.get_rank() == 0 else None, 0
        )


@swap("numbers turned into tensors")
def numbers_as_tensors(other):
    stats = {"a": 1.0, "b": 2.0}
    for k in flip(other, "ab"):
        dist.all_reduce(torch.tensor(stats[k]))


@swap("numbers turned into tensors")
def numbers_as_tensors_of_items(other):
    stats = {"a": 1.0, "b": 2.0}
    for _key, value in flip(other, stats.items()):
        t = torch.tensor([value])
        dist.all_reduce(t)


@swap("numbers turned into tensors")
def numbers_as_tensors_in_a_helper(other):
    stats = {"a": 1.0, "b": 2.0}

    def mean(value):
        t = torch.tensor(value)
        dist.all_reduce(t)
        return t / dist.get_world_size()

    for k in flip(other, "ab"):
        mean(stats[k])


@swap("numbers turned into tensors")
def a_dict_of_means(other):
    stats = {"a": 1.0, "b": 2.0}

    def mean(value):
        t = torch.tensor(value)
        dist.all_reduce(t)
        return t / dist.get_world_size()

    assert {k: mean(v) for k, v in flip(other, stats.items())}


# -- compiled functions


COMPILED = "compiled functions"
"""These are for ranks as processes: threads would share the compiled function."""


@torch.compile
def doubled(x):
    return F.all_reduce(x) * 2


@swap("compiled functions")
def a_compiled_function_in_a_loop(other):
    a, b = pair()
    for _ in range(4):
        doubled(a)
    for t in flip(other, [a, b]):
        doubled(t)


@swap("compiled functions")
def a_compiled_function_of_items(other):
    values = ones("a", "b")
    for _ in range(4):
        doubled(new())
    for k in flip(other, "ab"):
        doubled(values[k])


@swap("compiled functions")
def a_compiled_function_of_an_objects_items(other):
    owner = Owner()
    for _ in range(4):
        doubled(new())
    for k in flip(other, "ab"):
        doubled(owner.grads[k])


# -- nothing in the program distinguishes the tensors


@swap(UNKNOWN)
def variables_exchanged(other):
    a, b = pair()
    if other:
        a, b = b, a
    dist.all_reduce(a)
    dist.all_reduce(b)


@swap(UNKNOWN)
def a_list_reversed(other):
    values = [torch.ones(3), torch.ones(3)]
    if other:
        values.reverse()
    for t in values:
        dist.all_reduce(t)


@swap(UNKNOWN)
def new_tensors_in_a_loop(other):
    for value in flip(other, [1.0, 2.0]):
        dist.all_reduce(torch.full((3,), value))


@swap(UNKNOWN)
def functions_that_a_function_returns(other):
    def steps():
        return flip(other, [functools.partial(reduce, torch.full((3,), v)) for v in (1.0, 2.0)])

    for step in steps():
        step()


@swap(UNKNOWN)
def five_frames_up(other):
    def f1(t):
        dist.all_reduce(t)

    def f2(t):
        f1(t)

    def f3(t):
        f2(t)

    def f4(t):
        f3(t)

    a, b = pair()
    if other:
        f4(b)
        f4(a)
    else:
        f4(a)
        f4(b)


# -- programs in which ranks differ as they may


def shares(count):
    """The items of this rank among ``count``."""
    return range(dist.get_rank(), count, dist.get_world_size())


class Dataset:
    """An object that holds all samples on every rank."""

    def __init__(self, count):
        self.samples = [torch.full((3,), float(i)) for i in range(count)]
        self.named = {f"sample {i}": each for i, each in enumerate(self.samples)}

    def of_rank(self, seed=0):
        order = list(range(len(self.samples)))
        random.Random(seed).shuffle(order)
        return order[dist.get_rank() :: dist.get_world_size()]


@legal
def parts_in_a_ring(other):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.ones(3) for _ in range(size)]
    for step in range(size):
        k = (rank + step) % size
        dist.all_gather(outputs(), parts[k])


@legal
def parts_in_a_ring_inline(other):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.ones(3) for _ in range(size)]
    for step in range(size):
        dist.all_gather(outputs(), parts[(rank + step) % size])


@legal
def parts_in_a_ring_by_a_function(other):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.ones(3) for _ in range(size)]

    def peer(step):
        return (rank + step) % size

    for step in range(size):
        to = peer(step)
        t = parts[to]
        dist.all_gather(outputs(), t)


@legal
def parts_in_a_ring_in_a_helper(other):
    rank, size = dist.get_rank(), dist.get_world_size()
    parts = [torch.ones(3) for _ in range(size)]

    def exchange(k):
        dist.all_to_all(outputs(), [parts[k]] * size)

    for step in range(size):
        exchange((rank - step) % size)


@legal
def own_samples_assigned(other):
    data = Dataset(12)
    for i in shares(12):
        x = data.samples[i]
        dist.all_gather(outputs(), x)


@legal
def own_samples_reshuffled(other):
    data = Dataset(12)
    for epoch in range(4):
        for i in data.of_rank(epoch):
            x = data.samples[i]
            dist.all_gather(outputs(), x)


@legal
def own_samples_in_a_helper(other):
    data = Dataset(12)

    def step(i):
        x = data.samples[i]
        dist.all_reduce(x.sum())

    for epoch in range(3):
        for i in data.of_rank(epoch):
            step(i)


@legal
def own_samples_in_a_decorated_function(other):
    data = Dataset(12)
    for i in data.of_rank():
        average(data.samples[i].mean(), by=2)


@legal
def own_names(other):
    data = Dataset(12)
    mine = [f"sample {i}" for i in data.of_rank()]
    for name in mine:
        synchronize(data.named[name])


@legal
def own_pairs(other):
    data = Dataset(12)
    mine = {f"sample {i}": data.samples[i] for i in data.of_rank()}
    for _name, x in mine.items():
        dist.all_reduce(x * 1)


@legal
def own_queue(other):
    todo = collections.deque(Dataset(12).samples[dist.get_rank() :: dist.get_world_size()])
    while todo:
        x = todo.popleft()
        dist.all_gather(outputs(), x)


@legal
def own_random_samples_in_a_layer(other):
    class Sync(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.ones(3))

        def forward(self, x):
            dist.all_reduce(self.total)
            return x

    data, layer = Dataset(6), Sync()
    draw = random.Random(dist.get_rank())
    for _ in range(12):
        i = draw.randrange(6)
        layer(data.samples[i])


@legal
def own_random_losses(other):
    data, model = Dataset(6), nn.Linear(3, 1)
    draw = random.Random(dist.get_rank())
    losses = []
    for _ in range(12):
        x = data.samples[draw.randrange(6)]
        loss = model(x).sum()
        losses.append(loss.detach())
        dist.all_reduce(loss.detach())


@legal
def own_random_batches_of_a_matrix(other):
    data, w = Dataset(6), torch.ones(3, 3)
    draw = random.Random(dist.get_rank())
    for _ in range(12):
        x = data.samples[draw.randrange(6)]
        F.all_reduce(x @ w)


@legal
def own_samples_of_an_autograd_function(other):
    class Mean(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone()
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx, g):
            g = g.clone()
            dist.all_reduce(g)
            return g

    data = Dataset(12)
    w = nn.Parameter(torch.ones(3))
    for i in data.of_rank():
        Mean.apply(data.samples[i] * w).sum().backward()


@legal
def own_batches_through_hooks(other):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
    data = Dataset(12)
    for epoch in range(2):
        for i in data.of_rank(epoch):
            model(data.samples[i]).sum().backward()


@legal
def own_batches_through_hooks_of_gradients(other):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    for p in model.parameters():
        p.register_hook(lambda g: F.all_reduce(g.detach()))
    for i in Dataset(12).of_rank():
        model(Dataset(12).samples[i]).sum().backward()


@legal
def backward_in_two_branches(other):
    w = nn.Parameter(torch.ones(3))
    w.register_hook(lambda g: F.all_reduce(g.detach()))
    for _ in range(2):
        if other:
            loss = (w * 2).sum()
            loss.backward()
        else:
            loss = (w * 3).sum()
            loss.backward()


@legal
def own_results_as_objects(other):
    results = {f"sample {i}": [float(i)] for i in range(12)}
    for i in shares(12):
        name = f"sample {i}"
        dist.all_gather_object([None] * dist.get_world_size(), results[name])


@legal
def own_results_as_a_list_of_objects(other):
    results = [{"loss": float(i)} for i in range(12)]
    for each in results[dist.get_rank() :: dist.get_world_size()]:
        dist.all_gather_object([None] * dist.get_world_size(), each)


@legal
def objects_from_every_rank_in_turn(other):
    plan = {rank: [rank] for rank in range(dist.get_world_size())}
    for root in range(dist.get_world_size()):
        mine = plan[root] if root == dist.get_rank() else [None]
        dist.broadcast_object_list(mine, root)


@legal
def tensors_from_every_rank_in_turn(other):
    states = {root: torch.ones(3) for root in range(dist.get_world_size())}
    spare = torch.zeros(3)
    for root in range(dist.get_world_size()):
        t = states[root] if root == dist.get_rank() else spare
        dist.broadcast(t, root)


@legal
def missing_gradients(other):
    grads = {"a": torch.ones(3), "b": torch.ones(3), "c": torch.ones(3)}
    if other:
        del grads["b"]
    for k in ("a", "b", "c"):
        t = grads.get(k)
        if t is None:
            t = torch.zeros(3)
        dist.all_reduce(t)


@legal
def missing_gradients_by_an_expression(other):
    owner = Owner()
    if other:
        owner.grads["a"] = None
    zeros = torch.zeros(3)
    for k in ("a", "b"):
        dist.all_reduce(owner.grads[k] if owner.grads[k] is not None else zeros)


@legal
def one_variable_or_another_in_a_loop(other):
    a, b = pair()
    for _ in range(4):
        t = a if other else b
        dist.all_reduce(t)


@legal
def the_part_of_this_rank_in_a_loop(other):
    parts = Dataset(dist.get_world_size())
    for _ in range(4):
        t = parts.samples[dist.get_rank()]
        dist.all_reduce(t)
        synchronize(parts.samples[dist.get_rank()])


@legal
def buffers_in_turn(other):
    buffers = [torch.ones(3), torch.ones(3)]
    for step in range(6):
        t = buffers[step % 2]
        dist.all_reduce(t)
        dist.all_reduce(buffers[(step + 1) % 2])


@legal
def one_item_of_each_rank_in_each_step(other):
    values = [torch.ones(3) for _ in range(3)]
    for step in range(6):
        k = (step + dist.get_rank()) % 3
        dist.all_gather(outputs(), values[k])


@legal
def losses_that_a_function_returns(other):
    data, losses = Dataset(30), []

    def compute(i):
        return data.samples[i].sum()

    for i in data.of_rank():
        loss = compute(i)
        losses.append(loss)
        dist.all_reduce(loss)


@legal
def own_random_samples_of_a_mean_in_a_layer(other):
    class Norm(nn.Module):
        def forward(self, x):
            mean = x.mean(0)
            dist.all_reduce(mean)
            return x - mean

    data, layer = [torch.full((2, 3), float(i)) for i in range(4)], Norm()
    draw = random.Random(dist.get_rank())
    for _ in range(8):
        x = data[draw.randrange(4)]
        layer(x)


@legal
def losses_in_a_list(other):
    losses = []
    for step in range(4):
        loss = torch.full((3,), float(step))
        losses.append(loss)
        dist.all_reduce(loss)
    for each in losses:
        dist.all_reduce(each)


@legal
def own_experts(other):
    experts = {f"expert {i}": torch.ones(3) for i in shares(3 * dist.get_world_size())}
    for _name, t in experts.items():
        dist.all_gather(outputs(), t)
    for name in experts:
        synchronize(experts[name])


@legal
def own_layers(other):
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleDict({f"layer{i}": nn.BatchNorm1d(3) for i in shares(6)})

        def synchronize(self):
            for layer in self.layers.values():
                dist.all_reduce(layer.running_mean)
                dist.all_gather(outputs(), layer.running_var)

    Part().synchronize()


@legal
def means_of_own_numbers(other):
    stats = {"loss": 1.0 + dist.get_rank(), "count": 2.0}

    def mean(value):
        t = torch.tensor(value)
        dist.all_reduce(t)
        return t

    assert {k: mean(v) for k, v in stats.items()}
    for i in shares(12):
        mean(float(i))


@legal
def numbers_of_own_samples(other):
    data = Dataset(12)
    for i in data.of_rank():
        total = data.samples[i].sum().item()
        t = torch.tensor([total, float(i)])
        dist.all_reduce(t)


@legal
def labels_of_own_samples(other):
    draw = random.Random(dist.get_rank())
    samples = [(torch.ones(3), draw.randrange(3)) for _ in range(12)]
    model = nn.Linear(3, 3)
    for x, label in samples:
        loss = model(x)[label]
        dist.all_reduce(loss.detach())
        t = torch.tensor([loss.item(), label])
        dist.all_reduce(t)


@legal
def own_files(other):
    files = [f"{dist.get_rank()}/{i}.bin" for i in range(3)]
    for path in files:
        content = torch.ones(3)
        assert path
        dist.all_gather(outputs(), content)


@legal
def own_zipped_names(other):
    data = Dataset(12)
    mine = data.of_rank()
    for name, x in zip([f"{i}" for i in mine], [data.samples[i] for i in mine], strict=True):
        assert name
        dist.all_gather(outputs(), x)


@legal
def context_managers_of_own_samples(other):
    class Timed:
        def __init__(self, t):
            self.t = t

        def __enter__(self):
            return self

        def __exit__(self, *_):
            dist.all_reduce(self.t)

    data = Dataset(12)
    for i in data.of_rank():
        with Timed(data.samples[i].sum()):
            pass


@legal
def async_gathers_of_own_samples(other):
    data = Dataset(12)
    works = [dist.all_gather(outputs(), data.samples[i], async_op=True) for i in data.of_rank()]
    for work in works:
        work.wait()


@legal
def coalesced_own_samples(other):
    data = Dataset(12)
    mine = data.of_rank()
    rows = [[torch.zeros(3) for _ in mine] for _ in range(dist.get_world_size())]
    dist.all_gather_coalesced(rows, [data.samples[i] for i in mine])


@legal
def loops_over_objects(other):
    class Metric:
        def __init__(self, name):
            self.name, self.total = name, torch.zeros(3)

        def compute(self):
            dist.all_reduce(self.total)
            return self.total.sum().item()

    metrics = {name: Metric(name) for name in ("loss", "accuracy", "count")}
    for _ in range(3):
        assert {name: each.compute() for name, each in metrics.items()}
    for each in sorted(metrics.values(), key=lambda each: each.name):
        each.compute()


@legal
def a_random_order_that_all_ranks_have(other):
    values, draw = ones("a", "b", "c"), random.Random(0)
    for _ in range(6):
        for k in draw.sample("abc", 3):
            t = values[k]
            dist.all_reduce(t)


@legal
def an_order_of_each_step_that_all_ranks_have(other):
    values = [torch.ones(3) for _ in range(4)]
    while values:
        t = values.pop(0) if len(values) % 2 else values.pop()
        dist.all_reduce(t)


@legal
def a_name_for_an_own_order(other):
    values = ones("a", "b")
    for k in flip(other, "ab"):
        with dist.named("either"):
            dist.all_reduce(values[k])


@legal
def accumulated_micro_batches(other):
    model, data = nn.Linear(3, 1), Dataset(12)
    list(model.parameters())
    for n, i in enumerate(data.of_rank()):
        model(data.samples[i]).sum().backward()
        if n % 2:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad = None


@legal
def a_step_of_an_object(other):
    class Trainer:
        def __init__(self):
            self.data, self.total = Dataset(12), torch.zeros(3)
            self.model = nn.Linear(3, 1)

        def step(self, i):
            x = self.data.samples[i]
            loss = self.model(x)
            self.total += loss.detach()
            dist.all_reduce(loss.detach())
            dist.all_reduce(self.total)

        def run(self):
            for i in self.data.of_rank():
                self.step(i)

    Trainer().run()


@legal
def windows_of_own_text(other):
    text = torch.arange(24.0)
    for start in range(4 * dist.get_rank(), 24, 4 * dist.get_world_size()):
        dist.all_gather([torch.zeros(4) for _ in range(dist.get_world_size())], text[start : start + 4])


def told(other, kinds, again=False):
    """The message of each program of ``kinds`` and of each legal one, or None.

    ``again``: all ranks have run the program in the same order before.
    """
    messages = {}
    programs = {name: case for kind in kinds for name, case in SWAPS[kind].items()}
    for name, program in {**programs, **LEGAL}.items():
        try:
            if again:
                program(False)
            program(other)
            messages[name] = None
        except CollectiveMismatchError as error:
            messages[name] = str(error)
        dist.get_communicator().barrier(name=f"after {name}")
    return messages


if __name__ == "__main__":
    rank = dist.get_rank()
    Path(sys.argv[1], f"{rank}.json").write_text(
        json.dumps(told(rank == int(sys.argv[2]), SWAPS, sys.argv[3] == "again"))
    )
