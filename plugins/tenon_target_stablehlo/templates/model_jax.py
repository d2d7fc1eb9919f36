"""Run the model beside this file with jax, on any device that jax has.

``model = Model()`` reads model.mlirbc, model.json and weights.safetensors; ``model(x)`` runs it.
``model.function`` is its ``main`` for programs of your own: a function of jax arrays in the order of
``model.arguments``, which can be jitted and sharded.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

FOLDER = Path(__file__).resolve().parent
_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32",
    "F64": "float64",
}  # fmt: skip
#: An argument or a result in model.json.
Row: TypeAlias = dict[str, Any]  # JSON
#: A number, or one of jax's sizes that may change.
Size: TypeAlias = Any  # jax has no public class
#: What a model takes: arrays of NumPy or jax.
Input: TypeAlias = Any  # anything with a dtype and a shape

_OPERATORS: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


def read_weights(path: str | Path) -> dict[str, np.ndarray]:
    """Read a safetensors file."""
    data = Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    weights = {}
    for name, entry in header.items():
        dtype, count = jnp.dtype(_DTYPES[entry["dtype"]]), math.prod(entry["shape"])
        first = start + entry["data_offsets"][0]
        weights[name] = np.frombuffer(data, dtype, count, first).reshape(entry["shape"])
    return weights


def evaluated(size: int | str, sizes: dict[str, Size]) -> Size:
    """Return a size: a number, or an expression of sizes that may change."""
    if isinstance(size, int):
        return size

    def value(node: ast.expr) -> Size:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return sizes[node.id]
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(f"a size is written {size!r}")

    return value(ast.parse(size, mode="eval").body)


class Model:
    """The model with its weights, which a training step updates."""

    def __init__(self, folder: str | Path = FOLDER, artifact: bytes | None = None) -> None:
        folder = Path(folder)
        described = json.loads((folder / "model.json").read_text("utf-8"))
        #: What ``main`` takes and returns, in order.
        self.arguments: list[Row] = described["arguments"]
        self.results: list[Row] = described["results"]
        self.sizes: dict[str, dict[str, int | None]] = described["sizes"]
        #: Comparisons of sizes by which the model's code branched, and their answers.
        self.size_guards: list[Row] = described.get("size_guards", [])
        #: Parameters, buffers and optimizer state, by name.
        self.state: dict[str, Input] = dict(read_weights(folder / "weights.safetensors"))
        #: Number inputs of the next run, such as learning rates.
        self.numbers = {a["name"]: a["value"] for a in self.arguments if a["role"] == "number"}
        if artifact is None:
            artifact = (folder / "model.mlirbc").read_bytes()
        with self.wide():
            self.exported = self._exported(artifact)
        self.function = jax.jit(self.exported.call)

    def wide(self) -> contextlib.AbstractContextManager[object]:
        """Let jax keep 64 bits, if an argument or result has as many; else jax would cut them to 32."""
        if not any("64" in each.get("dtype", "") for each in (*self.arguments, *self.results)):
            return contextlib.nullcontext()
        if hasattr(jax, "enable_x64"):
            return jax.enable_x64(True)
        from jax.experimental import enable_x64

        return enable_x64()

    def _exported(self, artifact: bytes) -> export.Exported:
        """Return the module with the shapes of its arguments and results, as jax.export has them.

        jax makes them of a function with the same types, whose own module is replaced.
        """
        scope = export.SymbolicScope()
        sizes = {}
        for name, limits in self.sizes.items():
            # jax's variables are 1 or more: of a size that may be 0, the variable is one more.
            text = name if limits["least"] else f"{name} - 1"
            (sizes[name],) = export.symbolic_shape(text, scope=scope)
        described = {a["name"]: a for a in self.arguments}

        def shaped(each: Row) -> jax.ShapeDtypeStruct:
            shape = tuple(evaluated(size, sizes) for size in each["shape"])
            return jax.ShapeDtypeStruct(shape, jnp.dtype(each["dtype"]))

        rows = [described[r["name"]] if r["role"] == "state" else r for r in self.results]
        results = [shaped(row) for row in rows]

        def alike(*arguments: jax.Array) -> list[jax.Array]:
            arguments_by_name = dict(zip(described, arguments, strict=True))
            known = {
                size: arguments_by_name[a["name"]].shape[axis]
                for a in self.arguments
                for axis, size in enumerate(a["shape"])
                if size in self.sizes
            }
            return [
                jnp.zeros(tuple(evaluated(size, known) for size in row["shape"]), result.dtype)
                for row, result in zip(rows, results, strict=True)
            ]

        exported = export.export(jax.jit(alike, keep_unused=True))(*map(shaped, self.arguments))
        return dataclasses.replace(exported, mlir_module_serialized=artifact)

    def check(self, inputs: tuple[Input, ...]) -> list[Input]:
        """Return the inputs; TypeError or ValueError unless they have the right dtypes and shapes."""
        expected = [a for a in self.arguments if a["role"] == "argument"]
        if len(inputs) != len(expected):
            names = ", ".join(a["name"] for a in expected)
            raise TypeError(f"{len(inputs)} inputs were given; the model takes {len(expected)}: {names}.")
        sizes: dict[str, int] = {}
        for a, given in zip(expected, inputs, strict=True):
            if not hasattr(given, "dtype"):
                raise TypeError(
                    f"input {a['name']!r} is a {type(given).__name__}; it must be an array of {a['dtype']} "
                    f"and shape {a['shape']}."
                )
            if str(given.dtype) != a["dtype"]:
                raise TypeError(f"input {a['name']!r} has dtype {given.dtype}; it must have {a['dtype']}.")
            fits = len(given.shape) == len(a["shape"]) and all(
                own == (sizes.setdefault(size, own) if size in self.sizes else size)
                for own, size in zip(given.shape, a["shape"], strict=True)
                if isinstance(size, int) or size in self.sizes
            )
            if not fits:
                known = f" with {sizes}" if sizes else ""
                raise ValueError(
                    f"input {a['name']!r} has shape {list(given.shape)}; it must have {a['shape']}{known}."
                )
        for a, given in zip(expected, inputs, strict=True):
            computed = [evaluated(size, dict(sizes)) for size in a["shape"]]
            if list(given.shape) != computed:
                raise ValueError(
                    f"input {a['name']!r} has shape {list(given.shape)}; it must have {a['shape']}, which is "
                    f"{computed} with {sizes}."
                )
        for guard in self.size_guards:
            left, right = evaluated(guard["left"], dict(sizes)), evaluated(guard["right"], dict(sizes))
            if getattr(operator, guard["question"])(left, right) is not guard["answer"]:
                raise ValueError(
                    f"{guard['where']} decided by {guard['condition']}, which was {guard['answer']} when it "
                    f"was captured and is not for {sizes}."
                )
        for name, size in sizes.items():
            least, most = self.sizes[name]["least"] or 0, self.sizes[name]["most"]
            if size < least or (most is not None and size > most):
                raise ValueError(f"{name} is {size}; it may be {least} to {most or 'any number'}.")
        return list(inputs)

    def outputs(self, *inputs: Input) -> list[jax.Array]:
        """Run once; return all outputs, and keep what the run writes."""
        given = iter(self.check(inputs))
        numbers = {name: np.float64(value) for name, value in self.numbers.items()}
        arguments = [
            next(given) if a["role"] == "argument" else {**self.state, **numbers}[a["name"]]
            for a in self.arguments
        ]
        with self.wide():
            results = self.function(*arguments)
        for result, value in zip(self.results, results, strict=True):
            if result["role"] == "state":
                self.state[result["name"]] = value
        for a in self.arguments:
            if a["role"] == "number":
                self.numbers[a["name"]] += a["increment"]
        return [v for result, v in zip(self.results, results, strict=True) if result["role"] == "output"]

    def __call__(self, *inputs: Input) -> jax.Array | tuple[jax.Array, ...]:
        """Run once; return the output, or a tuple of several."""
        outputs = self.outputs(*inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
