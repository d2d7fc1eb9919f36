"""Every op, captured alone: the graph computes the values and the gradients of eager execution."""

import numpy as np
import pytest

import tenon
from tenon.engine.op import table
from tenon.errors import CaptureError
from tenon.export import capture, lower
from tenon.testing import samples
from tenon.testing.assertions import as_tuple

#: Ops that cannot be captured, and what the error says of them.
REFUSED = {
    "nonzero": "whose shape depends on the data",
    "to_device": "moves a value to",
}
#: Samples whose gradient eager execution refuses too.
WITHOUT_GRADIENT = {"ctc_loss_grad-padded", "igamma-orders", "igammac-orders", "zeta-same"}

EVERYTHING = samples.everything()
#: One sample of every op that has any; the others are slow.
FIRST = list({s.op: s for s in reversed(EVERYTHING)}.values())
SHORT = FIRST[::3]
REST = [s for s in EVERYTHING if s not in SHORT]


def call_of(sample, dtype):
    """The op as a function of its tensors, and the tensors."""
    arrays = sample.arrays(dtype)
    at = [i for i, a in enumerate(arrays) if isinstance(a, np.ndarray)]

    def function(*tensors):
        args = list(arrays)
        for i, tensor in zip(at, tensors, strict=True):
            args[i] = tensor
        return tuple(
            o for o in as_tuple(table[sample.op](*args, **sample.attrs)) if isinstance(o, tenon.Tensor)
        )

    return function, [tenon.tensor(np.array(arrays[i])) for i in at]


def with_gradients(function):
    """The function that returns its result with the gradients of a sum of it for all inexact inputs."""

    def step(*tensors):
        inexact = [t.is_floating_point() or t.is_complex() for t in tensors]
        leaves = [
            t.detach().clone().requires_grad_() if n else t for t, n in zip(tensors, inexact, strict=True)
        ]
        outputs = function(*leaves)
        graded = [o for o in outputs if o.requires_grad]
        if not graded:
            return outputs
        seeds = [tenon.full_like(o.detach(), 0.5) for o in graded]
        inputs = [t for t in leaves if t.requires_grad]
        gradients = tenon.autograd.grad(graded, inputs, seeds, allow_unused=True)
        return (*(o.detach() for o in outputs), *(g for g in gradients if g is not None))

    return step


def check(function, tensors, where, **options):
    """Capture, run the graph as it is and in primitives, and compare."""
    expected = function(*(t.clone() for t in tensors))

    graph = capture(function, *tensors, **options)

    for own in (graph, lower(graph, set(), strict=False)):
        actual = as_tuple(own.run(*tensors))
        for mine, wanted in zip(actual, expected, strict=True):
            assert mine.dtype == wanted.dtype and mine.shape == wanted.shape, where
            tenon.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def sweep(chosen):
    for sample in chosen:
        function, tensors = call_of(sample, np.float32)
        if sample.op in REFUSED:
            with pytest.raises(CaptureError, match=REFUSED[sample.op]):
                capture(function, *tensors)
            continue
        if tensors:
            check(function, tensors, f"{sample}")
        if tensors and str(sample) not in WITHOUT_GRADIENT:
            check(with_gradients(function), tensors, f"{sample} with gradients", train=True)


def test_a_third_of_the_ops_compute_the_same_when_captured():
    sweep(SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_all_samples_of_all_ops_compute_the_same_when_captured(part):
    sweep(REST[part::4])


def test_the_exceptions_are_samples():
    assert set(REFUSED) <= {s.op for s in EVERYTHING}
    assert {str(s) for s in EVERYTHING} >= WITHOUT_GRADIENT
