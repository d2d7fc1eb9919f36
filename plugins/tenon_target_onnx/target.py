"""``OnnxTarget``: models as ``model.onnx``, with weights next to it if they are larger than 2 GB.

``run`` uses onnxruntime. Training steps are not written: ONNX has no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tenon.extend import CapturedGraph, Target, Vectors, settings
from tenon_target_onnx.lowering import check, in_onnx_ops, ops_in_onnx
from tenon_target_onnx.model import Options, make, write
from tenon_target_onnx.packages import onnx_package, reason, runtime
from tenon_target_onnx.program import program
from tenon_target_onnx.running import run_session, session_of

FILE = "model.onnx"


class OnnxTarget(Target):
    """Writes ``model.onnx``: readable names, a selectable opset, quantized models as QDQ."""

    name = "onnx"
    ops = ops_in_onnx()
    dynamic = True
    size_guards = True

    def __init__(self, options: Options | None = None) -> None:
        if options is not None:
            settings.instance("OnnxTarget", "options", options, Options, "Options or None")
        self.options = options if options is not None else Options()

    def lowered(self, graph: CapturedGraph) -> CapturedGraph:
        """Return ``graph`` lowered to calls that have a form in ONNX; LoweringError lists the others."""
        self.check(graph)
        return in_onnx_ops(graph, self.options.opset)

    def check(self, graph: CapturedGraph) -> None:
        """Raise LoweringError for features that ONNX models lack: state that a run writes, and guards.

        ArgumentError for an opset that is not written.
        """
        check(graph)
        onnx_package()

    def write(self, graph: CapturedGraph, vectors: Vectors | None, folder: Path) -> None:
        """Write the model of ``graph`` into ``folder``."""
        write(make(graph, self.options), folder / FILE, self.options.largest)

    def run(self, folder: Path, runs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the model in ``folder`` with onnxruntime on one thread, and return the outputs of each run."""
        session = session_of(folder / FILE)
        return [run_session(session, arrays) for arrays in runs]

    def unavailable(self) -> str | None:
        """Return which package is missing, or None."""
        return reason(onnx_package, runtime)

    @staticmethod
    def missing() -> str | None:
        """Return why no model can be written in this environment, or None; ``torch.onnx.export`` calls it."""
        return reason(onnx_package)

    #: ``program(graph, opset=..., input_names=..., ...)`` creates the result of ``torch.onnx.export``.
    program = staticmethod(program)
