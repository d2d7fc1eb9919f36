"""Run models with onnxruntime, on arrays that are checked first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenon.extend import errors
from tenon_target_onnx.packages import runtime
from tenon_target_onnx.sizes import RANGE, in_range


def session_of(path: Path, threads: int = 1) -> Any:  # an InferenceSession
    """Return onnxruntime's session of a model, with exact sums of 8-bit integers on every processor."""
    package = runtime()
    options = package.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return package.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no public common class
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
        if array.dtype.name != dtype or not array.dtype.isnative:  # onnxruntime does not swap bytes
            raise errors.DTypeError(
                f"input {info.name!r} has dtype {array.dtype}, but the model takes {dtype}."
            )
        fits = len(info.shape) == array.ndim and all(
            not isinstance(size, int) or size == actual
            for size, actual in zip(info.shape, array.shape, strict=True)
        )
        if not fits:
            raise errors.ShapeError(
                f"input {info.name!r} has shape {list(array.shape)}, but the model takes {info.shape}."
            )
    _check_sizes(session, arrays)
    inputs_by_name = {
        info.name: np.ascontiguousarray(a).reshape(a.shape) for info, a in zip(inputs, arrays, strict=True)
    }
    try:
        return [np.asarray(output) for output in session.run(None, inputs_by_name)]
    except Exception as error:  # as in session_of
        raise errors.BundleError(f"onnxruntime cannot run the model: {error}") from error


def _check_sizes(session: Any, arrays: Sequence[np.ndarray]) -> None:  # an InferenceSession
    """Raise ShapeError if sizes of one name differ, or are out of the range in the model's metadata.

    onnxruntime does not compare them: it would repeat a size of 1, and cut slices short.
    """
    ranges = session.get_modelmeta().custom_metadata_map
    read: dict[str, tuple[int, str]] = {}
    for info, array in zip(session.get_inputs(), arrays, strict=True):
        for axis, (name, actual) in enumerate(zip(info.shape, array.shape, strict=True)):
            if not isinstance(name, str):
                continue
            place = f"dimension {axis} of input {info.name!r}"
            expected, where = read.setdefault(name, (actual, place))
            if actual != expected:
                raise errors.ShapeError(
                    f"{place} is {actual}, but {name} = {expected} in {where}. Both have to be the same."
                )
    for name, (actual, place) in read.items():
        if not in_range(actual, ranges.get(RANGE + name)):
            raise errors.ShapeError(
                f"{name} = {actual}, {place}, is out of range: it may be {ranges[RANGE + name]}."
            )


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
