"""Custom functions, the same as torch's."""

import gc
import weakref

import pytest

import tenon
from tenon.autograd import Function, gradcheck, gradgradcheck
from tenon.autograd.function import once_differentiable
from tenon.errors import FreedGraphError, GradError, ModifiedValueError

oracle = pytest.mark.oracle


def leaf(t, *shape, start=1.0):
    size = 1
    for s in shape:
        size *= s
    return (t.arange(size, dtype=t.float64) * 0.5 + start).reshape(shape).requires_grad_()


def make(t, forward, backward, setup_context=None, name="Mine"):
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    if setup_context is not None:
        body["setup_context"] = staticmethod(setup_context)
    return type(name, (t.autograd.Function,), body)


def saves_an_input(t):
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        ctx.power = power
        return x**power

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1), None

    x = leaf(t, 3)
    y = make(t, forward, backward).apply(x, 3)
    y.sum().backward()
    return y, x.grad, y.grad_fn.name()


def saves_an_output_twice_differentiable(t):
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

    x = leaf(t, 3)
    y = make(t, forward, backward).apply(x)
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g * g).sum(), x, create_graph=True)
    (k,) = t.autograd.grad(h.sum(), x)
    return g, h, k


def needs_input_grad_is_shown(t):
    seen = []

    def forward(ctx, x, y, z):
        seen.append(ctx.needs_input_grad)
        return x + y

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g, None, None

    x = leaf(t, 2)
    make(t, forward, backward).apply(x, t.ones(2, dtype=t.float64), 5).sum().backward()
    return seen, x.grad


def several_outputs_and_missing_gradients(t):
    seen = []

    def forward(ctx, x):
        whole = (x * 2).long()
        plain = x * 5
        ctx.mark_non_differentiable(plain)
        return x * 2, whole, plain, "text", x + 1

    def backward(ctx, *grads):
        seen.append([None if g is None else str(g.dtype) for g in grads])
        return grads[0] * 2 + grads[4]

    x = leaf(t, 2)
    out = make(t, forward, backward).apply(x)
    out[0].sum().backward()
    return [getattr(o, "requires_grad", o) for o in out], seen, x.grad


def without_materialized_grads(t):
    seen = []

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx, a, b):
        seen.append((a is None, b is None))
        return b * 3

    x = leaf(t, 2)
    make(t, forward, backward).apply(x)[1].sum().backward()
    return seen, x.grad


def setup_context_apart(t):
    def forward(x, y=2.0):
        return x * y

    def setup_context(ctx, inputs, output):
        ctx.y = inputs[1]

    def backward(ctx, g):
        return g * ctx.y, None

    x = leaf(t, 2)
    y = make(t, forward, backward, setup_context).apply(x)
    y.sum().backward()
    return y, x.grad


def input_returned_as_it_is(t):
    x = leaf(t, 2)
    y = make(t, lambda ctx, x: x, lambda ctx, g: g * 5).apply(x)
    y.sum().backward()
    return y is x, x.grad, y._is_view()


def changing_a_returned_input_fails(t):
    x = leaf(t, 2)
    make(t, lambda ctx, x: x, lambda ctx, g: g * 5).apply(x).add_(1)


def dirty_input(t):
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    x = leaf(t, 2)
    y = x * 1
    z = make(t, forward, lambda ctx, g: g * 2).apply(y)
    (z * y).sum().backward()
    return z is y, x.grad


def dirty_view(t):
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    x = leaf(t, 4)
    y = x * 1
    make(t, forward, lambda ctx, g: g * 2).apply(y[1:3])
    (y * y).sum().backward()
    return y, x.grad


def dirty_leaf_fails(t):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x

    make(t, forward, lambda ctx, g: g).apply(leaf(t, 2))


def dirty_but_not_returned_fails(t):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x * 1

    make(t, forward, lambda ctx, g: g).apply(leaf(t, 2) * 1)


def too_few_gradients_fail(t):
    make(t, lambda ctx, x, y: x * y, lambda ctx, g: g).apply(leaf(t, 2), leaf(t, 2)).sum().backward()


def extra_none_gradients_are_dropped(t):
    x = leaf(t, 2)
    make(t, lambda ctx, x: x * 2, lambda ctx, g: (g * 2, None, None)).apply(x).sum().backward()
    return x.grad


def gradient_of_a_number_fails(t):
    make(t, lambda ctx, x, y: x * y, lambda ctx, g: (g, g)).apply(leaf(t, 2), 2).sum().backward()


def gradient_of_wrong_shape_fails(t):
    make(t, lambda ctx, x: x * 2, lambda ctx, g: t.ones(7, dtype=t.float64)).apply(
        leaf(t, 3)
    ).sum().backward()


