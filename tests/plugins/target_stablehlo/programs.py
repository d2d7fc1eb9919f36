"""What the tests of the target stablehlo share: write a model, run it with jax, compare it with tenon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tenon import Tensor
from tenon.export import capture
from tenon.export.captured import CapturedGraph
from tenon.export.vectors import make_vectors
from tenon_target_stablehlo.target import StableHloTarget

#: Why nothing can be run here, or None.
REASON = StableHloTarget().unavailable()
needs_jax = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def check(
    folder: Path,
    function: Callable | CapturedGraph,
    *examples: Tensor,
    tolerance: float | None = None,
    calls: list[tuple[Tensor, ...]] | None = None,
) -> None:
    """Fail unless XLA computes what ``function`` computes of the examples, or of the ``calls``."""
    target = StableHloTarget()
    graph = function if isinstance(function, CapturedGraph) else capture(function, *examples)
    vectors = make_vectors(graph, calls or [examples], tolerance)
    target.write(target.lowered(graph), vectors, folder)
    results = target.run(folder, [run.inputs for run in vectors.runs])
    for run, made in zip(vectors.runs, results, strict=True):
        assert len(made) == len(run.outputs)
        for position, (own, other) in enumerate(zip(run.outputs, made, strict=True)):
            assert own.dtype == other.dtype, position
            assert own.shape == other.shape, position
            if own.dtype.kind in "fV":
                wide = [np.asarray(a, np.float64) for a in (other, own)]
                np.testing.assert_allclose(
                    *wide, rtol=vectors.relative, atol=vectors.absolute, err_msg=f"output {position}"
                )
            else:
                np.testing.assert_array_equal(other, own, err_msg=f"output {position}")
