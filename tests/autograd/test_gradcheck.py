"""The numerical checks: what passes, what fails, and the errors; compared with those of tenon's test kit."""

import sys

import numpy as np
import pytest

import tenon
from tenon.autograd import Function, forward_ad, gradcheck, gradgradcheck
from tenon.autograd.gradcheck import GradcheckError
from tenon.testing.gradcheck import check_gradients

pytestmark = pytest.mark.together

gradcheck_module = sys.modules["tenon.autograd.gradcheck"]


def leaf(*shape, dtype=tenon.float64):
    return (tenon.arange(int(np.prod(shape)), dtype=dtype).reshape(shape) * 0.3 + 0.5).requires_grad_()


def function(forward, backward):
    return type(
        "Mine", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    ).apply


WRONG = function(lambda ctx, x: x * 2, lambda ctx, g: g * 3)
#: First order right, second order lost: the gradient is cut from the graph.
CUT = function(
    lambda ctx, x: (ctx.save_for_backward(x), x**3)[1],
    lambda ctx, g: g * 3 * ctx.saved_tensors[0].detach() ** 2,
)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    "expression",
    [
        lambda x, y: x @ y,
        lambda x, y: (x.exp() * y.sum()).sin(),
        lambda x, y: (x * y.t(), x.sum(0)),
        lambda x, y: x[1:].cumsum(0) / y[0, 0],
    ],
    ids=["matmul", "chain", "several", "views"],
)
def test_right_gradients_pass(expression, fast_mode):
    inputs = (leaf(2, 3), leaf(3, 2))

    assert gradcheck(expression, inputs, fast_mode=fast_mode)
    assert gradgradcheck(expression, inputs, fast_mode=fast_mode)


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_wrong_gradient_fails_with_both_jacobians(fast_mode):
    with pytest.raises(
        GradcheckError,
        match=r"Jacobian mismatch for output 0 with respect to input 0,\nnumerical:tensor[\s\S]*analytical:",
    ):
        gradcheck(WRONG, (leaf(2),), fast_mode=fast_mode)


def test_without_raising_a_wrong_gradient_is_false():
    assert gradcheck(WRONG, (leaf(2),), raise_exception=False) is False


def test_a_gradient_cut_from_the_graph_passes_once_and_fails_twice():
    assert gradcheck(CUT, (leaf(2),))
    with pytest.raises(GradcheckError):
        gradgradcheck(CUT, (leaf(2),))


def test_complex_functions_are_checked_as_pairs_of_reals():
    z = tenon.tensor([1 + 2j, 0.5 - 1j], dtype=tenon.complex128, requires_grad=True)

    assert gradcheck(lambda z: z * z, (z,))
    assert gradcheck(lambda z: z.abs(), (z,))
    assert gradcheck(lambda z: (z * z.conj()).real, (z,))
    assert gradcheck(lambda z: z.exp() / (z + 2), (z,))


@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "sin",
        "cos",
        "tanh",
        "sqrt",
        "log",
        "square",
        "reciprocal",
        "sigmoid",
        "neg",
        "sum",
        "mean",
        "prod",
    ],
)
def test_functions_of_complex_numbers_have_right_gradients(name):
    z = tenon.tensor([1 + 2j, 0.5 - 1j], dtype=tenon.complex128, requires_grad=True)

    assert gradcheck(lambda z: getattr(z, name)(), (z,))


def test_nothing_to_check_is_an_error():
    with pytest.raises(ValueError, match="none of the them have requires_grad=True"):
        gradcheck(lambda x: x * 2, (tenon.ones(2, dtype=tenon.float64),))


def test_single_precision_is_warned_of():
    with pytest.warns(UserWarning, match="not a double precision"):
        gradcheck(lambda x: x * 2, (leaf(2, dtype=tenon.float32),), raise_exception=False)


def test_overlapping_inputs_are_refused():
    x = tenon.ones(1, dtype=tenon.float64).expand(3).detach().requires_grad_()

    with pytest.raises(ValueError, match="stride 0"):
        gradcheck(lambda x: x * 2, (x,))


def test_inputs_are_left_as_they_were():
    x = leaf(3)
    before, version = x.tolist(), x._version

    gradcheck(lambda x: x.exp(), (x,))

    assert x.tolist() == before
    assert x._version == version


def test_a_nondeterministic_backward_is_found():
    calls = []
    noisy = function(lambda ctx, x: x * 1, lambda ctx, g: (calls.append(1), g * (1 + 1e-9 * len(calls)))[1])

    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(noisy, (leaf(2),))


def test_the_kits_check_finds_a_wrong_term_in_either_order():
    x = np.array([0.5, 1.5])

    check_gradients(lambda x: x**3, [x])
    with pytest.raises(AssertionError, match="first-order"):
        check_gradients(WRONG, [x])
    with pytest.raises(AssertionError, match="second-order"):
        check_gradients(CUT, [x])


