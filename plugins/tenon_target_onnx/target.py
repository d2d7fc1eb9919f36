"""``OnnxTarget``: models as ``model.onnx``, with weights beside it if they are larger than 2 GB.

``run`` uses onnxruntime. Training steps are not written: ONNX has no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenon.extend import CapturedGraph, Target, Vectors, errors
from tenon_target_onnx.lowering import in_onnx_ops, ops_in_onnx
from tenon_target_onnx.model import Model, Options, make, write
from tenon_target_onnx.packages import onnx_package, runtime

FILE = "model.onnx"


class OnnxTarget(Target):
    """Writes ``model.onnx``: readable names, an opset of choice, quantized models as QDQ."""

    name = "onnx"
    ops = ops_in_onnx()

    def __init__(self, options: Options | None = None) -> None:
        self.options = options if options is not None else Options()

    def lowered(self, graph: CapturedGraph) -> CapturedGraph:
        """Return ``graph`` in calls that have a form in ONNX; LoweringError names all that have none."""
        self.check(graph)
        return in_onnx_ops(graph, self.options.opset)

    def check(self, graph: CapturedGraph) -> None:
        """Raise LoweringError for what ONNX models do not have: state that a run writes, and guards."""
        if graph.writes:
            names = ", ".join(write.target.label or "a tensor" for write in graph.writes[:3])
            more = f" and {len(graph.writes) - 3} more" if len(graph.writes) > 3 else ""
            raise errors.LoweringError(
                f"the target onnx writes no state, but a run of this graph changes {names}{more}. Capture "
                "the model after model.eval(); for training steps export to the target c."
            )
        if graph.guards:
            places = ", ".join(dict.fromkeys(g.where or "an unknown place" for g in graph.guards))
            raise errors.LoweringError(
                f"the target onnx checks no guards; Python decided by values at {places}. Compute with "
                "where()."
            )
        onnx_package()

    def model(self, graph: CapturedGraph) -> Model:
        """Return the model of ``graph``, which is in the ops of this target."""
        return make(graph, self.options)

    def write(self, graph: CapturedGraph, vectors: Vectors | None, folder: Path) -> None:
        """Write the model of ``graph`` into ``folder``."""
        write(self.model(graph), folder / FILE, self.options.largest)

    def run(self, folder: Path, runs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the model in ``folder`` with onnxruntime on one thread, and return the outputs of each run."""
        session = session_of(folder / FILE)
        return [run_session(session, arrays) for arrays in runs]

    def unavailable(self) -> str | None:
        """Return which package is missing, or None."""
        try:
            onnx_package()
            runtime()
        except errors.UnsupportedError as error:
            return str(error)
        return None


def session_of(path: Path, threads: int = 1) -> Any:  # an InferenceSession
    """Return onnxruntime's session of a model, with exact sums of 8-bit integers on every processor."""
    package = runtime()
    options = package.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return package.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common class that it makes public
        raise errors.BundleError(f"onnxruntime does not load {path.name}: {error}") from error


def run_session(session: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:  # an InferenceSession
    """Run a model once, on arrays of the right number, dtype and shape."""
    inputs = session.get_inputs()
    if len(inputs) != len(arrays):
        raise errors.ArgumentError(
            f"{len(arrays)} arrays were given for the inputs {', '.join(i.name for i in inputs)}."
        )
    for info, array in zip(inputs, arrays, strict=True):
        dtype = _DTYPES.get(info.type.removeprefix("tensor(").removesuffix(")"))
        if array.dtype.name != dtype:
            raise errors.DTypeError(
                f"input {info.name!r} has dtype {array.dtype}, but the model takes {dtype}."
            )
        fits = len(info.shape) == array.ndim and all(
            not isinstance(size, int) or size == given
            for size, given in zip(info.shape, array.shape, strict=True)
        )
        if not fits:
            raise errors.ShapeError(
                f"input {info.name!r} has shape {list(array.shape)}, but the model takes {info.shape}."
            )
    given = {
        info.name: np.ascontiguousarray(a).reshape(a.shape) for info, a in zip(inputs, arrays, strict=True)
    }
    try:
        return [np.asarray(output) for output in session.run(None, given)]
    except Exception as error:  # as in session_of
        raise errors.BundleError(f"onnxruntime cannot run the model: {error}") from error


_DTYPES = {"float": "float32", "double": "float64"} | {
    name: name
    for name in (
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint64",
        "uint32",
        "uint16",
        "uint8",
        "bool",
    )
}
