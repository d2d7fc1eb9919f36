"""``NumpyTarget``: a folder with ``runner.py``, its weights and test vectors."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tenon.extend import CapturedGraph, Target, Vectors, errors
from tenon_target_numpy.lowering import in_numpy_ops, ops_in_numpy
from tenon_target_numpy.program import Program
from tenon_target_numpy.source import runner_text
from tenon_target_numpy.templates.runner import each_run, read_tensors, write_tensors

RUNNER, WEIGHTS, VECTORS = "runner.py", "weights.safetensors", "vectors.safetensors"


class NumpyTarget(Target):
    """Writes one Python file that needs NumPy only, and the arrays that it reads."""

    name = "numpy"
    ops = ops_in_numpy()
    dynamic = True
    guards = True
    size_guards = True

    def lowered(self, graph: CapturedGraph) -> CapturedGraph:
        """Return ``graph`` lowered to calls that can be written; LoweringError lists the others."""
        result = in_numpy_ops(graph)
        self.check(result)
        return result

    def write(self, graph: CapturedGraph, vectors: Vectors | None, folder: Path) -> None:
        """Write the runner of ``graph`` into ``folder``."""
        program = Program(graph).build()
        tolerance = (vectors.absolute, vectors.relative) if vectors is not None else (1e-5, 1e-5)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RUNNER).write_text(runner_text(program, tolerance), "utf-8")
        write_tensors(folder / WEIGHTS, program.arrays)
        if vectors is not None:
            write_tensors(folder / VECTORS, _named(vectors))

    def run(self, folder: Path, runs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the folder's runner in another process; return the outputs of each run."""
        with tempfile.TemporaryDirectory() as scratch:
            input_file, output_file = (
                Path(scratch) / "inputs.safetensors",
                Path(scratch) / "outputs.safetensors",
            )
            inputs = {
                f"{n}.inputs.{i}": np.asarray(a) for n, run in enumerate(runs) for i, a in enumerate(run)
            }
            if not inputs:  # the runner counts runs by their arrays, and does not read those of outputs here
                inputs = {f"{n}.outputs.0": np.zeros(0) for n in range(len(runs))}
            try:
                write_tensors(input_file, inputs)
            except TypeError as error:
                raise errors.DTypeError(str(error)) from error
            command = [
                sys.executable,
                "-I",
                str(Path(folder).absolute() / RUNNER),
                str(input_file),
                str(output_file),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                message = (done.stderr or done.stdout).strip()[-2000:]
                raise errors.BundleError(f"{RUNNER} failed with code {done.returncode}: {message}")
            results = [outputs for _, outputs in each_run(read_tensors(output_file))]
            return results or [[] for _ in runs]


def _named(vectors: Vectors) -> dict[str, np.ndarray]:
    """Return the arrays of the runs by name: ``0.inputs.0``, ``0.outputs.0``."""
    return {
        f"{number}.{side}.{i}": array
        for number, run in enumerate(vectors.runs)
        for side, arrays in (("inputs", run.inputs), ("outputs", run.outputs))
        for i, array in enumerate(arrays)
    }
