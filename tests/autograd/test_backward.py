"""``backward`` and ``grad``: accepted arguments, where gradients are stored, and what is freed."""

import gc
import sys
import weakref

import pytest

import tenon
from tenon.errors import FreedGraphError, GradError, ModifiedValueError

pytestmark = pytest.mark.together

oracle = pytest.mark.oracle


def leaf(t, *shape, start=1.0):
    size = 1
    for s in shape:
        size *= s
    return (t.arange(size, dtype=t.float64) * 0.5 + start).reshape(shape).detach().clone().requires_grad_()


def diamond(t):
    x = leaf(t, 3)
    a = x * 2
    b, c = a.exp(), a.sin()
    (b * c + a).sum().backward()
    return x.grad


def accumulates(t):
    x = leaf(t, 3)
    (x * 2).sum().backward()
    held = x.grad
    (x * x).sum().backward()
    return x.grad, held is x.grad


def two_leaves_do_not_share_gradients(t):
    x, y = leaf(t, 3), leaf(t, 3)
    (x + y).sum().backward()
    x.grad.mul_(10)
    return x.grad, y.grad


def given_gradient_is_not_taken_over(t):
    x = leaf(t, 3)
    g = t.ones(3, dtype=t.float64)
    x.backward(g)
    x.grad.add_(1)
    return g, x.grad


def gradient_of_a_leaf_itself(t):
    x = leaf(t)
    x.backward()
    return x.grad


def nonscalar_needs_gradient(t):
    (leaf(t, 3) * 2).backward()


def gradient_of_wrong_shape(t):
    (leaf(t, 3) * 2).backward(t.ones(2))


def nothing_requires_grad(t):
    t.ones(1).sum().backward()


def second_of_two_does_not_require_grad(t):
    t.autograd.backward([leaf(t, 2).sum(), t.ones(1).sum()])


def second_backward(t):
    y = (leaf(t, 3) ** 2).sum()
    y.backward()
    y.backward()


def second_backward_without_saved_values(t):
    x = leaf(t, 3)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    return x.grad


def second_backward_through_a_shared_part(t):
    x = leaf(t, 3)
    y = x.exp()
    a, b = y.sum(), (y * 2).sum()
    a.backward()
    b.backward()


def retained_graph(t):
    x = leaf(t, 3)
    y = (x**2).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


def several_roots(t):
    x = leaf(t, 3)
    a, b = (x**2).sum(), x * 3
    t.autograd.backward([a, b], [None, t.ones(3, dtype=t.float64)])
    return x.grad


def same_root_twice(t):
    x = leaf(t, 3)
    a = (x**2).sum()
    t.autograd.backward([a, a])
    return x.grad


def backward_inputs(t):
    x, y = leaf(t, 3), leaf(t, 3, start=4.0)
    z = x * y
    (z * z).sum().backward(inputs=[x, z])
    return x.grad, z.grad, y.grad


def backward_single_input(t):
    x, y = leaf(t, 3), leaf(t, 3, start=4.0)
    (x * y).sum().backward(inputs=y)
    return x.grad, y.grad


def leaves_frozen_since(t):
    x, y = leaf(t, 3), leaf(t, 3, start=4.0)
    seen = []
    x.register_hook(lambda g: seen.append(1))
    z = (x * y).sum()
    x.requires_grad_(False)
    y.detach_()
    z.backward()
    return x.grad is None, y.grad is None, seen


def backward_empty_inputs(t):
    leaf(t, 3).sum().backward(inputs=[])


def grad_of_leaf_and_nonleaf(t):
    x, y = leaf(t, 3), leaf(t, 3, start=4.0)
    z = x * y
    w = z.exp() + x
    found = t.autograd.grad(w.sum(), [x, z, y])
    return found, x.grad, z.is_leaf


def grad_of_nonleaf_only(t):
    x = leaf(t, 3)
    z = x * 2
    w = (z * z + x).sum()
    return t.autograd.grad(w, z), x.grad


def grad_of_itself(t):
    x = leaf(t, 3)
    y = (x * 2).sum()
    return t.autograd.grad(y, y), t.autograd.grad(x, x, t.ones(3, dtype=t.float64))


def grad_unused(t):
    x, y = leaf(t, 3), leaf(t, 3)
    return t.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)


