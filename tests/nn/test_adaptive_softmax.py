"""``AdaptiveLogSoftmaxWithLoss`` beyond its calls, which the parity catalogue compares."""

from __future__ import annotations

import numpy as np
import pytest

import tenon


def layers():
    torch = pytest.importorskip("torch")
    for lib in (tenon, torch):
        lib.manual_seed(0)
        layer = lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0)
        x = lib.from_numpy(np.random.default_rng(1).standard_normal((12, 8)).astype(np.float32))
        yield lib, layer, x


@pytest.mark.oracle
def test_all_log_probabilities_and_predictions_are_torchs():
    found = []
    for lib, layer, x in layers():
        layer.head.weight.data[4:] += 0.1
        chosen = layer.predict(x)
        found.append(
            (layer.log_prob(x).detach().numpy(), chosen.numpy(), layer.predict(x[chosen < 4]).numpy())
        )
        assert lib.equal(chosen, layer.log_prob(x).argmax(1))

    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert (found[0][1] >= 4).any() and (found[0][1] < 4).any()


@pytest.mark.draws
@pytest.mark.oracle
def test_parameters_are_drawn_again_as_torch_does():
    found = []
    for lib, layer, _ in layers():
        lib.manual_seed(3)
        layer.reset_parameters()
        found.append([p.detach().numpy() for p in layer.parameters()])

    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_probabilities_sum_to_one_and_hold_the_targets():
    layer = tenon.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], 2.0)
    x, target = tenon.randn(7, 8), tenon.arange(7) * 3 % 20

    whole = layer.log_prob(x)

    np.testing.assert_allclose(whole.exp().sum(1).detach().numpy(), 1, rtol=1e-5)
    expected = whole.gather(1, target[:, None])[:, 0]
    np.testing.assert_allclose(layer(x, target).output.detach().numpy(), expected.detach().numpy(), rtol=1e-5)