def gradient_that_broadcasts_is_summed(t):
    x = leaf(t, 3)
    make(t, lambda ctx, x: x * 2, lambda ctx, g: t.ones(4, 3, dtype=t.float64)).apply(x).sum().backward()
    return x.grad


def gradient_is_cast(t):
    x = leaf(t, 3)
    make(t, lambda ctx, x: x * 2, lambda ctx, g: g.float()).apply(x).sum().backward()
    return x.grad


def gradient_that_is_a_number_fails(t):
    make(t, lambda ctx, x: x * 2, lambda ctx, g: 3.0).apply(leaf(t, 3)).sum().backward()


def saving_a_number_fails(t):
    def forward(ctx, x):
        ctx.save_for_backward(3)
        return x * 1

    make(t, forward, lambda ctx, g: g).apply(leaf(t, 3))


def saving_none(t):
    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        return x * 1

    x = leaf(t, 3)
    make(t, forward, lambda ctx, g: g if ctx.saved_tensors[1] is None else g * 0).apply(x).sum().backward()
    return x.grad


def saved_input_changed_fails(t):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    y = leaf(t, 3) * 1
    z = make(t, forward, lambda ctx, g: g * ctx.saved_tensors[0] * 2).apply(y)
    y.add_(1)
    z.sum().backward()


def twice_backward_fails(t):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    y = make(t, forward, lambda ctx, g: g * ctx.saved_tensors[0] * 2).apply(leaf(t, 3)).sum()
    y.backward()
    y.backward()


def twice_backward_with_retained_graph(t):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    x = leaf(t, 3)
    y = make(t, forward, lambda ctx, g: g * ctx.saved_tensors[0] * 2).apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


def forward_is_not_taped(t):
    seen = []

    def forward(ctx, x):
        seen.append(t.is_grad_enabled())
        y = x * 2
        seen.append(y.requires_grad)
        return y

    make(t, forward, lambda ctx, g: g).apply(leaf(t, 3))
    return seen


def in_no_grad_nothing_is_tracked(t):
    with t.no_grad():
        y = make(t, lambda ctx, x: x * 2, lambda ctx, g: g).apply(leaf(t, 3))
    return y.requires_grad, y.grad_fn is None


def without_grad_inputs_nothing_is_tracked(t):
    return make(t, lambda ctx, x: x * 2, lambda ctx, g: g).apply(t.ones(3)).requires_grad


def once_differentiable_refuses_a_second_time(t):
    backward = t.autograd.function.once_differentiable(lambda ctx, g: g * 2)
    x = leaf(t, 3)
    y = make(t, lambda ctx, x: x * 2, backward).apply(x)
    (g,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
    g.sum().backward()


def once_differentiable_has_one_node_behind_all(t):
    def describe(fn):
        inner = [] if fn is None else [describe(f) for f, _ in fn.next_functions]
        return f"{type(fn).__name__}({', '.join(inner)})"

    backward = t.autograd.function.once_differentiable(lambda ctx, g: (g * 2, None, g))
    x, y = leaf(t, 3), leaf(t, 3)
    z = make(t, lambda ctx, x, number, y: x * number + y, backward).apply(x, 2, y)
    return [describe(g.grad_fn) for g in t.autograd.grad((z * z).sum(), (x, y), create_graph=True)]


def once_differentiable_once(t):
    backward = t.autograd.function.once_differentiable(lambda ctx, g: g * 2)
    x = leaf(t, 3)
    make(t, lambda ctx, x: x * 2, backward).apply(x).sum().backward()
    return x.grad


def function_in_the_middle(t):
    x, w = leaf(t, 3), leaf(t, 3, start=2.0)
    y = make(t, lambda ctx, a, b: a * b, lambda ctx, g: (g, g * 2)).apply(x * 2, w.exp())
    (y**2).sum().backward()
    return x.grad, w.grad


def calling_an_instance_fails(t):
    Mine = make(t, lambda ctx, x: x, lambda ctx, g: g)
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        instance = Mine()
    instance(leaf(t, 2))


def forward_missing_fails(t):
    type("Mine", (t.autograd.Function,), {}).apply(leaf(t, 2))


def backward_missing_fails(t):
    mine = type("Mine", (t.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * 1)})
    mine.apply(leaf(t, 2)).sum().backward()


PROGRAMS = [
    v for k, v in list(globals().items()) if callable(v) and getattr(v, "__code__", None) and v.__code__.co_varnames[:1] == ("t",)
    and v.__code__.co_argcount == 1
]  # fmt: skip


@pytest.mark.together
@oracle
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_custom_functions_are_torchs(program, parity):
    parity(program)


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


def test_a_custom_function_passes_both_gradient_checks():
    x = leaf(tenon, 2, 2)

    assert gradcheck(Exp.apply, (x,))
    assert gradgradcheck(Exp.apply, (x,))


