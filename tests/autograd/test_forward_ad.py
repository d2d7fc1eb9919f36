"""Dual tensors carry tangents, keep both parts differentiable, and raise for unsupported operations."""

import numpy as np
import pytest

import tenon
from tenon.autograd import forward_ad
from tenon.errors import ArgumentError, GradError


def values(*numbers):
    return tenon.tensor(numbers, dtype=tenon.float64)


def elementwise(x, y):
    return (x * y).sin().exp() / (1 + x * x)


def reduced(x, y):
    return (x.cumsum(0) * y).logsumexp(0)


def product(x, y):
    return tenon.outer(x, y) @ x


def changed_in_place(x, y):
    z = x * 1
    z[:2].mul_(y[:2])
    z += x
    return z


def in_parts(x, y):
    return tenon.nn.functional.leaky_relu((x * y).prod(0, keepdim=True) - x)


def in_logarithms(x, y):
    return (x * y).logcumsumexp(0)


def only_one(x, y):
    return y * 2 + 0 * x.detach()


@pytest.mark.parametrize(
    "function", [elementwise, reduced, product, changed_in_place, in_parts, in_logarithms, only_one]
)
@pytest.mark.parametrize("both", [False, True])
def test_tangents_are_slopes(function, both):
    rng = np.random.default_rng(1)
    x, y, dx, dy = (tenon.from_numpy(rng.standard_normal(3)) for _ in range(4))
    dy = dy if both else 0 * dy
    with forward_ad.dual_level():
        out = function(forward_ad.make_dual(x, dx), forward_ad.make_dual(y, dy) if both else y)
        primal, tangent = forward_ad.unpack_dual(out)

    ends = [function(x + s * dx, y + s * dy) for s in (1e-6, -1e-6)]
    np.testing.assert_allclose(primal, function(x, y))
    if function is only_one and not both:
        assert tangent is None
    else:
        np.testing.assert_allclose(tangent, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)


def test_tangents_of_complex_numbers():
    z, dz = tenon.tensor([1 + 2j]), tenon.tensor([0.5 - 1j])
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(forward_ad.make_dual(z, dz) ** 2).tangent

    assert tangent.item() == pytest.approx((2 * z * dz).item())


def test_gradients_of_tangents_and_of_values():
    x, dx = values(1.0, 2.0).requires_grad_(), values(1.0, 3.0).requires_grad_()
    with forward_ad.dual_level():
        out = (forward_ad.make_dual(x, dx) ** 3).sum()
        primal, tangent = forward_ad.unpack_dual(out)

        assert tangent.item() == pytest.approx(3.0 + 36.0)
        by_x, by_dx = tenon.autograd.grad(tangent, (x, dx), retain_graph=True)
        assert by_x.tolist() == pytest.approx([6.0, 36.0]) and by_dx.tolist() == pytest.approx([3.0, 12.0])
        assert tenon.autograd.grad(primal, x)[0].tolist() == pytest.approx([3.0, 12.0])


def test_what_is_unpacked_is_what_was_packed():
    x, dx = values(1.0), values(2.0)
    with forward_ad.dual_level() as level:
        dual = forward_ad.make_dual(x, dx)
        primal, tangent = forward_ad.unpack_dual(dual)

        assert level == 0 and tangent is dx and primal.data_ptr() == x.data_ptr()
        assert not primal.requires_grad and forward_ad.unpack_dual(x).tangent is None
        x.add_(1)
        assert dual._version == x._version == primal._version
        assert forward_ad.unpack_dual(dual * 2).primal.requires_grad is False
    assert forward_ad.unpack_dual(dual).tangent is None
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(dual * 2).tangent is None


def test_what_duals_refuse():
    x = values(1.0, 2.0)
    with pytest.raises(GradError, match="no level exists"):
        forward_ad.make_dual(x, x)
    with forward_ad.dual_level():
        with pytest.raises(GradError, match="Nested forward mode AD is not supported"):
            forward_ad.enter_dual_level()
        with pytest.raises(GradError, match="has a different size"):
            forward_ad.make_dual(x, x[:1])
        with pytest.raises(ArgumentError, match="Expected tangent to be floating point or complex"):
            forward_ad.make_dual(x, tenon.ones(2, dtype=tenon.int64))
        with pytest.raises(GradError, match="has a forward gradient at the same level"):
            forward_ad.make_dual(x, forward_ad.make_dual(x, x) * 2)
    with pytest.raises(GradError, match="not the last one"):
        forward_ad.exit_dual_level()


class Affine(tenon.autograd.Function):
    """``x * factor + y``, with a tangent rule that counts its calls."""

    calls: list = []

    @staticmethod
    def forward(ctx, x, factor, y):
        ctx.save_for_forward(x, y)
        ctx.factor = factor
        return x * factor + y, x.clone()

    @staticmethod
    def jvp(ctx, dx, no_tensor, dy):
        x, y = ctx.saved_tensors
        assert no_tensor is None and x.shape == y.shape
        Affine.calls.append((dx, dy))
        return dx * ctx.factor + dy, dx

    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.factor + h, None, g


def test_a_custom_functions_jvp_makes_its_tangents():
    Affine.calls = []
    x, y, dx = values(1.0, 2.0), values(3.0, 4.0), values(0.5, 1.0)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, dx)
        first, second = Affine.apply(dual * 2, 3.0, y)
        tangent = forward_ad.unpack_dual(first * second + dual).tangent

    # d((6x + y) * 2x + x) = (24x + 2y + 1) dx
    assert tangent.tolist() == pytest.approx(((24 * x + 2 * y + 1) * dx).tolist())
    assert [(a.tolist(), b.tolist()) for a, b in Affine.calls] == [([1.0, 2.0], [0.0, 0.0])]


