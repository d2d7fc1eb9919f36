"""``Builder``: collects the nodes and initializers of an ONNX graph, with descriptive names.

Forms of ops call it; it does not need the package ``onnx``. Next: ``model.py`` writes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.extend import Node, Ref, errors
from tenon_target_onnx.sizes import Size, computed, is_number

#: The dtypes of ONNX by name, 16-bit floats included.
DTYPES = frozenset({
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32",
    "uint16", "uint8", "bool",
})  # fmt: skip
INT64 = np.dtype(np.int64)
FLOAT32 = np.dtype(np.float32)
BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class Step:
    """One ONNX node: its operator, the names of its inputs and outputs, its attributes and its origin."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]  # numbers, texts and lists of them
    #: The captured op, its module's path and its source line.
    origin: tuple[str, str, str]


class Builder:
    """Collects nodes and initializers, and the ONNX name of each value of the captured graph."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.steps: list[Step] = []
        self.initializers: dict[str, np.ndarray] = {}
        #: The ONNX name of a captured value.
        self.names: dict[Ref, str] = {}
        #: Symbol -> the name of an input and the axis that has this size.
        self.symbols: dict[str, tuple[str, int]] = {}
        #: The symbols that are never 0.
        self.positive: frozenset[str] = frozenset()
        self._used: dict[str, int] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._sizes: dict[str, str] = {}
        self._node: Node | None = None

    # --- names ---

    def unique(self, stem: str) -> str:
        """Return ``stem``, with a number appended if the name is taken."""
        count = self._used.get(stem, 0)
        self._used[stem] = count + 1
        if not count:
            return stem
        return self.unique(f"{stem}_{count}")

    def begin(self, node: Node) -> None:
        """Set the call to which the next nodes belong."""
        self._node = node

    def define(self, node: Node, *names: str) -> None:
        """Set the names of the outputs of ``node``."""
        for index, name in enumerate(names):
            self.names[node.out(index)] = name

    # --- constants ---

    def initializer(self, array: np.ndarray, name: str) -> str:
        """Add a named array: a parameter, a buffer or a constant of the captured graph."""
        name = self.unique(name)
        self.initializers[name] = array
        return name

    def constant(self, value: Any, dtype: np.dtype) -> str:  # a number or nested lists
        """Return an array as a value; equal arrays are stored once."""
        array = np.array(value, order="C")
        array = array if array.dtype == dtype else array.astype(dtype)
        key = (dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.initializer(array, "constant")
        return self._constants[key]

    def ints(self, values: Sequence[int]) -> str:
        """Return a vector of int64."""
        return self.constant(np.array([int(v) for v in values], np.int64), INT64)

    def known(self, name: str) -> np.ndarray | None:
        """Return the array of an initializer, or None."""
        return self.initializers.get(name)

    # --- nodes ---

    def call(self, operator: str, *inputs: str, **attributes: Any) -> str:  # numbers, texts, lists
        """Add a node with one output; return its name."""
        return self.calls(operator, inputs, 1, **attributes)[0]

    def calls(
        self,
        operator: str,
        inputs: Sequence[str],
        count: int,
        **attributes: Any,  # numbers, texts, lists
    ) -> tuple[str, ...]:
        """Add a node with ``count`` outputs; return their names."""
        node = self._node
        module = node.module if node is not None else ""
        name = self.unique(f"{module}/{operator}" if module else operator)
        outputs = tuple(self.unique(f"{name}:{i}" if i else name + ":0") for i in range(count))
        origin = (node.name, module, node.where) if node is not None else ("", "", "")
        attributes = {key: value for key, value in attributes.items() if value is not None}
        self.steps.append(Step(operator, name, tuple(inputs), outputs, attributes, origin))
        return outputs

    # --- values of the captured graph ---

    def value(self, argument: Any, dtype: np.dtype | None = None) -> str:  # any argument of a call
        """Return the name of an argument: a captured value or a number, cast to ``dtype``."""
        if argument.__class__ is Ref:
            name = self.names[argument]
            own = argument.aval.dtype
            return name if dtype is None or own == dtype else self.cast(name, dtype)
        if hasattr(argument, "symbols"):
            number = self.squeezed(self.size(argument), [0])
            return number if dtype is None or dtype == INT64 else self.cast(number, dtype)
        if not isinstance(argument, int | float | bool | np.generic):
            raise errors.LoweringError(f"the target onnx cannot write the argument {argument!r}.")
        return self.constant(argument, dtype if dtype is not None else np.asarray(argument).dtype)

    def cast(self, name: str, dtype: np.dtype) -> str:
        """Return a value in another dtype."""
        return self.call("Cast", name, to=dtype)

    # --- shapes ---

    def shape(self, sizes: Sequence[Size]) -> str:
        """Return a vector of sizes, which may depend on those of the inputs."""
        if all(is_number(s) for s in sizes):
            return self.ints([int(s) for s in sizes])
        parts = [self.ints([int(s)]) if is_number(s) else self.size(s) for s in sizes]
        return parts[0] if len(parts) == 1 else self.call("Concat", *parts, axis=0)

    def size(self, size: Size) -> str:
        """Return a symbolic size as a vector of one int64."""
        key = str(size)
        if key not in self._sizes:
            self._sizes[key] = computed(self, size)
        return self._sizes[key]

    def may_be_zero(self, size: Size) -> bool:
        """Whether some run may have this size 0, as far as is known."""
        return int(size) == 0 if is_number(size) else str(size) not in self.positive

    def reshape(self, name: str, sizes: Sequence[Size]) -> str:
        """Return a value in another shape."""
        symbolic = [s for s in sizes if not is_number(s)]
        zero = any(is_number(s) and int(s) == 0 for s in sizes)
        if len(symbolic) == 1 and not zero:
            shape = self.ints([int(s) if is_number(s) else -1 for s in sizes])
        else:
            shape = self.shape(sizes)
        return self.call("Reshape", name, shape, allowzero=1 if zero else None)

    def unsqueezed(self, name: str, axes: Sequence[int]) -> str:
        """Return a value with axes of size 1 added."""
        return self.call("Unsqueeze", name, self.ints(axes)) if axes else name

    def squeezed(self, name: str, axes: Sequence[int]) -> str:
        """Return a value without axes of size 1."""
        return self.call("Squeeze", name, self.ints(axes)) if axes else name

    def permuted(self, name: str, order: Sequence[int]) -> str:
        """Return a value with its axes permuted."""
        return name if list(order) == sorted(order) else self.call("Transpose", name, perm=list(order))

    def sliced(self, name: str, parts: Sequence[tuple[int, Size | None, Size | None, int]]) -> str:
        """Return a part of a value; ``parts`` has axis, start, stop and step, None for the end."""
        if not parts:
            return name
        end = np.iinfo(np.int64)
        starts: list[Size] = []
        stops: list[Size] = []
        for _, start, stop, step in parts:
            starts.append(start if start is not None else 0 if step > 0 else -1)
            stops.append(stop if stop is not None else end.max if step > 0 else end.min)
        axes, steps = [p[0] for p in parts], [p[3] for p in parts]
        return self.call(
            "Slice", name, self.shape(starts), self.shape(stops), self.ints(axes), self.ints(steps)
        )