def test_a_saved_output_makes_no_reference_cycle():
    gc.disable()
    try:
        y = Exp.apply(leaf(tenon, 3))
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_saved_tensors_are_freed_by_backward():
    gc.disable()
    try:
        x = leaf(tenon, 3)
        hidden = x * 2
        kept = weakref.ref(hidden)
        total = Exp.apply(hidden).sum()
        del hidden
        total.backward()
        assert kept() is None
    finally:
        gc.enable()


def test_saved_tensors_after_backward_say_that_they_are_gone():
    y = Exp.apply(leaf(tenon, 3))
    y.sum().backward()

    with pytest.raises(FreedGraphError, match="ExpBackward"):
        y.grad_fn.saved_tensors  # noqa: B018 - the access is the test


def test_a_changed_saved_tensor_names_the_function():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    y = leaf(tenon, 3) * 1
    z = Square.apply(y)
    y.add_(1)

    with pytest.raises(ModifiedValueError, match="SquareBackward"):
        z.sum().backward()


def test_context_attributes_may_have_any_name():
    class Named(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.op, ctx.out, ctx.attrs, ctx.saved, ctx.edges, ctx.module = "op", 2.0, {}, 3, 4, 5
            return x * ctx.out

        @staticmethod
        def backward(ctx, g):
            return g * ctx.out

    x = leaf(tenon, 3)
    Named.apply(x).sum().backward()

    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_once_differentiable_keeps_the_name():
    @once_differentiable
    def backward(ctx, g):
        return g

    assert backward.__name__ == "backward"


def test_a_wrong_number_of_gradients_names_the_function():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(
        GradError, match=r"WrongBackward returned an incorrect number of gradients \(expected 2, got 1\)"
    ):
        Wrong.apply(leaf(tenon, 2), leaf(tenon, 2)).sum().backward()


@pytest.mark.oracle
@pytest.mark.parametrize("module", ["tenon", "torch"])
def test_views_that_functions_return_refuse_changes_or_pass_them_on(module):
    t = pytest.importorskip(module)
    calls = []

    class First(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, pure, both):
            ctx._is_pure_view = pure
            return (x[:1], x + 1) if both else x[:1]

        @staticmethod
        def backward(ctx, g, *more):
            calls.append(1)
            return t.cat([g, t.zeros(1)]), None, None

    x = t.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="returns multiple views"):
        First.apply(x.clone(), False, True)[0].add_(1)
    with pytest.raises(RuntimeError, match="Pure view custom Function can only have one"):
        First.apply(x, True, True)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        First.apply(x, True, False).add_(1)
    base = x.clone()
    part = First.apply(base, True, False)
    part.mul_(3)
    (part + base).sum().backward()
    assert x.grad.tolist() == [9.0, 1.0] and not calls


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("module", ["tenon", "torch"])
def test_jvp_must_do_to_tangents_what_forward_does_to_values(module):
    t = pytest.importorskip(module)
    ad = t.autograd.forward_ad

    def function(run, push):
        body = {"forward": staticmethod(run), "backward": staticmethod(lambda ctx, g, *more: g)}
        return type(
            "Own", (t.autograd.Function,), {**body, **({"jvp": staticmethod(push)} if push else {})}
        ).apply

    def doubled(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    def marked(ctx, x):
        ctx.mark_non_differentiable(made := x + 1)
        return x * 2, made

    def saving(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    for run, push, message in (
        (doubled, lambda ctx, g: g * 2, "modify the corresponding gradient inplace"),
        (doubled, lambda ctx, g: g, "modify the corresponding gradient inplace"),
        (marked, lambda ctx, g: (g, g), "You should return None at that position instead"),
        (lambda ctx, x: x[:1], lambda ctx, g: g[:1].clone(), "jvp is not returning a view"),
        (lambda ctx, x: x[:1], lambda ctx, g: g.clone()[:1], "jvp is not returning a view of"),
        (lambda ctx, x: x, lambda ctx, g: g, "or an input as-is"),
    ):
        with ad.dual_level():
            dual = ad.make_dual(t.ones(2), t.ones(2))
            with pytest.raises(RuntimeError, match=message):
                function(run, push)(dual)
    with ad.dual_level():
        tangent = t.ones(2)
        dual = ad.make_dual(t.ones(2), tangent)
        assert function(doubled, lambda ctx, g: g.mul_(2))(dual) is dual
        assert ad.unpack_dual(dual).tangent is tangent and tangent.tolist() == [2.0, 2.0]
        kept = function(saving, lambda ctx, g: g * (2 + len(ctx.saved_tensors)))(dual)
        assert ad.unpack_dual(kept).tangent.tolist() == [4.0, 4.0]
        bare = type("Bare", (t.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * 2)})
        with pytest.raises(RuntimeError, match="must implement the jvp function"):
            bare.apply(dual)
