"""The same little programs run on tenon and on PyTorch; what they see must be equal."""

import copy
import pickle
import re
import warnings
from collections import OrderedDict

import pytest

import tenon

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def small(t):
    """The modules that the programs are about, over the framework ``t``."""

    class Affine(t.nn.Module):
        def __init__(self, inputs=2, outputs=3):
            super().__init__()
            self.weight = t.nn.Parameter(t.ones(outputs, inputs))
            self.register_parameter("bias", None)
            self.register_buffer("calls", t.zeros(1))
            self.register_buffer("scratch", t.zeros(2), persistent=False)
            self.register_buffer("nothing", None)

        def forward(self, x):
            return x @ self.weight.t()

    class Double(t.nn.Module):
        def forward(self, x, scale=2.0):
            return x * scale

    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Affine()
            self.twice = Double()
            self.rest = t.nn.ModuleList([Affine(3, 3), Affine(3, 3), Double()])
            self.named = t.nn.ModuleDict({"b": Double(), "a": Affine()})
            self.shared = self.first

        def extra_repr(self):
            return "one=1"

        def forward(self, x):
            return self.twice(self.first(x))

    return Affine, Double, Net


PROGRAMS = []


def program(function):
    PROGRAMS.append(function)
    return function


def error(action):
    """The message of what ``action`` raises (torch's KeyErrors show its repr, tenon's the message itself)."""
    try:
        action()
    except Exception as raised:
        return str(raised.args[0])
    return "no error"


@program
def repr_of_a_tree(t):
    _, _, Net = small(t)
    return repr(Net())


@program
def repr_with_many_extra_lines(t):
    class Talks(t.nn.Module):
        def extra_repr(self):
            return "a=1\nb=2"

    outer = t.nn.Sequential(Talks())
    outer.add_module("none", None)
    return repr(outer), repr(Talks())


@program
def state_dict_keys_and_metadata(t):
    _, _, Net = small(t)
    state = Net().state_dict()
    return type(state).__name__, list(state), dict(state._metadata), Net().state_dict(prefix="x.").keys()


@program
def names_of_everything(t):
    _, _, Net = small(t)
    net = Net()
    return (
        [name for name, _ in net.named_parameters()],
        [name for name, _ in net.named_parameters(prefix="p", remove_duplicate=False)],
        [name for name, _ in net.named_parameters(recurse=False)],
        [name for name, _ in net.named_buffers()],
        [name for name, _ in net.named_modules()],
        [name for name, _ in net.named_modules(prefix="p", remove_duplicate=False)],
        [name for name, _ in net.named_children()],
        len(list(net.modules())),
        len(list(net.parameters())),
        len(list(net.buffers())),
    )


@program
def registration_errors(t):
    Affine, Double, Net = small(t)
    net = Net()

    class Early(t.nn.Module):
        def __init__(self, what):
            self.x = what

    affine = Affine()
    needs_grad = t.ones(2, requires_grad=True) * 2
    leafless = t.nn.Parameter(t.ones(2))
    return [
        error(lambda: Early(t.nn.Parameter(t.ones(1)))),
        error(lambda: Early(Double())),
        error(lambda: net.register_parameter("first", t.nn.Parameter(t.ones(1)))),
        error(lambda: net.register_parameter("a.b", t.nn.Parameter(t.ones(1)))),
        error(lambda: net.register_parameter("", t.nn.Parameter(t.ones(1)))),
        error(lambda: net.register_parameter(5, t.nn.Parameter(t.ones(1)))),
        error(lambda: net.register_parameter("p", 5)),
        error(lambda: net.register_parameter("p", t.ones(1))),
        error(lambda: net.register_buffer("first", t.ones(1))),
        error(lambda: net.register_buffer("a.b", t.ones(1))),
        error(lambda: net.register_buffer("", t.ones(1))),
        error(lambda: net.register_buffer(5, t.ones(1))),
        error(lambda: net.register_buffer("b", 5)),
        error(lambda: net.add_module("a.b", Double())),
        error(lambda: net.add_module("", Double())),
        error(lambda: net.add_module(5, Double())),
        error(lambda: net.add_module("m", 5)),
        error(lambda: net.add_module("forward", Double())),
        error(lambda: net.add_module("training", Double())),
        error(lambda: setattr(net, "first", 5)),
        error(lambda: setattr(affine, "weight", t.ones(3, 2))),
        error(lambda: setattr(affine, "bias", 5)),
        error(lambda: setattr(affine, "calls", 5)),
        error(lambda: net.missing),
        error(lambda: delattr(net, "missing")),
        error(lambda: net(t.ones(1), t.ones(1), nope=1) and None)[-60:],
        error(lambda: t.nn.Module()(1)),
        error(lambda: t.nn.Module(1)),
        error(lambda: t.nn.Module(a=1)),
        error(lambda: Affine().train("yes"))[:39],
        needs_grad.is_leaf,
        leafless.is_leaf,
    ]