def grad_unused_fails(t):
    x, y = leaf(t, 3), leaf(t, 3)
    t.autograd.grad((x * 2).sum(), [x, y])


def grad_materialized(t):
    x, y = leaf(t, 3), leaf(t, 2)
    return t.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)


def grad_materialized_contradiction(t):
    x = leaf(t, 3)
    t.autograd.grad((x * 2).sum(), x, allow_unused=False, materialize_grads=True)


def grad_of_something_untracked(t):
    t.autograd.grad(leaf(t, 3).sum(), t.ones(3))


def grad_outputs(t):
    x = leaf(t, 3)
    return t.autograd.grad(x**3, x, t.tensor([1.0, 2.0, 3.0], dtype=t.float64))


def grad_of_view_input(t):
    x = leaf(t, 4)
    y = x * 1
    v = y[1:3]
    return t.autograd.grad((v * v).sum() + y.sum(), [v, y, x])


def grad_keeps_other_branches(t):
    x = leaf(t, 3)
    a = x.exp()
    b = (a * 2).sum()
    c = (a.sin() * x).sum()
    first = t.autograd.grad(b, a)
    c.backward()
    return first, x.grad


def third_order(t):
    x = leaf(t, 3)
    y = (x**4 + x.exp() * x.sin()).sum()
    (a,) = t.autograd.grad(y, x, create_graph=True)
    (b,) = t.autograd.grad(a.sum(), x, create_graph=True)
    (c,) = t.autograd.grad(b.sum(), x, create_graph=True)
    (d,) = t.autograd.grad(c.sum(), x)
    return a, b, c, d


def gradient_penalty(t):
    x, w = leaf(t, 4, 3), leaf(t, 3, 2, start=0.2)
    out = (x @ w).tanh().pow(2).sum()
    (g,) = t.autograd.grad(out, x, create_graph=True)
    ((g.norm() - 1) ** 2 + out).backward()
    return x.grad, w.grad


def backward_with_create_graph(t):
    x = leaf(t, 3)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    x.grad = None
    first.sum().backward()
    return first, x.grad, first.requires_grad


def accumulating_onto_a_tracked_gradient(t):
    x = leaf(t, 3)
    (x**3).sum().backward(create_graph=True)
    (x**2).sum().backward(create_graph=True)
    return x.grad


def no_grad_and_enable_grad(t):
    x = leaf(t, 3)
    with t.no_grad():
        a = x * 2
        with t.enable_grad():
            b = x * 3
        with t.set_grad_enabled(True):
            c = x * 4
    t.set_grad_enabled(False)
    d = x * 5
    t.set_grad_enabled(True)
    return [v.requires_grad for v in (a, b, c, d, x * 1)]


def decorated(t):
    @t.no_grad()
    def f(x):
        return x * 2

    @t.enable_grad()
    def g(x):
        return x * 2

    x = leaf(t, 2)
    with t.no_grad():
        inner = g(x).requires_grad
    return f(x).requires_grad, inner, t.is_grad_enabled()


def decorated_generator(t):
    @t.no_grad()
    def numbers():
        for _ in range(3):
            yield t.is_grad_enabled()

    return [(inside, t.is_grad_enabled()) for inside in numbers()]


def inference(t):
    x = leaf(t, 2)
    with t.inference_mode():
        y = x * 2
        mode = t.is_inference_mode_enabled()
    return y.requires_grad, mode, t.is_inference_mode_enabled(), t.is_grad_enabled()


def requires_grad_of_integers(t):
    t.arange(3).requires_grad_()


def requires_grad_off_a_nonleaf(t):
    (leaf(t, 2) * 2).requires_grad_(False)


def frozen_leaf(t):
    x, w = leaf(t, 3), leaf(t, 3).requires_grad_(False)
    (x * w).sum().backward()
    return x.grad, w.grad


def wrong_gradient_assignments(t):
    found = []
    for value in (t.ones(2), t.ones(3), 5, t.ones(3, dtype=t.float64)):
        x = leaf(t, 3)
        try:
            x.grad = value
            found.append("taken")
        except (RuntimeError, TypeError) as error:
            found.append(next(k.__name__ for k in (RuntimeError, TypeError) if isinstance(error, k)))
    return found[0], found[2:]