def test_saved_values_can_be_kept_elsewhere_and_brought_back():
    from tenon.autograd.graph import save_on_cpu

    x = leaf(3)
    with save_on_cpu():
        y = x.exp() * x
    y.sum().backward()

    assert x.grad.allclose(x.detach().exp() * (x.detach() + 1))


def test_second_order_through_saved_tensors_hooks():
    from tenon.autograd.graph import saved_tensors_hooks

    x = leaf(3)
    with saved_tensors_hooks(lambda t: t.numpy().copy(), tenon.from_numpy):
        y = (x**3 + x.exp()).sum()
    (g,) = tenon.autograd.grad(y, x, create_graph=True)
    (h,) = tenon.autograd.grad(g.sum(), x)

    assert h.allclose(6 * x.detach() + x.detach().exp())


def hooked(change):
    def function(x):
        y = x.clone()
        y.register_hook(change)
        return y

    return function


@pytest.mark.parametrize("fast_mode", [False, True])
def test_a_gradient_of_zero_must_be_zero(fast_mode):
    x = tenon.ones(1, dtype=tenon.float64, requires_grad=True)

    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(hooked(lambda g: g + 0.01), x, atol=0.1, fast_mode=fast_mode)


def test_hooks_that_need_a_gradient_are_found():
    x = tenon.ones(1, dtype=tenon.float64, requires_grad=True)

    with (
        pytest.warns(UserWarning, match="New undefined gradient support"),
        pytest.raises(GradcheckError, match="handle undefined output grads"),
    ):
        gradcheck(hooked(lambda g: g.abs() and None), x)
    assert gradcheck(hooked(lambda g: g.abs() and None), x, check_undefined_grad=False)


def test_outputs_may_not_change_in_kind():
    x = tenon.ones(1, dtype=tenon.float64, requires_grad=True)

    with pytest.raises(AssertionError, match="the same shape when inputs are perturbed"):
        gradcheck(lambda x: tenon.cat([x, x]) if x.item() >= 1 else x, x)
    with pytest.raises(AssertionError, match="the same dtype when inputs are perturbed"):
        gradcheck(lambda x: x.float() if x.item() >= 1 else x, x)


def test_the_wrong_part_of_a_complex_output_is_named():
    x = tenon.ones(2, dtype=tenon.complex128, requires_grad=True)

    with pytest.raises(GradcheckError, match="imaginary part of complex outputs only, Jacobian mismatch"):
        gradcheck(hooked(lambda g: g + 0.01), x)


def test_batched_gradients_are_checked_on_request():
    x = tenon.ones(3, dtype=tenon.float64, requires_grad=True)

    assert gradcheck(lambda x: x.sin() * x, x, check_batched_grad=True)
    assert gradcheck(lambda x: x[:0], x, check_batched_grad=True)
    with pytest.raises(AssertionError, match="Expected at least one of"):
        gradcheck(lambda x: x, x, check_backward_ad=False)
    with pytest.raises(ValueError, match="requires check_forward_ad to be True"):
        gradcheck(lambda x: x, x, check_batched_forward_grad=True)
    with pytest.raises(ValueError, match="requires check_backward_ad to be True"):
        gradcheck(lambda x: x, x, check_forward_ad=True, check_backward_ad=False, check_grad_dtypes=True)


def stretched(x, y):
    """``x + y``, whose tangent with respect to ``y`` is wrong."""
    if forward_ad._current_level >= 0:
        primal, tangent = forward_ad.unpack_dual(y)
        y = forward_ad.make_dual(primal, 1.1 * tangent)
    return x + y, y


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dtype", [tenon.float64, tenon.complex128])
def test_tangents_are_checked_on_request(fast_mode, backward, dtype):
    x, y = leaf(2, 2, dtype=dtype), leaf(2, 2, dtype=dtype)
    options = {"check_forward_ad": True, "check_backward_ad": backward, "fast_mode": fast_mode}

    assert gradcheck(lambda x, y: ((x @ y).sin(), x.sum(0)), (x, y), **options)
    assert gradgradcheck(lambda x, y: (x * y).exp(), (x, y), check_fwd_over_rev=True, fast_mode=fast_mode)
    message = "computed with forward mode mismatch for output 0 with respect to input 1"
    with pytest.raises(GradcheckError, match=message):
        gradcheck(stretched, (x, y), **options)


def test_tangents_of_nothing_are_checked_too():
    empty, x = leaf(0, 2), leaf(2)

    assert gradcheck(lambda e, x: (e * x, x.exp()), (empty, x), check_forward_ad=True)