@program
def finding_errors(t):
    _, Double, Net = small(t)
    net = Net()
    return [
        error(lambda: net.get_submodule("first.nothing_here")),
        error(lambda: net.get_submodule("first.weight")),
        error(lambda: net.get_parameter("first.calls")),
        error(lambda: net.get_parameter("first.nope")),
        error(lambda: net.get_buffer("first.weight")),
        error(lambda: net.get_buffer("nope.weight")),
        error(lambda: net.set_submodule("", Double())),
        error(lambda: net.set_submodule("first.weight", Double())),
        error(lambda: net.set_submodule("first.new", Double(), strict=True)),
        error(lambda: net.set_submodule("first", 5)).split("<")[0],
        net.get_submodule("") is net,
        net.get_buffer("first.calls").tolist(),
    ]


@program
def load_errors(t):
    Affine, _, Net = small(t)
    net = Net()
    good = net.state_dict()
    missing = OrderedDict(good)
    del missing["first.weight"], missing["rest.0.calls"]
    extra = OrderedDict(good, **{"what": t.ones(1), "first.what": t.ones(1), "no.where": t.ones(1)})
    wrong = OrderedDict(good, **{"first.weight": t.ones(5, 5), "named.a.calls": t.ones(2)})
    no_tensor = OrderedDict(good, **{"first.weight": "text"})

    def lines(state, **how):
        return error(lambda: net.load_state_dict(state, **how)).split("\nNothing was loaded")[0]

    return [
        lines(missing),
        lines(extra),
        lines(wrong),
        lines(OrderedDict(wrong, what=t.ones(1))),
        re.sub("<class .*>", "", lines(no_tensor)),
        lines(wrong, strict=False),
        repr(net.load_state_dict(missing, strict=False)),
        repr(net.load_state_dict(good)),
        str(net.load_state_dict(extra, strict=False)),
        lines(5),
        Affine().load_state_dict({"weight": t.ones(3, 2), "calls": t.ones(())[None]}).missing_keys,
    ]


@program
def order_of_forward_hooks(t):
    _, Double, _ = small(t)
    seen = []

    def pre(name):
        return lambda m, args: seen.append((name, len(args)))

    def post(name):
        return lambda m, args, out: seen.append((name, out is None))

    module = Double()
    everything = [
        module.register_forward_pre_hook(pre("own pre 1")),
        module.register_forward_pre_hook(pre("own pre 0"), prepend=True),
        module.register_forward_pre_hook(
            lambda m, a, k: seen.append(("kw pre", sorted(k))), with_kwargs=True
        ),
        module.register_forward_hook(post("own 1")),
        module.register_forward_hook(post("own 0"), prepend=True),
        module.register_forward_hook(lambda m, a, k, o: seen.append(("kw", sorted(k))), with_kwargs=True),
        module.register_forward_hook(post("always"), always_call=True),
        t.nn.modules.module.register_module_forward_pre_hook(pre("global pre")),
        t.nn.modules.module.register_module_forward_hook(post("global")),
        t.nn.modules.module.register_module_forward_hook(post("global always"), always_call=True),
    ]
    module(t.ones(1), scale=3.0)
    module.forward = lambda x, scale: 1 / 0
    try:
        module(t.ones(1), scale=3.0)
    except ZeroDivisionError:
        seen.append("raised")
    for handle in everything:
        handle.remove()
    del module.forward
    module(t.ones(1))
    return seen