def tensor_hooks_in_order(t):
    x, seen = leaf(t, 3), []
    y = x * 2
    y.register_hook(lambda g: seen.append("first") or g * 2)
    y.register_hook(lambda g: seen.append("second") or g + 1)
    x.register_hook(lambda g: seen.append(g.clone()))
    (y * 3).sum().backward()
    return seen, x.grad


def leaf_hook_runs_once_on_the_sum(t):
    x, seen = leaf(t, 3), []
    x.register_hook(lambda g: seen.append(g.clone()) or g * 10)
    (x * x + x.exp() * x + x).sum().backward()
    return seen, x.grad


def removed_hook(t):
    x, seen = leaf(t, 3), []
    handle = x.register_hook(lambda g: seen.append(1))
    handle.remove()
    x.sum().backward()
    return seen


def post_accumulate_hook(t):
    x, seen = leaf(t, 3), []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    (x * x + x).sum().backward()
    (x * 2).sum().backward()
    return seen


def post_accumulate_hook_may_drop_the_gradient(t):
    x = leaf(t, 3)

    def step(p):
        with t.no_grad():
            p.sub_(0.1 * p.grad)
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    return x, x.grad


def hook_on_something_untracked(t):
    t.ones(3).register_hook(lambda g: g)


def post_accumulate_hook_on_nonleaf(t):
    (leaf(t, 3) * 2).register_post_accumulate_grad_hook(lambda p: None)


def hook_of_wrong_size(t):
    x = leaf(t, 3)
    x.register_hook(lambda g: g[:2])
    (x * 2).sum().backward()


def hooks_see_grad_calls(t):
    x, seen = leaf(t, 3), []
    x.register_hook(lambda g: seen.append(1) or g * 2)
    return t.autograd.grad((x * x).sum(), x), seen


def retain_grad(t):
    x = leaf(t, 3)
    y = x * 2
    y.retain_grad()
    z = y * 3
    (z + y).sum().backward()
    return y.grad, y.retains_grad, z.is_leaf, x.retains_grad


def retain_grad_sees_hooks(t):
    x = leaf(t, 3)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 7)
    y.sum().backward()
    return y.grad, x.grad


def retain_grad_of_untracked(t):
    t.ones(3).retain_grad()


def retained_in_grad_call(t):
    x = leaf(t, 3)
    y = x * 2
    y.retain_grad()
    t.autograd.grad(y.sum(), x)
    return y.grad


def node_hooks(t):
    x, seen = leaf(t, 3), []
    y = x * 2
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(("after", len(inputs), outputs[0].clone())))
    y.grad_fn.register_prehook(lambda outputs: seen.append("before") or (outputs[0] * 2,))
    y.sum().backward()
    return seen, x.grad


def node_names(t):
    x, w = leaf(t, 3, 3), leaf(t, 3, 3)
    made = [
        x + 1, x - w, x * 2, x / w, x**2, x.exp(), x.log(), x.sin(), x.sqrt(), x.abs(), -x, x.sum(), x.mean(), x.prod(), x @ w,
        x.t(), x[0], x[1:], x.view(9), x.permute(1, 0), x.expand(2, 3, 3), x.clone(), x.float(), x.relu(), x.sigmoid(), x.tanh(),
        x.amax(0), x.cumsum(0), x.flip(0), x.tril(), x.unsqueeze(0), t.cat([x, w]), t.stack([x, w]),
        t.where(x > 1, x, w), x.softmax(0), x.log_softmax(0), x.gather(0, t.zeros(1, 3, dtype=t.int64)),
    ]  # fmt: skip
    return [m.grad_fn.name() for m in made]


def next_functions(t):
    x = leaf(t, 3)
    y = x * 2 + x
    (first, _), (second, _) = y.grad_fn.next_functions
    return first.name(), second.variable is x, first.next_functions[1]


def deep_copy_of_leaf_with_gradient(t):
    import copy

    x = leaf(t, 3)
    (x * 2).sum().backward()
    y = copy.deepcopy(x)
    y.grad.add_(1)
    return y, y.grad, x.grad, y.is_leaf


def deep_copy_of_nonleaf(t):
    import copy

    copy.deepcopy(leaf(t, 3) * 2)