def test_a_functions_own_jvp_is_checked():
    def using(factor):
        class Cube(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_forward(x)
                return x**3

            @staticmethod
            def jvp(ctx, tangent):
                (x,) = ctx.saved_tensors
                return factor * x**2 * tangent

        return Cube.apply

    options = {"check_forward_ad": True, "check_backward_ad": False}
    assert gradcheck(lambda x: using(3)(x.sin()) * x, leaf(3), **options)
    with pytest.raises(GradcheckError, match="computed with forward mode mismatch"):
        gradcheck(lambda x: using(2)(x.sin()) * x, leaf(3), **options)


@pytest.mark.oracle
def test_the_older_jacobians_are_torchs():
    torch = pytest.importorskip("torch")
    found = []
    for t, module in ((tenon, gradcheck_module), (torch, sys.modules["torch.autograd.gradcheck"])):
        x, y = (t.tensor([[0.5, 1.0], [2.0, 3.0]], dtype=t.float64, requires_grad=True) for _ in range(2))
        with pytest.warns(FutureWarning, match="was part of PyTorch's private API"):
            numerical = module.get_numerical_jacobian(lambda i: (i[0] * i[0] + 3 * i[1]).sum(0), (x, y))
            one = module.get_numerical_jacobian(lambda i: i[0] * i[1], (x, y), target=y, eps=1e-6)
            rows, *agreed = module.get_analytical_jacobian((x, y), (x * x + 3 * y).sum(0))
        with pytest.raises(ValueError, match="complex"), pytest.warns(FutureWarning):
            module.get_analytical_jacobian((x,), x * 1j)
        found.append(([m.tolist() for m in (*numerical, *one, *rows)], agreed))

    (mine, flags), (theirs, expected) = found
    assert flags == expected
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_an_input_without_elements_overlaps_nothing():
    empty = tenon.zeros(0, 3, 4, dtype=tenon.float64, requires_grad=True)

    assert gradcheck(lambda x: x * 2, empty)
    with pytest.raises(ValueError, match="stride 0"):
        gradcheck(lambda x: x * 2, tenon.zeros(1, dtype=tenon.float64).expand(3).requires_grad_())


@pytest.mark.parametrize("fast", [True, False])
def test_slopes_by_a_complex_number_are_compared_as_one_number(fast):
    z = 1e-3 * tenon.tensor([0.6 + 0.4j, 7.7 + 8.2j], dtype=tenon.complex128, requires_grad=True)
    invert = lambda z: 1 / z.norm()  # noqa: E731 - differences of 1e-6 are wrong in the tenth digit

    assert gradcheck(invert, (z,), fast_mode=fast, atol=9e-6, rtol=1e-9)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(invert, (z,), fast_mode=fast, atol=1e-6, rtol=1e-9)


class Bent(Function):
    """Twice its input; its tangent is computed in a way that depends on ``Bent.how``."""

    how: object = None

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x * 2 + y

    @staticmethod
    def jvp(ctx, x_t, y_t):
        return Bent.how(x_t, y_t)


def right_slope(x_t, y_t):
    return (0 if x_t is None else x_t * 2) + (0 if y_t is None else y_t)


def test_tangents_that_are_missing_count_as_zeros(monkeypatch):
    x, y = (tenon.rand(2, dtype=tenon.float64, requires_grad=True) for _ in range(2))
    options = {"check_forward_ad": True, "check_backward_ad": False}
    monkeypatch.setattr(Bent, "how", right_slope)
    assert gradcheck(Bent.apply, (x, y), check_batched_forward_grad=True, **options)
    monkeypatch.setattr(Bent, "how", lambda a, b: a * 3 if b is None else right_slope(a, b))
    with pytest.raises(GradcheckError, match=r"undefined forward gradients .* output 0 differs when input 1"):
        gradcheck(Bent.apply, (x, y), **options)
    assert gradcheck(Bent.apply, (x, y), check_undefined_grad=False, **options)


def test_batches_of_tangents_are_checked_on_request(monkeypatch):
    x, y = (tenon.rand(2, dtype=tenon.float64, requires_grad=True) for _ in range(2))
    options = {"check_forward_ad": True, "check_backward_ad": False, "check_undefined_grad": False}
    monkeypatch.setattr(Bent, "how", lambda a, b: right_slope(a, b) + 0 * tenon.rand(2))
    assert gradcheck(Bent.apply, (x, y), **options)
    with pytest.raises(GradcheckError, match=r"batched gradients, got: vmap: .* random"):
        gradcheck(Bent.apply, (x, y), check_batched_forward_grad=True, **options)


def test_the_test_kit_finds_rules_that_write_into_the_gradient():
    def doubled(ctx, g):
        with tenon.no_grad():
            g.mul_(2)
        return g

    writing = function(lambda ctx, x: x * 2, doubled)
    right = function(lambda ctx, x: x * 2, lambda ctx, g: g * 2)
    values = [np.arange(3.0)]

    check_gradients(lambda x: right(x), values, order=1)
    with pytest.raises(AssertionError, match=r"writes into the gradient that it gets"):
        check_gradients(lambda x: writing(x), values, order=1)