@program
def hooks_replace_values(t):
    _, Double, _ = small(t)
    module = Double()
    module.register_forward_pre_hook(lambda m, args: args[0] + 1)
    module.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 10.0}), with_kwargs=True)
    module.register_forward_hook(lambda m, args, out: out + args[0])
    module.register_forward_hook(lambda m, args, kwargs, out: out * kwargs["scale"], with_kwargs=True)
    out = module(t.ones(2))
    bad = Double()
    bad.register_forward_pre_hook(lambda m, args, kwargs: 5, with_kwargs=True)
    return out.tolist(), error(lambda: bad(t.ones(1)))


@program
def order_of_backward_hooks(t):
    Affine, Double, _ = small(t)
    seen = []

    def values(grads):
        return [None if g is None else g.tolist() for g in grads]

    module = t.nn.Sequential(Affine(), Double())
    handles = [
        t.nn.modules.module.register_module_full_backward_pre_hook(
            lambda m, go: seen.append(("global pre", type(m).__name__, values(go)))
        ),
        t.nn.modules.module.register_module_full_backward_hook(
            lambda m, gi, go: seen.append(("global", type(m).__name__, values(gi), values(go)))
        ),
    ]
    for child in module:
        name = type(child).__name__
        child.register_full_backward_hook(
            lambda m, gi, go, name=name: seen.append((name, values(gi), values(go)))
        )
        child.register_full_backward_hook(
            lambda m, gi, go, name=name: seen.append((name, "first")), prepend=True
        )
        child.register_full_backward_pre_hook(lambda m, go, name=name: seen.append((name, "pre", values(go))))
    x = t.ones(1, 2, requires_grad=True)
    module(x).sum().backward()
    for handle in handles:
        handle.remove()
    return seen, x.grad.tolist(), module[0].weight.grad.tolist()


@program
def backward_hooks_replace_gradients(t):
    _, Double, _ = small(t)
    module = Double()
    module.register_full_backward_pre_hook(lambda m, go: (go[0] * 10,))
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] + go[0],))
    x = t.ones(2, requires_grad=True)
    module(x).sum().backward()
    return x.grad.tolist()


@program
def backward_hooks_with_several_arguments(t):
    class Mix(t.nn.Module):
        def forward(self, x, z, word):
            return x * 2, z * 3, x * z * 5

    seen = []

    def values(grads):
        return [None if g is None else g.tolist() for g in grads]

    module = Mix()
    module.register_full_backward_hook(lambda m, gi, go: seen.append((values(gi), values(go))))
    x, z = t.ones(2, requires_grad=True), t.ones(2)
    first, second, third = module(x, z, "word")
    seen.append((first.requires_grad, second.requires_grad, third.requires_grad))
    first.sum().backward(retain_graph=True)
    third.sum().backward()
    return seen


@program
def backward_hook_without_inputs(t):
    Affine, _, _ = small(t)
    seen = []
    module = Affine()
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, [g.tolist() for g in go])))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module(t.ones(1, 2)).sum().backward()
    return seen, [(w.category.__name__, str(w.message)) for w in caught]


@program
def backward_hook_errors(t):
    _, Double, _ = small(t)

    def run(hook, x):
        module = Double()
        module.register_full_backward_hook(hook)
        return error(lambda: module(x).sum().backward())

    x = t.ones(1, requires_grad=True)
    return [
        run(lambda m, gi, go: (gi[0], gi[0]), x),
        run(lambda m, gi, go: None, x),
    ]


@program
def second_order_through_backward_hooks(t):
    class Square(t.nn.Module):
        def forward(self, x):
            return x * x

    seen = []
    module = Square()
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    x = t.ones(2, requires_grad=True)
    (grad,) = t.autograd.grad((module(x) ** 2).sum(), x, create_graph=True)
    grad.sum().backward()
    return seen[0], grad.tolist(), x.grad.tolist()


