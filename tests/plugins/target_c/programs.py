"""What the tests of the target c share: write a program, run it with gcc, compare it with tenon."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tenon import Tensor
from tenon.export import capture
from tenon.export.vectors import Vectors, make_vectors
from tenon_target_c.target import CTarget


class Quick(CTarget):
    """The target with a compiler that takes less time."""

    optimization = ("-O1", "-march=native")


def write(
    folder: Path,
    function: Callable,
    *examples: Tensor,
    tolerance: float | None = None,
    train: bool = False,
) -> Vectors:
    """Write the program of ``function``; return its test vectors."""
    graph = capture(function, *examples, train=train)
    vectors = make_vectors(graph, [examples], tolerance)
    CTarget().write(graph, vectors, folder)
    return vectors


def check(folder: Path, function: Callable, *examples: Tensor, tolerance: float | None = None) -> None:
    """Fail unless the program of ``function`` computes the same within the tolerance, and on sanitizers too."""
    vectors = write(folder, function, *examples, tolerance=tolerance)
    results = Quick().run(folder, [run.inputs for run in vectors.runs])
    for own, other in zip(vectors.runs[0].outputs, results[0], strict=True):
        assert own.dtype == other.dtype
        if own.dtype.kind == "f":
            np.testing.assert_allclose(other, own, rtol=vectors.relative, atol=vectors.absolute)
        else:
            np.testing.assert_array_equal(other, own)


def sanitized(folder: Path) -> str:
    """Compile with the sanitizers and run the vectors; return what was printed. Fails where that fails."""
    done = subprocess.run(
        ["make", "-s", "-C", str(folder), "sanitize"], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def each(*functions: Callable) -> Callable:
    """One function of several outputs: those of all ``functions``."""

    def all_of(*args: Tensor) -> list[Tensor]:
        outputs: list[Tensor] = []
        for function in functions:
            result = function(*args)
            outputs += flat(result)
        return outputs

    return all_of


def flat(result: Tensor | Sequence) -> list[Tensor]:
    """The tensors of nested tuples."""
    return [result] if isinstance(result, Tensor) else [t for each in result for t in flat(each)]
