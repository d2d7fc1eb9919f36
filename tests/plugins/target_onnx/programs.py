"""What the tests of the target onnx share: write a model, run it with onnxruntime, compare it with tenon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tenon import Tensor
from tenon.export import capture
from tenon.export.vectors import make_vectors
from tenon_target_onnx.model import Options
from tenon_target_onnx.target import OnnxTarget

#: Why nothing can be run here, or None.
REASON = OnnxTarget().unavailable()
needs_runtime = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def check(
    folder: Path, function: Callable, *examples: Tensor, tolerance: float | None = None, opset: int = 20
) -> None:
    """Fail unless onnxruntime computes what ``function`` computes of the examples."""
    target = OnnxTarget(Options(opset=opset))
    graph = capture(function, *examples)
    vectors = make_vectors(graph, [examples], tolerance)
    target.write(target.lowered(graph), vectors, folder)
    results = target.run(folder, [run.inputs for run in vectors.runs])
    assert len(results[0]) == len(vectors.runs[0].outputs)
    for position, (own, other) in enumerate(zip(vectors.runs[0].outputs, results[0], strict=True)):
        assert own.dtype == other.dtype, position
        assert own.shape == other.shape, position
        if own.dtype.kind in "fV":
            wide = [np.asarray(a, np.float64) for a in (other, own)]
            np.testing.assert_allclose(
                *wide, rtol=vectors.relative, atol=vectors.absolute, err_msg=f"output {position}"
            )
        else:
            np.testing.assert_array_equal(other, own, err_msg=f"output {position}")


def each(*functions: Callable) -> Callable:
    """One function of several outputs: those of all ``functions``."""

    def all_of(*args: Tensor) -> list[Tensor]:
        outputs: list[Tensor] = []
        for function in functions:
            outputs += flat(function(*args))
        return outputs

    return all_of


def flat(result: Tensor | Sequence) -> list[Tensor]:
    """The tensors of nested tuples."""
    return [result] if isinstance(result, Tensor) else [t for item in result for t in flat(item)]
