"""Observers: limits as PyTorch's find them, of activations and of the outputs of weights."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import QuantizationError
from tenon.quantization import observer_of, steps_of
from tenon.quantization.static import Int8


def result(model, x):
    with tenon.no_grad():
        return model.eval()(x).numpy()


@pytest.mark.oracle
@pytest.mark.parametrize("shift", [0.0, 2.0, -5.0])
def test_limits_of_minima_and_averages_are_those_of_torch(shift):
    torch = pytest.importorskip("torch")
    from torch.ao.quantization import MinMaxObserver, MovingAverageMinMaxObserver

    data = np.random.default_rng(0).normal(shift, 1, (4, 50)).astype(np.float32)
    for name, peer in (("MinMax", MinMaxObserver()), ("MovingAverage", MovingAverageMinMaxObserver())):
        mine = observer_of(name)
        for row in data:
            mine.observe(tenon.from_numpy(row))
            peer(torch.from_numpy(row))

        step, zero = steps_of(*mine.limits())

        scale, zero_point = peer.calculate_qparams()
        assert step == pytest.approx(scale.item(), rel=1e-5) and abs(zero - zero_point.item()) <= 1


@pytest.mark.oracle
def test_limits_of_each_output_are_those_of_torch():
    torch = pytest.importorskip("torch")
    from torch.ao.quantization import PerChannelMinMaxObserver

    data = np.random.default_rng(0).normal(size=(3, 5, 4, 2)).astype(np.float32)
    mine, peer = observer_of("PerChannelMinMax"), PerChannelMinMaxObserver()
    for weight in data:
        mine.observe(tenon.from_numpy(weight))
        peer(torch.from_numpy(weight))

    for found, theirs in zip(mine.limits(), (peer.min_val, peer.max_val), strict=True):
        np.testing.assert_array_equal(found.numpy(), theirs.numpy())


def test_weights_have_the_steps_that_their_observer_says():
    tenon.manual_seed(0)
    layer, x = nn.Linear(16, 8), tenon.randn(4, 16)

    by_row = tenon.quantize(layer, Int8(), [x]).model
    by_all = tenon.quantize(layer, Int8(weights="MinMax"), [x]).model

    rows = layer.weight.detach().abs().amax(1)
    np.testing.assert_allclose(by_row.scale.numpy(), rows.numpy() / 127, rtol=1e-6)
    np.testing.assert_allclose(by_all.scale.numpy(), np.full(8, rows.max().item() / 127), rtol=1e-6)
    np.testing.assert_allclose(result(by_all, x), result(layer, x), atol=0.05)


class ByColumn(Int8):
    """An observer that looks along the wrong axis."""

    def weight_observer(self):
        observer = observer_of("PerChannelMinMax")
        observe = observer.observe
        observer.observe = lambda weight: observe(weight.T)
        return observer


def test_limits_that_are_not_one_for_each_output_are_named():
    with pytest.raises(
        QuantizationError, match="has 8 outputs, and PerChannelMinMax returns limits of shape"
    ):
        tenon.quantize(nn.Linear(16, 8), ByColumn(), [tenon.randn(4, 16)])


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["normal", "with outliers", "rectified"])
def test_the_histogram_errs_no_more_than_that_of_torch(name):
    torch = pytest.importorskip("torch")
    from torch.ao.quantization import HistogramObserver

    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 4000)).astype(np.float32)
    if name == "with outliers":
        data[1, :3] = 60
    data = np.maximum(data, 0) if name == "rectified" else data
    mine, peer = observer_of("Histogram"), HistogramObserver()
    for row in data:
        mine.observe(tenon.from_numpy(row))
        peer(torch.from_numpy(row))

    def error(step, zero):
        return (((np.clip(np.rint(data / step + zero), 0, 255) - zero) * step - data) ** 2).mean()

    assert error(*steps_of(*mine.limits())) <= 1.05 * error(*(v.item() for v in peer.calculate_qparams()))


def test_entropy_leaves_out_what_is_rare():
    x = np.random.default_rng(0).normal(size=20000).astype(np.float32)
    x[:2] = 40
    observer = observer_of("Entropy")
    observer.observe(tenon.from_numpy(x))

    low, high = observer.limits()

    assert -6 < low < -2 and high < 30


def test_an_observer_is_looked_up_by_name():
    with pytest.raises(QuantizationError, match="is not an observer"):
        observer_of("int8-dynamic")