def test_a_custom_functions_jvp_leaves_its_backward_alone():
    x = values(1.0, 2.0).requires_grad_()
    y = values(3.0, 4.0)
    with forward_ad.dual_level():
        first, second = Affine.apply(forward_ad.make_dual(x, values(1.0, 1.0)), 3.0, y)
        primal = forward_ad.unpack_dual((first * second).sum()).primal
        by_primal = tenon.autograd.grad(primal, x)[0]

    assert by_primal.tolist() == pytest.approx((6 * x + y).tolist())
    assert Affine.apply(x, 3.0, y)[0].grad_fn.name() == "AffineBackward"


def test_the_level_at_work_has_a_number():
    assert forward_ad._current_level == -1
    with forward_ad.dual_level():
        assert forward_ad._current_level == 0
    assert forward_ad._current_level == -1


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("module", ["tenon", "torch"])
def test_a_tangent_is_taken_as_it_is_or_copied_if_laid_out_otherwise(module):
    t = pytest.importorskip(module)
    forward = pytest.importorskip(f"{module}.autograd.forward_ad")
    tangent = t.ones(2, 3)

    def kept(primal):
        return forward.unpack_dual(forward.make_dual(primal, tangent)).tangent is tangent

    with forward.dual_level():
        assert kept(t.zeros(2, 3))
        assert not kept(t.zeros(3, 2).t())
        assert not kept(t.zeros(3, 3)[:2])


def half_constant(x):
    with tenon.no_grad():
        constant, _ = (x * 2).chunk(1)[0].sort()
    return (x * constant).sum()


def test_no_grad_stops_gradients_but_not_tangents():
    x = values(1.5, 2.5).requires_grad_()

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, values(1.0, 3.0))
        partly = half_constant(dual)
        with tenon.no_grad():
            wholly = dual * dual * values(1.0, 1.0).requires_grad_()
        slope = forward_ad.unpack_dual(wholly).tangent
        (pulled,) = tenon.autograd.grad(partly, x, create_graph=True)
        curve = forward_ad.unpack_dual(pulled).tangent

        assert forward_ad.unpack_dual(partly).tangent.item() == 2 * (2 * 1.5 * 1.0 + 2 * 2.5 * 3.0)
        assert slope.tolist() == [3.0, 15.0]
        assert not slope.requires_grad and not forward_ad.unpack_dual(wholly).primal.requires_grad
        assert pulled.tolist() == [3.0, 5.0]
        assert curve.tolist() == [2.0, 6.0]


def test_no_grad_does_not_stop_the_forward_mode_of_functions():
    x, direction = values(1.5, 2.5), values(1.0, 3.0)
    forward, functional = tenon.func.jacfwd, tenon.autograd.functional
    kept = {"vectorize": True, "strategy": "forward-mode"}

    slope = tenon.func.jvp(half_constant, (x,), (direction,))[1]
    second = tenon.func.hessian(half_constant)(x)

    assert slope.item() == 2 * (2 * 1.5 * 1.0 + 2 * 2.5 * 3.0)
    assert forward(half_constant)(x).tolist() == [6.0, 10.0]
    assert functional.jacobian(half_constant, x, **kept).tolist() == [6.0, 10.0]
    assert tenon.func.jacrev(half_constant)(x).tolist() == [3.0, 5.0]
    assert second.tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert tenon.func.jvp(lambda x: in_logarithms(x, x), (x,), (direction,))[1][0].item() == pytest.approx(3)
    assert forward(forward(half_constant))(x).tolist() == [[4.0, 0.0], [0.0, 4.0]]


def halved_first(dual, plain):
    dual[:1].mul_(0.5)


def accumulated(dual, plain):
    plain.addcmul_(dual, dual)


def overwritten(dual, plain):
    dual[0] = 5.0
    plain.copy_(dual)


@pytest.mark.parametrize("module", ["tenon", pytest.param("torch", marks=pytest.mark.oracle)])
@pytest.mark.parametrize(
    ("change", "of_dual", "of_plain"),
    [
        (halved_first, [0.5, 3.0], None),
        (accumulated, [1.0, 3.0], [2.0, 12.0]),
        (overwritten, [0.0, 3.0], [0.0, 3.0]),
    ],
)
def test_changes_in_place_under_no_grad_change_tangents(module, change, of_dual, of_plain):
    t = pytest.importorskip(module)
    forward = t.autograd.forward_ad

    with forward.dual_level():
        dual, plain = forward.make_dual(t.tensor([1.0, 2.0]), t.tensor([1.0, 3.0])) * 1, t.zeros(2)
        with t.no_grad():
            change(dual, plain)
        tangents = [forward.unpack_dual(each).tangent for each in (dual, plain)]

        assert tangents[0].tolist() == of_dual
        assert (None if tangents[1] is None else tangents[1].tolist()) == of_plain


def test_what_was_changed_by_duals_is_plain_afterwards():
    buffer, x = tenon.zeros(2), tenon.ones(2)

    def averaged(x):
        with tenon.no_grad():
            buffer.mul_(0.5).add_(x)
        return buffer * x

    with forward_ad.dual_level():
        averaged(forward_ad.make_dual(x, x))
        assert forward_ad.unpack_dual(buffer).tangent.tolist() == [1.0, 1.0]
    within = buffer.requires_grad
    slope = tenon.func.jvp(averaged, (x,), (x,))[1]
    rows = tenon.func.jacfwd(averaged)(x)

    assert not within and not buffer.requires_grad and buffer.is_leaf
    assert slope.tolist() == [2.5, 2.5]
    assert rows.diagonal().tolist() == [2.75, 2.75]