@program
def plain_assignment_keeps_a_buffer(t):
    Affine, _, _ = small(t)
    module = Affine()
    module.calls = t.ones(4)
    module.scratch = t.ones(4)
    kept = list(module.state_dict()), sorted(module._buffers), module.calls.tolist()
    module.calls = None
    return (
        kept,
        list(module.state_dict()),
        sorted(module._buffers),
        error(lambda: setattr(module, "calls", "x")),
    )


@program
def one_name_moves_between_registries(t):
    Affine, Double, _ = small(t)
    module = Affine()
    steps = []
    for value in (Double(), t.nn.Parameter(t.ones(2)), t.nn.Parameter(t.ones(1))):
        module.scratch = value
        steps.append(
            (
                sorted(module._parameters),
                sorted(module._buffers),
                sorted(module._modules),
                list(module.state_dict()),
            )
        )
    del module.scratch
    steps.append((sorted(module._parameters), sorted(module._non_persistent_buffers_set)))
    module.scratch = 5
    steps.append(module.scratch)
    module.scratch = Double()
    return steps, "scratch" in dict(module.named_children())


@program
def buffer_class(t):
    module = t.nn.Module()
    module.kept = t.nn.Buffer(t.ones(1))
    module.lost = t.nn.Buffer(t.ones(1), persistent=False)
    return (
        list(module.state_dict()),
        [name for name, _ in module.named_buffers()],
        isinstance(module.kept, t.nn.Buffer),
        isinstance(module.kept, t.nn.Parameter),
        isinstance(t.ones(1), t.nn.Buffer),
        module.kept.requires_grad,
        repr(module.kept),
    )


@program
def registries_can_be_edited(t):
    Affine, Double, _ = small(t)
    module = Affine()
    weight = t.nn.Parameter(t.zeros(1))
    module._parameters["weight"] = weight
    same = module.weight is weight
    del module._parameters["weight"]
    gone = hasattr(module, "weight")
    module._modules["child"] = Double()
    found = type(module.child).__name__
    module._modules.clear()
    module._buffers.update(calls=t.ones(3))
    popped = module._buffers.pop("calls").tolist()
    return same, gone, found, hasattr(module, "child"), popped, hasattr(module, "calls")


@program
def training_mode_and_apply(t):
    _, _, Net = small(t)
    net = Net()
    names = []
    net.apply(lambda m: names.append(type(m).__name__))
    modes = [m.training for m in net.modules()]
    net.eval()
    modes += [m.training for m in net.modules()]
    net.first.train()
    modes += [m.training for m in net.modules()]
    net.requires_grad_(False)
    return names, modes, [p.requires_grad for p in net.parameters()], net.train() is net


@program
def conversions(t):
    _, _, Net = small(t)
    net = Net()
    weight = net.first.weight
    net.first.register_buffer("count", t.zeros(1, dtype=t.int64))
    seen = []
    for change in (
        lambda: net.double(),
        lambda: net.half(),
        lambda: net.float(),
        lambda: net.bfloat16(),
        lambda: net.to(t.float64),
        lambda: net.to("cpu", t.float32),
        lambda: net.to(device="cpu"),
        lambda: net.to(t.ones(1, dtype=t.float64)),
        lambda: net.type(t.float32),
        lambda: net.to(dtype=t.float64, non_blocking=True),
    ):
        same = change() is net and net.first.weight is weight
        seen.append(
            (same, str(net.first.weight.dtype), str(net.first.calls.dtype), str(net.first.count.dtype))
        )
    return seen, error(lambda: net.to(t.int64))


@program
def meta_device_and_to_empty(t):
    module = t.nn.Module()
    module.weight = t.nn.Parameter(t.ones(2, 3, device="meta"))
    text = error(lambda: module.to("cpu"))
    before = str(module.weight.device)
    module.to_empty(device="cpu")
    return text, before, str(module.weight.device), tuple(module.weight.shape), module.weight.requires_grad


@program
def copies_and_pickles(t):
    net = t.nn.Sequential(
        t.nn.ModuleList([t.nn.ParameterList([t.ones(2)])]), t.nn.ParameterDict({"a": t.ones(1)})
    )
    net.tied = net[1].a
    out = []
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), copy.copy(net)):
        out.append(
            (
                repr(other),
                list(other.state_dict()),
                other[1].a is net[1].a,
                other.tied is other[1].a,
                other.training,
            )
        )
    return out


