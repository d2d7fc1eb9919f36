"""What PyTorch refuses of activations in place, of ``out=`` and of dtypes, tenon refuses too."""

import pytest

import tenon
from tenon import nn
from tenon.nn import functional as F


@pytest.mark.parametrize(
    "run",
    [
        lambda x: F.elu_(x, alpha=-2),
        lambda x: F.celu_(x, alpha=-2),
        lambda x: F.leaky_relu_(x, -2),
        lambda x: F.rrelu_(x, -5.0, 1.0),
    ],
)
def test_a_negative_slope_in_place_has_no_backward(run):
    x = tenon.tensor([-1.0, 1.0], requires_grad=True)

    made = run(x.clone())

    with pytest.raises(RuntimeError, match="call out-of-place version"):
        made.sum().backward()
    with tenon.no_grad():
        assert run(x.clone()).shape == (2,)


def test_out_may_not_overlap_itself():
    x = tenon.randn(1, 3).expand(3, 3)

    for run in (F.softplus, F.softshrink, F.hardshrink, F.logsigmoid):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            run(x, out=x)
    assert tenon.equal(F.logsigmoid(x, out=tenon.empty(0)), F.logsigmoid(x))


def test_threshold_may_write_where_elements_share_a_place():
    x = tenon.tensor([[0.1, 0.7, -3.0]], requires_grad=True)
    expanded = (x * 1).expand(4, 3)

    assert F.threshold(expanded, 0.5, 0.25, inplace=True) is expanded

    assert expanded.tolist() == tenon.tensor([[0.25, 0.7, 0.25]]).expand(4, 3).tolist()
    expanded.sum().backward()
    assert x.grad.tolist() == [[0.0, 4.0, 0.0]]


def test_nearest_interpolation_is_for_floats_and_bytes():
    for mode in ("nearest", "nearest-exact"):
        assert F.interpolate(tenon.ones(1, 1, 4, 4).to(tenon.uint8), 2, mode=mode).dtype is tenon.uint8
        for dtype in (tenon.int8, tenon.int64, tenon.bool, tenon.complex64):
            with pytest.raises(NotImplementedError, match="not implemented for"):
                F.interpolate(tenon.ones(1, 1, 4, 4).to(dtype), 2, mode=mode)


def test_classes_of_several_targets_are_refused():
    with pytest.raises(RuntimeError, match="0D or 1D target tensor expected, multi-target not supported"):
        F.nll_loss(tenon.randn(4, 3), tenon.zeros(4, 2, dtype=tenon.int64))


def test_a_convolution_of_nothing_has_zero_gradients():
    conv = nn.Conv1d(1, 4, 2)
    conv.weight = nn.Parameter(tenon.empty(4, 0, 2))
    x = tenon.ones(2, 0, 5, requires_grad=True)

    conv(x).sum().backward()

    assert x.grad.shape == x.shape
    assert not conv.bias.grad.any()


def test_operators_without_a_method_are_called_as_functions():
    x, w = tenon.ones(1, 1, 4), tenon.ones(1, 1, 2)

    made = tenon.ops.aten.convolution(x, w, None, [1], [0], [1], False, [0], 1)

    assert tenon.equal(made, F.conv1d(x, w))
    with pytest.raises(NotImplementedError, match="neither a method nor a function"):
        tenon.ops.aten.no_such_thing(x)