def multiple_outputs(t):
    x = leaf(t, 3, 4)
    a, b = x.split(2, 1)
    c, _, e = x.unbind(0)
    (a * 2 + b.exp()).sum().backward()
    (c * e).sum().backward()
    return x.grad


def unused_output_of_several(t):
    x = leaf(t, 2, 3)
    x.unbind(0)[1].sum().backward()
    return x.grad


def max_and_sort_gradients(t):
    x = leaf(t, 3, 4).detach().sin().requires_grad_()
    values, indices = x.max(1)
    ordered = x.sort(0).values
    ((values**2).sum() + (ordered * t.arange(12).reshape(3, 4)).sum() + x.topk(2, 1).values.sum()).backward()
    return values, indices, x.grad


def integer_branch_has_no_gradient(t):
    x = leaf(t, 3)
    y = x.long()
    return y.requires_grad, (x > 1).requires_grad, x.argmax().requires_grad


def zero_dimensional(t):
    x = t.tensor(2.0, requires_grad=True)
    y = x * x * 3 + x.exp() / x
    y.backward()
    return y, x.grad


def mixed_dtypes(t):
    x = t.ones(3, requires_grad=True)
    w = t.full((3,), 2.0, dtype=t.float64).requires_grad_()
    (x * w).sum().backward()
    return x.grad, w.grad


def half_and_integer_arguments(t):
    x = t.ones(3, dtype=t.float16).requires_grad_()
    (x * t.arange(3) + t.tensor(2.5)).sum().backward()
    return x.grad


def zero_size(t):
    x = t.zeros(0, 3, requires_grad=True)
    (x @ t.ones(3, 2)).sum().backward()
    return x.grad


def broadcasting(t):
    x, y, z = leaf(t, 3, 1), leaf(t, 2, 1, 4), leaf(t)
    (x * y + z * x).sum().backward()
    return x.grad, y.grad, z.grad


def expanded_gradient(t):
    x = leaf(t, 3)
    x.expand(4, 3).sum(0).backward(t.ones(1, dtype=t.float64).expand(3))
    x.grad[0] = 9
    return x.grad


def multi_grad_hook(t):
    x, y, z = leaf(t, 2), leaf(t, 2), leaf(t, 2)
    seen = []
    t.autograd.graph.register_multi_grad_hook(
        (x, y, z), lambda grads: seen.append([g is None for g in grads])
    )
    (x * y).sum().backward()
    (x * y * z).sum().backward()
    return seen


def saved_tensors_hooks_pack_and_unpack(t):
    x, seen = leaf(t, 3), []
    pack = lambda v: seen.append("pack") or (v * 1)  # noqa: E731
    unpack = lambda v: seen.append("unpack") or v * 2  # noqa: E731
    with t.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x.exp()
        z = (y * x).sum()
    z.backward()
    return x.grad, sorted(seen)


def jacobian_and_hessian(t):
    f = t.autograd.functional
    x, w = leaf(t, 3).detach(), leaf(t, 3, start=2.0).detach()
    return (
        f.jacobian(lambda a, b: a * b.exp(), (x, w)), f.hessian(lambda a: (a**3).prod(), x),
        f.vjp(lambda a: a**2, x, w), f.jvp(lambda a: a**2, x, w), f.vhp(lambda a: (a**3).sum(), x, w),
    )  # fmt: skip


PROGRAMS = [
    v for k, v in list(globals().items()) if callable(v) and getattr(v, "__code__", None) and v.__code__.co_varnames[:1] == ("t",)
    and v.__code__.co_argcount == 1
]  # fmt: skip


@oracle
@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_backward_is_torchs(program, parity):
    parity(program)


def test_graphs_of_ten_thousand_nodes_neither_recurse_nor_overflow():
    x = leaf(tenon, 2)
    y = x
    for _ in range(10_000):
        y = y + 1
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        y.sum().backward()
        tenon.autograd.grad((y * 1).sum(), x)
        del y
    finally:
        sys.setrecursionlimit(limit)

    assert x.grad.tolist() == [1.0, 1.0]


def test_a_dropped_deep_graph_is_freed_without_overflow():
    y = leaf(tenon, 2)
    for _ in range(100_000):
        y = -y

    del y