@program
def containers_print_the_same(t):
    def leaf():
        return t.nn.Module()

    net = t.nn.ModuleList([leaf(), leaf(), t.nn.Sequential(leaf()), leaf()])
    return (
        repr(net),
        repr(t.nn.ModuleList()),
        repr(t.nn.Sequential()),
        repr(t.nn.ModuleDict({"x": leaf(), "y": t.nn.Sequential(leaf(), leaf())})),
        repr(t.nn.ParameterList([t.ones(2, 3), t.nn.Parameter(t.ones(1)), "text", t.ones(())])),
        repr(t.nn.ParameterDict({"b": t.ones(2), "a": t.ones(1, 1), "n": 5})),
        repr(t.nn.Sequential(OrderedDict(one=leaf(), two=leaf()))[1:]),
    )


@program
def sequential_as_a_list(t):
    _, Double, _ = small(t)
    a, b, c, d = (Double() for _ in range(4))
    net = t.nn.Sequential(a, b)
    net.append(c).insert(1, d)
    order = [list(net).index(m) for m in (a, b, c, d)]
    popped = net.pop(0) is a
    net += t.nn.Sequential(a)
    doubled = net * 2
    del doubled[1:3]
    net[0] = b
    return (
        order,
        popped,
        list(net._modules),
        list(doubled._modules),
        len(2 * net),
        [list(net).index(m) for m in net],
        error(lambda: net[9]),
        error(lambda: net * 0).split(" for ")[0],
        error(lambda: net * "a").split(":")[0],
        error(lambda: net + 5).split(" class")[0],
        error(lambda: net.insert(99, a)),
        net(t.ones(1)).tolist(),
        len(t.nn.Sequential(a, b).extend([c, d])),
        sorted(n for n in dir(net) if n.isdigit()),
    )


@program
def module_list_as_a_list(t):
    _, Double, _ = small(t)
    items = [Double() for _ in range(4)]
    net = t.nn.ModuleList(items[:2])
    net.extend(items[2:])
    net.insert(0, items[3])
    first = [items.index(m) for m in net]
    del net[0]
    net[1] = items[0]
    return (
        first,
        [items.index(m) for m in net],
        list(net._modules),
        [items.index(m) for m in net[1:]],
        items.index(net[-1]),
        items.index(net.pop(-1)),
        len(net + net),
        error(lambda: net[9]),
        error(lambda: net.extend(5)),
        error(lambda: net(1)),
    )


@program
def module_dict_as_a_dict(t):
    _, Double, _ = small(t)
    d = t.nn.ModuleDict([["x", Double()], ("a", Double())])
    d.update({"m": Double()})
    d["z"] = Double()
    keys = list(d.keys()), list(d), "x" in d, len(d), [k for k, _ in d.items()], len(list(d.values()))
    d.pop("x")
    del d["a"]
    left = list(d)
    d.clear()
    return (
        keys,
        left,
        len(d),
        error(lambda: d.update(5)),
        error(lambda: d.update([["a"]])),
        error(lambda: d["no"]),
    )


@program
def parameter_containers(t):
    plist = t.nn.ParameterList([t.ones(1), t.nn.Parameter(t.ones(2))])
    plist += [t.zeros(3), "x"]
    plist.append(t.ones(4))
    plist[0] = t.ones(7)
    pdict = t.nn.ParameterDict({"foo": t.ones(3), "bar": t.ones(4)})
    pdict["x"] = t.ones(1)
    other = pdict | t.nn.ParameterDict([("foo", t.zeros(1)), ("y", 5)])
    return (
        [type(p).__name__ for p in plist],
        list(plist.state_dict()),
        [type(p).__name__ for p in plist[1:3]],
        list(pdict.state_dict()),
        [type(p).__name__ for p in pdict.values()],
        list(other),
        pdict.get("nope"),
        pdict.popitem()[0],
        pdict.setdefault("w", t.ones(1)).shape == (1,),
        list(pdict.fromkeys(["a", "b"]).keys()),
        list(reversed(pdict)),
        error(lambda: plist(1)),
        error(lambda: plist.extend(5)),
        error(lambda: plist[99]),
        error(lambda: pdict[5])[:80],
    )


