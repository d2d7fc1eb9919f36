"""``OnnxProgram``: an ONNX model in memory, with the interface of PyTorch's ``ONNXProgram``."""

from __future__ import annotations

import functools
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tenon.extend import CapturedGraph, Nested, Vectors, errors, wrap
from tenon_target_onnx.lowering import check, in_onnx_ops
from tenon_target_onnx.model import LARGEST, OPSET, Model, Options, bytes_of, make, write
from tenon_target_onnx.running import run_session, session_of

if TYPE_CHECKING:
    from onnx import ModelProto


class OnnxProgram:
    """The result of ``tenon.onnx.export``: ``save`` writes the model, a call runs it with onnxruntime."""

    def __init__(self, graph: CapturedGraph, model: Model) -> None:
        #: The captured graph, before it was lowered.
        self.captured = graph
        self._model = model

    @functools.cached_property
    def model_proto(self) -> ModelProto:
        """The model as a message of protobuf, with its weights; only for models below 2 GB."""
        from onnx import ModelProto

        return ModelProto.FromString(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of the file; ArgumentError for weights of 2 GB and more."""
        if self._model.nbytes > LARGEST:
            raise errors.ArgumentError(
                f"weights of {self._model.nbytes:,} bytes do not fit into one file of ONNX. Give the name "
                "of a file: they then go to one next to it."
            )
        return bytes_of(self._model)

    def save(
        self, destination: str | os.PathLike[str] | BinaryIO, *, external_data: bool | None = None
    ) -> None:
        """Write the model to a file; with ``external_data`` its weights to a file next to it.

        Weights of 2 GB and more always are, even with False: no model file can hold them.
        """
        if isinstance(destination, io.IOBase) or hasattr(destination, "write"):
            destination.write(self.to_bytes())
            return
        write(self._model, Path(destination), 0 if external_data else LARGEST)

    def __call__(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Run the model with onnxruntime on the function's arguments; return what the function returns."""
        signature = self.captured.signature
        arrays = [np.asarray(leaf) for leaf in signature.flatten(args, kwargs)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            self.save(path)
            outputs = run_session(session_of(path, threads=0), arrays)
        return signature.unflatten([wrap(array, device="cpu") for array in outputs])

    def verify(self, vectors: Vectors) -> None:
        """Raise BundleError unless onnxruntime computes the outputs of ``vectors`` within the tolerance."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            self.save(path)
            session = session_of(path)
            excess = vectors.excess([run_session(session, run.inputs) for run in vectors.runs])
        if excess > 1:
            raise errors.BundleError(
                f"onnxruntime computes other outputs than the model: off by {excess:.3g} times the tolerance "
                f"of {vectors.absolute:.3g} + {vectors.relative:.3g} * |output|."
            )


def program(
    graph: CapturedGraph,
    *,
    opset: int | None = None,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    parameters: bool = True,
    metadata: Mapping[str, str] | None = None,
) -> OnnxProgram:
    """Return the ONNX model of a captured graph; ArgumentError for more names than inputs or outputs."""
    for what, names, count in (
        ("input_names", input_names, len(graph.arguments)),
        ("output_names", output_names, len(graph.outputs)),
    ):
        if len(names) > count:
            raise errors.ArgumentError(
                f"{what} has {len(names)} names, but the model has {count}: {list(names)}."
            )
        if len(set(names)) < len(names):
            raise errors.ArgumentError(f"{what} has a name twice: {list(names)}.")
    options = Options(
        opset=OPSET if opset is None else opset, input_names=tuple(input_names),
        output_names=tuple(output_names), parameters=parameters, metadata=dict(metadata or {}),
    )  # fmt: skip
    check(graph)
    return OnnxProgram(graph, make(in_onnx_ops(graph, options.opset), options))