@pytest.fixture
def without_gc():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_backward_frees_activations_by_reference_count(without_gc):
    x = leaf(tenon, 100, 100)
    a = x.exp()
    b = a * a
    c = b.sin()
    alive = [weakref.ref(a), weakref.ref(b), weakref.ref(c)]
    loss = (c * 2).sum()
    del a, b, c

    loss.backward()

    assert [r() for r in alive] == [None, None, None]


def test_activations_go_while_backward_is_still_running(without_gc):
    x = leaf(tenon, 100, 100)
    a = x.exp()
    b = a.sin()
    c = b.cos()
    alive = []
    a.register_hook(lambda g: alive.append((late() is None, early() is None)))
    late, early = weakref.ref(b), weakref.ref(a)
    loss = c.sum()
    del a, b, c

    loss.backward()

    # When the gradient of a arrives, b (saved by cos) is gone, a (saved by sin) goes with it.
    assert alive == [(True, True)]


def test_a_graph_dropped_without_backward_is_freed_by_reference_count(without_gc):
    x = leaf(tenon, 3)
    y = (x * 2).exp()
    z = y[1:] * 3
    z.mul_(2)
    refs = [weakref.ref(y), weakref.ref(z), weakref.ref(z.grad_fn), weakref.ref(y.grad_fn)]

    del y, z

    assert [r() for r in refs] == [None] * 4


def test_second_order_graphs_are_freed_by_reference_count(without_gc):
    x = leaf(tenon, 3)
    y = x.exp().sum()
    (g,) = tenon.autograd.grad(y, x, create_graph=True)
    h = g.sum()
    node = weakref.ref(g.grad_fn)
    h.backward()

    del y, g, h

    assert node() is None


def test_freed_graph_error_names_op():
    y = (leaf(tenon, 3) ** 2).sum()
    y.backward()

    with pytest.raises(FreedGraphError, match=r"op square"):
        y.backward()


def test_modified_value_error_names_op_versions_and_remedy():
    x = leaf(tenon, 3)
    y = x.exp()
    z = y.sin()
    y.add_(1)

    with pytest.raises(
        ModifiedValueError, match=r"input \[3\] of sin is at version 1; expected version 0.*clone"
    ):
        z.sum().backward()


def test_errors_in_a_module_name_its_path():
    class Block(tenon.nn.Module):
        def forward(self, x):
            y = x.exp()
            z = y.sin()
            y.add_(1)
            return z

    class Net(tenon.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x):
            return self.block(x).sum()

    net = Net()
    with pytest.raises(ModifiedValueError, match="in module block"):
        net(leaf(tenon, 3)).backward()


def test_gradient_of_a_nonscalar_says_what_to_do():
    with pytest.raises(GradError, match=r"shape \[3\].*\.sum\(\)"):
        (leaf(tenon, 3) * 2).backward()


def test_a_failed_backward_leaves_the_mode_as_it_was():
    y = (leaf(tenon, 3) ** 2).sum()
    y.backward()

    with pytest.raises(FreedGraphError):
        y.backward()

    assert tenon.is_grad_enabled()


def test_nested_backward_in_a_hook():
    x, w = leaf(tenon, 3), leaf(tenon, 3)
    y = x * 2

    @tenon.enable_grad()
    def hook(g):
        (w * g.detach()).sum().backward()

    y.register_hook(hook)
    y.sum().backward()

    assert w.grad.tolist() == [1.0] * 3
    assert x.grad.tolist() == [2.0] * 3


SHAPES = [
    ((2, 3, 4, 5), "channels_last"),
    ((2, 3, 4, 5, 2), "channels_last_3d"),
    ((2, 3, 4, 5), "contiguous_format"),
]


@pytest.mark.oracle
@pytest.mark.parametrize(("shape", "layout"), SHAPES, ids=str)
def test_a_gradient_has_the_memory_order_of_its_leaf(parity, shape, layout):
    def program(t):
        leaf = t.ones(*shape).to(memory_format=getattr(t, layout)).requires_grad_()
        reverse = tuple(range(len(shape)))[::-1]
        strides = []
        for out in (leaf * 2, leaf.permute(reverse).contiguous().square(), leaf * leaf.contiguous()):
            leaf.grad = None
            out.sum().backward()
            strides.append(leaf.grad.stride())
        return strides

    parity(program)