@program
def functional_call(t):
    class Tied(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.foo = t.nn.Parameter(t.ones(1))
            self.tied = self.foo
            self.register_buffer("seen", t.zeros(1))

        def forward(self, x, scale=1.0):
            self.seen = self.seen + 1
            return (x + self.foo + self.tied) * scale

    module = Tied()
    call = t.func.functional_call
    given = {"foo": t.zeros(1), "seen": t.full((1,), 5.0)}
    return (
        call(module, given, t.zeros(1)).tolist(),
        given["seen"].tolist(),
        module.seen.tolist(),
        call(module, {"foo": t.zeros(1)}, t.zeros(1), tie_weights=False).tolist(),
        call(module, ({"foo": t.zeros(1)}, {"seen": t.zeros(1)}), (t.ones(1),), {"scale": 3.0}).tolist(),
        error(lambda: call(module, {"foo": t.zeros(1), "tied": t.ones(1)}, t.zeros(1))),
        error(lambda: call(module, {"foo": t.zeros(1), "no": t.ones(1)}, t.zeros(1), strict=True)),
        error(lambda: call(module, ({"foo": t.zeros(1)}, {"foo": t.zeros(1)}), t.zeros(1))),
        module.foo.tolist(),
        isinstance(module.foo, t.nn.Parameter),
    )


@program
def state_dict_hooks(t):
    Affine, _, _ = small(t)
    module = t.nn.Sequential(Affine())
    seen = []
    module[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("pre", prefix, keep)))
    module[0].register_state_dict_post_hook(lambda m, s, prefix, meta: s.__delitem__(prefix + "calls"))
    module._register_state_dict_hook(lambda m, s, prefix, meta: OrderedDict(s, added=1))
    state = module.state_dict()
    other = t.nn.Sequential(Affine())
    other[0].register_load_state_dict_pre_hook(
        lambda m, s, prefix, meta, strict, missing, unexpected, errors: s.setdefault(
            prefix + "calls", t.ones(1)
        )
    )
    other._register_load_state_dict_pre_hook(
        lambda s, prefix, *rest: seen.append(("load pre", prefix, list(s)))
    )
    other.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    result = other.load_state_dict(state)
    bad = Affine()
    bad.register_state_dict_post_hook(lambda m, s, p, meta: s)
    bad_load = Affine()
    bad_load.register_load_state_dict_post_hook(lambda m, keys: 5)
    return (
        list(state),
        seen,
        repr(result),
        other[0].calls.tolist(),
        error(lambda: bad.state_dict()),
        error(lambda: bad_load.load_state_dict(Affine().state_dict()))[:60],
    )


@program
def extra_state(t):
    class Keeps(t.nn.Module):
        def __init__(self, word):
            super().__init__()
            self.word = word

        def get_extra_state(self):
            return {"word": self.word}

        def set_extra_state(self, state):
            self.word = state["word"]

    source, target = t.nn.Sequential(Keeps("a")), t.nn.Sequential(Keeps("b"))
    state = source.state_dict()
    result = repr(target.load_state_dict(state))
    return (
        list(state),
        state["0._extra_state"],
        result,
        target[0].word,
        error(lambda: target.load_state_dict({})).split("\nNothing")[0],
        error(lambda: t.nn.Sequential(t.nn.Module()).load_state_dict(state)).split("\nNothing")[0],
    )


@program
def assign_instead_of_copy(t):
    Affine, _, _ = small(t)
    module, given = Affine(), Affine().double().state_dict()
    module.weight.requires_grad_(False)
    copied = Affine()
    copied.load_state_dict(given)
    module.load_state_dict(given, assign=True)
    return (
        str(copied.weight.dtype),
        str(module.weight.dtype),
        module.weight.requires_grad,
        type(module.weight).__name__,
        module.calls is given["calls"],
        sorted(module._buffers),
    )


