"""``CTarget``: a folder of C99 that needs no library but ``libm``, and allocates no memory.

``make test`` in the folder compiles it and compares it with the test vectors. ``run`` does the same from
Python, with gcc or the compiler in the variable CC.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tenon.extend import CapturedGraph, Target, Vectors, errors, process_environment
from tenon_target_c.building import build
from tenon_target_c.lowering import Lowering, ops_in_c
from tenon_target_c.sizes import build_sized, largest_permitted
from tenon_target_c.source import Names, render, test_source
from tenon_target_c.values import CTYPES

#: The files of a folder that are compiled.
SOURCES = ("model.c", "model.h", "kernels.c", "kernels.h", "test_model.c")
_FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
#: Seconds after which a compiler or a program counts as hanging.
_PATIENCE = 600
_FAST = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")


class CTarget(Target):
    """Writes ``model.c``, ``model.h``, the kernels that it needs, weights, a test and a Makefile."""

    name = "c"
    ops = ops_in_c()
    dynamic = True
    size_guards = True
    #: What ``run`` passes to the compiler besides the language and the warnings.
    optimization: Sequence[str] = _FAST

    def lowered(self, graph: CapturedGraph) -> CapturedGraph:
        """Return ``graph`` in calls that have a form in C, with known values computed.

        One with sizes that may change stays as it is: it is built at several sizes.
        """
        self.check(graph)
        if graph.symbols:
            Lowering(graph.at(**largest_permitted(graph)))
            return graph
        return Lowering(graph).graph

    def check(self, graph: CapturedGraph) -> None:
        """Raise LoweringError for guards on arrays; those on numbers of a step are checked by each run."""
        guards = [g for g in graph.guards if not g.value.scalar]
        if guards:
            places = ", ".join(dict.fromkeys(g.where or "an unknown place" for g in guards))
            raise errors.LoweringError(
                f"the target c cannot check guards on arrays; Python decided by values at {places}. "
                "Compute with where()."
            )

    def write(self, graph: CapturedGraph, vectors: Vectors | None, folder: Path) -> None:
        """Write the program of ``graph`` into ``folder``."""
        program, sizes = build_sized(graph) if graph.symbols else (build(graph), None)
        names = Names(
            "A training step." if graph.writes else "A model.",
            graph.signature.inputs,
            [f"output{i}" for i in range(len(graph.outputs))],
            [(s.name, s.value, s.increment) for s in graph.signature.scalars],
            sizes,
        )
        files = render(program, names)
        files["test_model.c"] = test_source(*_tolerances(graph, vectors))
        files["vectors.bin"] = b"".join(
            _described(array)
            for run in (vectors.runs if vectors is not None else ())
            for array in (*run.inputs, *run.outputs)
        )
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)

    def run(self, folder: Path, runs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Compile the folder's sources in a temporary one, and return the outputs of each run."""
        with tempfile.TemporaryDirectory() as scratch:
            program = Path(scratch) / "program"
            sources = [str(Path(folder) / name) for name in SOURCES if name.endswith(".c")]
            _call([compiler(), *_FLAGS, *self.optimization, "-o", str(program), *sources, "-lm"])
            inputs, outputs = Path(scratch) / "inputs.bin", Path(scratch) / "outputs.bin"
            inputs.write_bytes(b"".join(_described(a) for run in runs for a in run))
            report = _call(
                [str(program), str(Path(folder) / "weights.bin"), str(inputs), str(outputs), str(len(runs))]
            )
            return _outputs(report, outputs.read_bytes(), len(runs))

    def unavailable(self) -> str | None:
        """Return a message if there is no compiler, else None."""
        return None if shutil.which(compiler()) else f"no C compiler: {compiler()}"


def compiler() -> str:
    """Return the C compiler's command: the variable CC, or gcc."""
    return process_environment().get("CC") or "gcc"


def _tolerances(graph: CapturedGraph, vectors: Vectors | None) -> tuple[list[float], float]:
    """Return the absolute tolerance of each output, 0 for integers, and the relative one."""
    absolute = vectors.absolute if vectors is not None else 1e-5
    relative = vectors.relative if vectors is not None else 1e-5
    return [absolute if ref.aval.dtype.kind == "f" else 0.0 for ref in graph.outputs], relative


def _described(array: np.ndarray) -> bytes:
    """Return the type, rank and sizes of an array, and its bytes."""
    if array.dtype.name not in CTYPES:
        raise errors.DTypeError(f"C programs take no {array.dtype}; they have {', '.join(CTYPES)}.")
    if not array.dtype.isnative:
        raise errors.DTypeError(
            f"C programs take arrays in this machine's byte order, not {array.dtype}. Pass "
            f"array.astype({array.dtype.name!r})."
        )
    head = np.array([list(CTYPES).index(array.dtype.name), array.ndim, *array.shape], np.int64)
    return head.tobytes() + np.ascontiguousarray(array).tobytes()


def _call(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    if done.returncode:
        raise errors.BundleError(
            f"{Path(command[0]).name} failed with code {done.returncode}: "
            f"{(done.stderr or done.stdout).strip()[-2000:]}"
        )
    return done.stdout


def _outputs(report: str, data: bytes, runs: int) -> list[list[np.ndarray]]:
    """Return the arrays in ``data``; ``report`` has a line for dtype and shape of each output of each run."""
    lines = [line.split() for line in report.splitlines()]
    count = len(lines) // max(runs, 1)
    results: list[list[np.ndarray]] = []
    start = 0
    for run in range(runs):
        arrays = []
        for name, *sizes in lines[run * count : (run + 1) * count]:
            dtype, shape = np.dtype(name), tuple(map(int, sizes))
            elements = math.prod(shape)
            arrays.append(np.frombuffer(data, dtype, elements, start).reshape(shape).copy())
            start += elements * dtype.itemsize
        results.append(arrays)
    return results
