"""The template of every runner: read weights, check inputs, store state, run test vectors."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

#: Name of an input -> its dtype and sizes; a size that is a name may vary, and is equal wherever it occurs.
INPUTS: dict[str, tuple[str, tuple[int | str, ...]]] = {}
#: Name of a variable size -> its minimum and maximum; None: no limit.
SIZES: dict[str, tuple[int, int | None]] = {}
#: Name of a weight -> its dtype and shape.
STATE: dict[str, tuple[str, tuple[int, ...]]] = {}
#: Numbers that each run reads: the value in the first run, and the increment of each run.
NUMBERS: dict[str, tuple[float, float]] = {}
#: The tolerance of outputs: absolute + relative * |output|.
TOLERANCE = (1e-5, 1e-5)
FOLDER = Path(__file__).resolve().parent

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32", "F64": "float64",
}  # fmt: skip


def compute(
    state: Mapping[str, np.ndarray], numbers: Mapping[str, float], *inputs: np.ndarray
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Return the outputs, and the new values of the state that the run writes."""
    raise NotImplementedError("the written runner has the model here")


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object; ValueError if a key occurs twice."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def read_tensors(path: str | Path) -> dict[str, np.ndarray]:
    """Read a safetensors file; ValueError describes what is invalid."""
    path = Path(path)
    data = path.read_bytes()
    if len(data) < 8:
        raise ValueError(f"{path} is not a safetensors file: it has {len(data)} bytes.")
    (size,) = struct.unpack("<Q", data[:8])
    if size > min(len(data) - 8, 100_000_000):
        raise ValueError(f"{path}: the header of {size} bytes does not fit the file of {len(data)}.")
    try:
        header = json.loads(data[8 : 8 + size].decode("utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the header is not JSON: {error}.") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: the header is not a JSON object.")
    header.pop("__metadata__", None)
    result, position = {}, 0
    try:
        entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    except (TypeError, KeyError, IndexError):
        raise ValueError(f"{path}: a tensor has no data_offsets.") from None
    for name, entry in entries:
        dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise ValueError(f"{path}: {name} has dtype {dtype!r}; known are {', '.join(_DTYPES)}.")
        for numbers in (shape, offsets):
            if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
                raise ValueError(f"{path}: {name} has shape {shape!r} and data_offsets {offsets!r}.")
        kind = np.dtype(_DTYPES[dtype]).newbyteorder("<")
        length = math.prod(shape) * kind.itemsize
        if offsets != [position, position + length] or 8 + size + position + length > len(data):
            raise ValueError(
                f"{path}: {name}, {dtype} {shape}, takes {length} bytes from {position} on, but lies at "
                f"{offsets} of {len(data) - 8 - size} bytes."
            )
        array = np.frombuffer(data, kind, math.prod(shape), 8 + size + position).reshape(shape)
        result[name] = array.astype(kind.newbyteorder("="))
        position += length
    if 8 + size + position != len(data):
        raise ValueError(f"{path}: {len(data) - 8 - size - position} bytes belong to no tensor.")
    return result


def write_tensors(path: str | Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a safetensors file."""
    names = {numpy: name for name, numpy in _DTYPES.items()}
    header, position = {}, 0
    for name, array in tensors.items():
        if array.dtype.name not in names:
            raise TypeError(f"{name} has dtype {array.dtype}; files have {', '.join(names)}.")
        end = position + array.nbytes
        header[name] = {
            "dtype": names[array.dtype.name], "shape": list(array.shape), "data_offsets": [position, end]
        }  # fmt: skip
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())


def checked_inputs(inputs: Sequence[object], named: Mapping[str, object]) -> list[np.ndarray]:
    """Return the inputs in order, as arrays; TypeError or ValueError unless they are those of INPUTS."""
    names = list(INPUTS)
    if len(inputs) > len(names):
        raise TypeError(f"{len(inputs)} inputs were given; there are {len(names)}: {', '.join(names)}.")
    given = dict(zip(names, inputs, strict=False))
    for name, value in named.items():
        if name not in INPUTS:
            raise TypeError(f"the model has no input {name!r}; it has {', '.join(names)}.")
        if name in given:
            raise TypeError(f"the input {name!r} is given twice.")
        given[name] = value
    sizes: dict[str, tuple[int, str]] = {}
    result = []
    for name, (dtype, shape) in INPUTS.items():
        if name not in given:
            raise TypeError(f"the input {name!r}, {dtype} {list(shape)}, is missing.")
        array = np.asarray(given[name])
        if array.dtype != dtype:
            raise TypeError(f"the input {name!r} has dtype {array.dtype}; it must have {dtype}.")
        if array.ndim != len(shape):
            raise ValueError(
                f"the input {name!r} has {array.ndim} dimensions, shape {list(array.shape)}; it must have "
                f"{len(shape)}, {list(shape)}."
            )
        for axis, (own, size) in enumerate(zip(array.shape, shape, strict=True)):
            expected, why = (size, "") if isinstance(size, int) else sizes.setdefault(size, (own, name))
            if own != expected:
                note = f", as {size!r} has in {why!r}" if why else ""
                raise ValueError(
                    f"dimension {axis} of the input {name!r} has size {own}; it must have {expected}{note}."
                )
        result.append(array)
    for name, (size, owner) in sizes.items():
        least, most = SIZES.get(name, (0, None))
        if size < least or (most is not None and size > most):
            limits = f"at least {least}" if most is None else f"{least} to {most}"
            raise ValueError(f"{name} = {size}, of the input {owner!r}, is out of range: it may be {limits}.")
    return result


def check_decision(answer: object, captured: object, where: str) -> None:
    """Raise ValueError unless a condition of the model's code has the result of the capture."""
    if answer != captured:
        raise ValueError(f"{where} decided by {captured!r} when it was captured; now it is {answer!r}.")


class Runner:
    """The model and its weights, which a training step updates."""

    def __init__(self, weights: str | Path = FOLDER / "weights.safetensors") -> None:
        #: Weights, and other state that a run reads and writes, by name.
        self.state = read_tensors(weights)
        for name, (dtype, shape) in STATE.items():
            array = self.state.get(name)
            if array is None:
                raise ValueError(f"{weights} lacks {name}, {dtype} {list(shape)}.")
            if array.dtype != dtype or array.shape != shape:
                actual = f"{array.dtype} {list(array.shape)}"
                raise ValueError(f"{weights}: {name} is {actual}; it must be {dtype} {list(shape)}.")
        #: Numbers that the next run reads, such as learning rates.
        self.numbers = {name: value for name, (value, _) in NUMBERS.items()}

    def outputs(self, *inputs: object, **named: object) -> list[np.ndarray]:
        """Run once; return all outputs, and store the new state."""
        arrays = checked_inputs(inputs, named)
        with np.errstate(all="ignore"):
            outputs, writes = compute(self.state, self.numbers, *arrays)
        outputs = [np.array(out) for out in outputs]
        self.state.update((name, np.array(value)) for name, value in writes.items())
        for name, (_, increment) in NUMBERS.items():
            self.numbers[name] += increment
        return outputs

    def run(self, *inputs: object, **named: object) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run once; return the output, or a tuple of several."""
        outputs = self.outputs(*inputs, **named)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def save(self, path: str | Path) -> None:
        """Write the current weights and state; ``Runner(path)`` continues with them."""
        write_tensors(path, self.state)


_RUNNER: list[Runner] = []


def run(*inputs: object, **named: object) -> np.ndarray | tuple[np.ndarray, ...]:
    """Run the model once, with one runner for all calls; return the output, or a tuple of several."""
    if not _RUNNER:
        _RUNNER.append(Runner())
    return _RUNNER[0].run(*inputs, **named)


def each_run(vectors: Mapping[str, np.ndarray]) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Return the inputs and outputs of each run in a file of vectors: ``0.inputs.0``, ``0.outputs.0``."""
    result: list[tuple[list[np.ndarray], list[np.ndarray]]] = []
    while f"{len(result)}.inputs.0" in vectors or f"{len(result)}.outputs.0" in vectors:
        sides: list[list[np.ndarray]] = []
        for side in ("inputs", "outputs"):
            arrays: list[np.ndarray] = []
            while (name := f"{len(result)}.{side}.{len(arrays)}") in vectors:
                arrays.append(vectors[name])
            sides.append(arrays)
        result.append((sides[0], sides[1]))
    return result


def difference(own: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Return the largest difference of two arrays, and that in units of the tolerance."""
    if own.shape != right.shape or own.dtype != right.dtype:
        return math.inf, math.inf
    if own.dtype.kind != "f":
        return (0.0, 0.0) if np.array_equal(own, right) else (math.inf, math.inf)
    a, b = own.astype(np.float64), right.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(a - b))
    off = np.where(np.isnan(off), np.inf, off)
    units = off / (TOLERANCE[0] + TOLERANCE[1] * np.where(np.isfinite(b), np.abs(b), 0))
    return float(off.max(initial=0)), float(units.max(initial=0))


def main(arguments: list[str]) -> int:
    """Run the test vectors of a file, and print the largest differences or write the outputs to another
    file."""
    path = Path(arguments[0]) if arguments else FOLDER / "vectors.safetensors"
    if not path.exists():
        print(f"{path} does not exist. Give a file of test vectors: python runner.py VECTORS [OUTPUTS]")
        return 2
    runner, written, worst = Runner(), {}, 0.0
    for number, (inputs, right) in enumerate(each_run(read_tensors(path))):
        outputs = runner.outputs(*inputs)
        if len(arguments) > 1:
            written.update({f"{number}.outputs.{i}": out for i, out in enumerate(outputs)})
            continue
        if len(outputs) != len(right):
            print(f"run {number}: {len(outputs)} outputs, but the vectors have {len(right)}")
            worst = math.inf
        for i, (own, expected) in enumerate(zip(outputs, right, strict=False)):
            off, units = difference(own, expected)
            worst = max(worst, units)
            print(f"run {number}, output {i}: max difference {off:.3g}, {units:.3g} of the tolerance")
    if len(arguments) > 1:
        write_tensors(arguments[1], written)
    print("failed" if worst > 1 else "passed" if len(arguments) < 2 else f"wrote {arguments[1]}")
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
