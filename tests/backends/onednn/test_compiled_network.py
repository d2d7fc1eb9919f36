"""A compiled training step of a convolutional network equals the eager one, with tensors in blocked layouts."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon_cpu.onednn.layouts import PLAIN, blocked
from tenon_cpu.onednn.runtime import available

pytestmark = pytest.mark.skipif(not available(), reason="oneDNN is not installed")


def network():
    tenon.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, groups=4),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def trained(steps, *, compiled):
    """Losses, the network and the step after ``steps`` batches."""
    rng, net = np.random.default_rng(0), network()
    optimizer = tenon.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    if compiled:
        step = tenon.compile(step)
    losses = []
    for _ in range(steps):
        x = tenon.tensor(rng.standard_normal((8, 3, 16, 16)).astype(np.float32))
        losses.append(float(step(x, tenon.tensor(rng.integers(0, 10, 8)))))
    return losses, net, step


def test_losses_parameters_and_running_statistics_are_those_of_eager_training():
    eager, compiled = trained(5, compiled=False), trained(5, compiled=True)

    np.testing.assert_allclose(compiled[0], eager[0], rtol=1e-4)
    mine, theirs = (dict(net.state_dict()) for net in (compiled[1], eager[1]))
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        np.testing.assert_allclose(value.numpy(), theirs[name].numpy(), rtol=1e-3, atol=1e-4, err_msg=name)


def test_every_convolution_gets_blocks_and_only_small_arrays_are_reordered(avx2):
    step = trained(3, compiled=True)[2]

    calls = step.programs[-1].graph.calls

    convolutions = [n for n in calls if n.op.name.startswith("conv")]
    assert len(convolutions) == 8
    for node in convolutions:
        layouts = node.attrs["layouts"]
        assert blocked() in (*layouts.inputs, *layouts.outputs)
    carriers = [
        n for n in calls if n.op.name in ("batch_norm", "batch_norm_grad", "max_pool", "max_pool_grad")
    ]
    assert len(carriers) == 8
    assert all(n.attrs["layouts"].inputs[0] != PLAIN for n in carriers)
    reordered = [n.avals[0].size for n in calls if n.op.name == "reorder"]
    assert max(reordered, default=0) <= 8 * 64 * 4 * 4
