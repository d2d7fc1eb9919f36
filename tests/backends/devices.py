"""Run the same code on the host and on another device, for the tests in this folder."""

import numpy as np
from programs import Maker


def outcome(program, device):
    """What ``program`` returns on ``device`` and the gradients of its leaves, as host arrays; where they
    lay."""
    maker = Maker(device)
    result = program(maker)
    if result.requires_grad:
        result.sum().backward()
    tensors = [result.detach(), *(leaf.grad for leaf in maker.leaves if leaf.grad is not None)]
    return [t.cpu().numpy() for t in tensors], {t.device.type for t in tensors}


def compare(program, device):
    """``program`` gives the same on ``device`` as on the CPU, and leaves nothing elsewhere."""
    expected, _ = outcome(program, "cpu")
    actual, places = outcome(program, device)

    assert places == {str(device).split(":")[0]}
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_allclose(a, e, rtol=2e-4, atol=2e-5)