@program
def parameter_behaviour(t):
    data = t.ones(2)
    with t.no_grad():
        parameter = t.nn.Parameter(data)
    frozen = t.nn.Parameter(data, requires_grad=False)
    clone = copy.deepcopy(parameter)
    again = pickle.loads(pickle.dumps(parameter))
    data.fill_(3)
    empty = t.nn.Parameter()
    return (
        parameter.requires_grad,
        frozen.requires_grad,
        repr(parameter),
        repr(frozen),
        repr(clone),
        repr(again),
        type(again).__name__,
        type(parameter * 2).__name__,
        type(parameter.data).__name__,
        type(parameter.detach()).__name__,
        isinstance(parameter, t.Tensor),
        tuple(empty.shape),
        parameter.is_leaf,
        repr(t.nn.Parameter(t.ones(1, dtype=t.float64))),
    )


@program
def registration_hooks(t):
    module_ns = t.nn.modules.module
    seen = []
    handles = [
        module_ns.register_module_buffer_registration_hook(
            lambda m, n, b: seen.append(("buffer", n)) or b * 2
        ),
        module_ns.register_module_parameter_registration_hook(lambda m, n, p: seen.append(("parameter", n))),
        module_ns.register_module_module_registration_hook(lambda m, n, c: seen.append(("module", n))),
    ]
    module = t.nn.Module()
    module.register_buffer("b", t.ones(1))
    module.b = t.ones(1)
    module.p = t.nn.Parameter(t.ones(1))
    module.register_parameter("q", None)
    module.m = t.nn.Module()
    module.add_module("n", None)
    for handle in handles:
        handle.remove()
    module.m2 = t.nn.Module()
    return seen, module.b.tolist()


@program
def zero_grad(t):
    module = t.nn.Module()
    module.p = t.nn.Parameter(t.ones(2))
    (module.p * 2).sum().backward()
    grad = module.p.grad
    module.zero_grad(set_to_none=False)
    zeros = grad.tolist(), module.p.grad is grad
    module.zero_grad()
    return zeros, module.p.grad


@program
def dir_of_a_module(t):
    Affine, _, _ = small(t)
    module = t.nn.Sequential(Affine())
    module.plain = 1
    names = [n for n in dir(module) if not n.startswith("_")]
    return [n for n in names if n in ("plain", "0", "forward", "weight")], "weight" in dir(module[0])


def public(value):
    """What both frameworks print alike: object addresses and package names removed."""
    text = repr(value)
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    return re.sub(r"<class '[\w.]*\.(\w+)'>", r"<class '\1'>", text)


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_program_sees_the_same_on_both(run):
    assert public(run(tenon)) == public(run(torch))


def test_every_public_name_of_a_torch_module_exists():
    missing = [n for n in dir(torch.nn.Module) if not n.startswith("_") and not hasattr(tenon.nn.Module, n)]

    assert missing == []


def test_private_names_that_other_libraries_use_exist():
    names = """
        _parameters _buffers _modules _non_persistent_buffers_set _load_from_state_dict _save_to_state_dict
        _version _apply _get_name _named_members _forward_hooks _forward_pre_hooks _backward_hooks
        _backward_pre_hooks _state_dict_hooks _load_state_dict_pre_hooks _load_state_dict_post_hooks
        _state_dict_pre_hooks _forward_hooks_with_kwargs _forward_pre_hooks_with_kwargs
        _forward_hooks_always_called _is_full_backward_hook _register_state_dict_hook
        _register_load_state_dict_pre_hook _call_impl
    """
    module = tenon.nn.Module()

    assert [n for n in names.split() if not hasattr(module, n)] == []


def test_signatures_of_the_public_methods_equal_torchs():
    import inspect

    different = {}
    for name in dir(torch.nn.Module):
        ours, theirs = getattr(tenon.nn.Module, name, None), getattr(torch.nn.Module, name)
        if name.startswith("_") or not inspect.isfunction(theirs):
            continue
        a, b = (
            [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
            for f in (ours, theirs)
        )
        if a != b:
            different[name] = (a, b)

    assert different == {}
