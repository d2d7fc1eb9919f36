"""``StableHloTarget``: a folder with ``model.mlir``, its portable bytecode, weights, and how to run them.

Writing needs no package; with jaxlib, the module is checked and ``model.mlirbc`` written too. ``run`` uses
jax, by ``jax.export``.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tenon
from tenon.extend import CapturedGraph, Target, Vectors, errors, wrap
from tenon_target_stablehlo.lowering import in_stablehlo_ops, ops_in_stablehlo
from tenon_target_stablehlo.module import VERSION, Module, make
from tenon_target_stablehlo.packages import portable, reason

TEXT, CODE, DESCRIPTION, WEIGHTS = "model.mlir", "model.mlirbc", "model.json", "weights.safetensors"
RUNNER, NOTE = "model_jax.py", "README.md"
_TEMPLATES = Path(__file__).parent / "templates"


class StableHloTarget(Target):
    """Writes one function of StableHLO, for inference and for training steps."""

    name = "stablehlo"
    ops = ops_in_stablehlo()
    dynamic = True
    size_guards = True

    def lowered(self, graph: CapturedGraph) -> CapturedGraph:
        """Return ``graph`` in calls that have a form; LoweringError names all that have none."""
        self.accept(graph)
        return in_stablehlo_ops(graph)

    def write(self, graph: CapturedGraph, vectors: Vectors | None, folder: Path) -> None:
        """Write the module of ``graph`` into ``folder``."""
        module = make(graph)
        code = portable(module.text)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TEXT).write_text(module.text, "utf-8")
        if code is not None:
            (folder / CODE).write_bytes(code)
        (folder / DESCRIPTION).write_text(module.description(), "utf-8")
        tensors = {
            name: wrap(np.array(array, order="C"), device="cpu") for name, array in module.arrays.items()
        }
        tenon.save(tensors, folder / WEIGHTS)
        for name in (RUNNER, NOTE):
            text = (_TEMPLATES / name).read_text("utf-8")
            (folder / name).write_text(text.replace("@version@", VERSION), "utf-8")

    def run(self, folder: Path, runs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the module in ``folder`` with jax on its default device; return the outputs of each run."""
        missing = reason()
        if missing is not None:
            raise errors.UnsupportedError(missing)
        folder = Path(folder)
        artifact = None
        if not (folder / CODE).exists():
            artifact = portable((folder / TEXT).read_text("utf-8"))
        runner = importlib.import_module("tenon_target_stablehlo.templates.model_jax")
        model = runner.Model(folder, artifact)
        results = []
        for arrays in runs:
            try:
                model.check(tuple(arrays))
            except TypeError as error:
                raise errors.DTypeError(str(error)) from error
            except ValueError as error:
                raise errors.ShapeError(str(error)) from error
            results.append([np.asarray(out) for out in model.outputs(*arrays)])
        return results

    def unavailable(self) -> str | None:
        """Return a message if jax is not installed, else None."""
        return reason()


def module_of(graph: CapturedGraph) -> Module:
    """Return the module of a captured graph, without writing files."""
    return make(StableHloTarget().lowered(graph))
