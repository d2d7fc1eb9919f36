"""``Builder``: collects the lines of a StableHLO function, and knows the name and type of each value.

Forms of ops call it. It writes text and needs no package. Operations that take sizes have a dynamic variant
for symbolic sizes, which are read from an argument's shape. Next: ``module.py`` makes the file of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.extend import Node, Ref, errors
from tenon_target_stablehlo.sizes import Size, are_numbers, is_number
from tenon_target_stablehlo.texts import (
    ELEMENTS,
    array_text,
    list_text,
    number_text,
    string_text,
    type_text,
)

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
BOOL = np.dtype(np.bool_)
#: Larger boolean constants are written as bytes.
_FEW = 16


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the function."""

    name: str
    dtype: np.dtype
    shape: tuple[Size, ...]

    @property
    def type(self) -> str:
        """Its type as text."""
        return type_text(self.dtype, self.shape)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


class Builder:
    """The lines so far, and the value of each result of the captured graph."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        #: The values of captured results and arguments.
        self.values: dict[Ref, Value] = {}
        #: The argument and its axis that have the size of a symbol.
        self.symbols: dict[str, tuple[Value, int]] = {}
        #: Texts of locations, each with a name of its own.
        self.locations: dict[str, str] = {}
        self._count = 0
        self._constants: dict[tuple[str, str], Value] = {}
        self._sizes: dict[str, Value] = {}
        self._location = self._place = ""

    # --- lines ---

    def begin(self, node: Node) -> None:
        """Set the call to which the next lines belong."""
        place = " at ".join(filter(None, (node.module, node.where))) or node.name
        if place != self._place:
            self.lines.append(f"// {place}")
            self._place = place
        title = string_text(f"{node.module}/{node.name}" if node.module else node.name)
        file, _, line = node.where.rpartition(":")
        text = f"loc({title}({string_text(file)}:{line}:1))" if line.isdigit() and file else f"loc({title})"
        self._location = self.locations.setdefault(text, f"#l{len(self.locations)}")

    def define(self, node: Node, *values: Value) -> None:
        """Set the values of the outputs of ``node``."""
        for index, value in enumerate(values):
            self.values[node.out(index)] = value

    def fresh(self) -> str:
        """Return an unused name."""
        self._count += 1
        return f"%{self._count - 1}"

    def write(self, text: str, dtype: np.dtype, shape: Sequence[Size]) -> Value:
        """Add an operation with one result, given as text; return the result."""
        (result,) = self.write_all(text, [(dtype, shape)])
        return result

    def write_all(self, text: str, results: Sequence[tuple[np.dtype, Sequence[Size]]]) -> tuple[Value, ...]:
        """Add an operation with several results."""
        name = self.fresh()
        where = f" loc({self._location})" if self._location else ""
        if len(results) == 1:
            self.lines.append(f"{name} = {text}{where}")
            return (Value(name, results[0][0], tuple(results[0][1])),)
        self.lines.append(f"{name}:{len(results)} = {text}{where}")
        return tuple(Value(f"{name}#{i}", d, tuple(s)) for i, (d, s) in enumerate(results))

    def call(
        self,
        operation: str,
        *operands: Value,
        dtype: np.dtype,
        shape: Sequence[Size],
        attributes: str = "",
    ) -> Value:
        """Add ``stablehlo.operation operands, attributes : (types) -> type``."""
        names = ", ".join(o.name for o in operands)
        types = ", ".join(o.type for o in operands)
        more = f", {attributes}" if attributes else ""
        target = type_text(dtype, shape)
        return self.write(f"stablehlo.{operation} {names}{more} : ({types}) -> {target}", dtype, shape)

    def generic(
        self,
        operation: str,
        operands: Sequence[Value],
        properties: str,
        region: str,
        results: Sequence[tuple[np.dtype, Sequence[Size]]],
    ) -> tuple[Value, ...]:
        """Add an operation in MLIR's generic form, with a region where it has one."""
        names = ", ".join(o.name for o in operands)
        types = ", ".join(o.type for o in operands)
        result_types = ", ".join(type_text(d, s) for d, s in results)
        result_types = f"({result_types})" if len(results) > 1 else result_types
        inner = f" ({{{region}}})" if region else ""
        text = f'"stablehlo.{operation}"({names}) <{{{properties}}}>{inner} : ({types}) -> {result_types}'
        return self.write_all(text, results)

    def loop(
        self, count: int, initial: Sequence[Value], body: Callable[[Value, list[Value]], list[Value]]
    ) -> tuple[Value, ...]:
        """Write ``while``: ``body(number, values)`` returns the values after a step; return the last ones.

        A body reads only its arguments, as not every compiler allows more.
        """
        first = self.full(0, INT32)
        given = [first, *initial]
        inside = [Value(f"%$loop{i}", v.dtype, v.shape) for i, v in enumerate(given)]
        head = f"^bb0({', '.join(f'{v.name}: {v.type}' for v in inside)}):"
        outer, self.lines = self.lines, []
        constants, self._constants = self._constants, {}
        number = self.binary("add", inside[0], self.full(1, INT32))
        results = [number, *body(inside[0], inside[1:])]
        lines, self.lines, self._constants = self.lines, outer, constants
        types = ", ".join(v.type for v in results)
        lines.append(f"stablehlo.return {', '.join(v.name for v in results)} : {types}")
        kind = "tensor<i32>"
        test = [
            f"%$count = stablehlo.constant dense<{count}> : {kind}",
            f"%$go = stablehlo.compare LT, %$loop0, %$count, SIGNED : ({kind}, {kind}) -> tensor<i1>",
            "stablehlo.return %$go : tensor<i1>",
        ]
        regions = ["\n      ".join([head, *each]) for each in (test, lines)]
        names = ", ".join(v.name for v in given)
        both = f"({{{regions[0]}\n    }}, {{{regions[1]}\n    }})"
        text = f'"stablehlo.while"({names}) {both} : ({types}) -> ({types})'
        return self.write_all(text, [(v.dtype, v.shape) for v in given])[1:]

    # --- elementwise ---

    def unary(self, operation: str, x: Value) -> Value:
        """Add an operation whose result has the type of its operand."""
        return self.write(f"stablehlo.{operation} {x.name} : {x.type}", x.dtype, x.shape)

    def binary(self, operation: str, x: Value, y: Value) -> Value:
        """Add an operation on two operands of one type."""
        return self.write(f"stablehlo.{operation} {x.name}, {y.name} : {x.type}", x.dtype, x.shape)

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        """Add a comparison: EQ, NE, LT, LE, GT, GE."""
        kind = "FLOAT" if x.dtype.kind in "fV" else "UNSIGNED" if x.dtype.kind in "ub" else "SIGNED"
        target = type_text(BOOL, x.shape)
        text = f"stablehlo.compare {direction}, {x.name}, {y.name}, {kind} : ({x.type}, {y.type}) -> {target}"
        return self.write(text, BOOL, x.shape)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """Return ``x`` where the condition is true, else ``y``."""
        names = f"{condition.name}, {x.name}, {y.name}"
        return self.write(f"stablehlo.select {names} : {condition.type}, {x.type}", x.dtype, x.shape)

    def convert(self, x: Value, dtype: np.dtype) -> Value:
        """Return a value in another dtype."""
        return x if x.dtype == dtype else self.call("convert", x, dtype=dtype, shape=x.shape)

    # --- constants and arguments ---

    def full(self, value: float, dtype: np.dtype, shape: Sequence[Size] = ()) -> Value:
        """Return an array of one number."""
        if not are_numbers(shape):
            return self.broadcast(self.full(value, dtype), shape)
        return self._constant(number_text(value, dtype), dtype, shape)

    def constant(self, array: Any, dtype: np.dtype) -> Value:  # anything that NumPy makes an array of
        """Return a constant array."""
        array = np.asarray(array)
        array = array if array.dtype == dtype else array.astype(dtype)
        if array.size and (array == array.reshape(-1)[0]).all():
            return self.full(array.reshape(-1)[0].item(), dtype, array.shape)
        if dtype == BOOL and array.size > _FEW:
            return self.convert(self.constant(array, np.dtype(np.uint8)), BOOL)
        return self._constant(array_text(array), dtype, array.shape)

    def _constant(self, text: str, dtype: np.dtype, shape: Sequence[Size]) -> Value:
        """Return a constant; equal ones are written once."""
        kind = type_text(dtype, shape)
        if (text, kind) not in self._constants:
            value = self.write(f"stablehlo.constant dense<{text}> : {kind}", dtype, shape)
            self._constants[text, kind] = value
        return self._constants[text, kind]

    def value(self, argument: Any, dtype: np.dtype | None = None) -> Value:  # any argument of a call
        """Return an argument of a call: a captured value, a size or a number, in ``dtype``."""
        if argument.__class__ is Ref:
            value = self.values[argument]
        elif hasattr(argument, "symbols"):
            value = self.reshape(self.size(argument), ())
        elif isinstance(argument, int | float | bool | np.generic):
            return self.full(argument, dtype if dtype is not None else np.asarray(argument).dtype)  # type: ignore[arg-type]
        else:
            raise errors.LoweringError(f"the target stablehlo cannot write the argument {argument!r}.")
        return value if dtype is None else self.convert(value, dtype)

    # --- sizes ---

    def size(self, size: Size) -> Value:
        """Return a size as a vector of one int32."""
        if is_number(size):
            return self.full(int(size), INT32, (1,))
        key = str(size)
        if key not in self._sizes:
            self._sizes[key] = self._computed(size)
        return self._sizes[key]

    def _computed(self, size: Size) -> Value:
        """Add the operations that compute a symbolic size."""
        if size.function == "symbol":
            value, axis = self.symbols[str(size)]
            text = f"stablehlo.get_dimension_size {value.name}, dim = {axis} : ({value.type}) -> tensor<i32>"
            return self.reshape(self.write(text, INT32, ()), (1,))
        left, right = (self.size(a) for a in size.args)
        if size.function == "floordiv":  # integers are divided towards zero
            rest = self.binary("remainder", left, right)
            rest = self.binary("remainder", self.binary("add", rest, right), right)
            return self.binary("divide", self.binary("subtract", left, rest), right)
        if size.function == "mod":
            rest = self.binary("remainder", left, right)
            return self.binary("remainder", self.binary("add", rest, right), right)
        names = {"add": "add", "sub": "subtract", "mul": "multiply"}
        return self.binary(names[size.function], left, right)

    def sizes(self, shape: Sequence[Size]) -> Value:
        """Return a shape as a vector of int32."""
        if are_numbers(shape):
            return self.constant(np.array([int(s) for s in shape], np.int32), INT32)
        parts = [self.size(s) for s in shape]
        return parts[0] if len(parts) == 1 else self.concatenate(parts, 0)

    # --- shapes ---

    def broadcast(self, x: Value, shape: Sequence[Size], axes: Sequence[int] | None = None) -> Value:
        """Return ``x`` in a larger shape; ``axes`` are the indices of its axes there, the last ones if
        None."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        axes = range(len(shape) - x.rank, len(shape)) if axes is None else axes
        attributes = f"dims = {list_text(axes)}"
        if are_numbers(shape):
            return self.call("broadcast_in_dim", x, dtype=x.dtype, shape=shape, attributes=attributes)
        sizes = self.sizes(shape)
        return self.call(
            "dynamic_broadcast_in_dim", x, sizes, dtype=x.dtype, shape=shape, attributes=attributes
        )

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        """Return the elements of ``x`` in another shape."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if are_numbers(shape):
            return self.call("reshape", x, dtype=x.dtype, shape=shape)
        return self.call("dynamic_reshape", x, self.sizes(shape), dtype=x.dtype, shape=shape)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Return ``x`` with its axes in another order."""
        if list(order) == sorted(order):
            return x
        shape = tuple(x.shape[a] for a in order)
        return self.call("transpose", x, dtype=x.dtype, shape=shape, attributes=f"dims = {list_text(order)}")

    def slice(self, x: Value, axis: int, start: Size, stop: Size, step: int = 1, size: Size = None) -> Value:
        """Return a slice along one axis; ``size`` is that of the result where the bounds do not determine
        it."""
        if is_number(start) and int(start) == 0 and stop == x.shape[axis] and step == 1:
            return x
        if size is None:
            size = max(-(-(stop - start) // step), 0)
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        if are_numbers((*x.shape, start, stop)):
            parts = [f"0:{int(s)}" for s in x.shape]
            parts[axis] = f"{int(start)}:{int(stop)}" + (f":{step}" if step != 1 else "")
            text = (
                f"stablehlo.slice {x.name} [{', '.join(parts)}] : ({x.type}) -> {type_text(x.dtype, shape)}"
            )
            return self.write(text, x.dtype, shape)
        if step != 1:
            raise NotImplementedError("steps along axes whose sizes may change")
        return self.dynamic_slice(x, axis, start, size)

    def dynamic_slice(self, x: Value, axis: int, start: Size, count: Size) -> Value:
        """Return ``count`` elements along one axis from the index ``start`` on; negative ones count from the
        end."""
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        nothing: list[Size] = [0] * x.rank
        place = [*nothing[:axis], start, *nothing[axis + 1 :]]
        starts = self.sizes(place)
        if is_number(start) and start < 0:
            end = self.sizes([*nothing[:axis], x.shape[axis], *nothing[axis + 1 :]])
            starts = self.binary("add", starts, end)
        stops = self.binary("add", starts, self.sizes(shape))
        steps = self.sizes([1] * x.rank)
        return self.call("real_dynamic_slice", x, starts, stops, steps, dtype=x.dtype, shape=shape)

    def concatenate(self, values: Sequence[Value], axis: int, size: Size = None) -> Value:
        """Join values along an axis."""
        if len(values) == 1:
            return values[0]
        first = values[0]
        if size is None:
            size = sum(int(v.shape[axis]) for v in values)
        shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
        return self.call("concatenate", *values, dtype=first.dtype, shape=shape, attributes=f"dim = {axis}")

    def pad(
        self,
        x: Value,
        low: Sequence[int],
        high: Sequence[int],
        value: float,
        inside: Sequence[int] | None = None,
        shape: Sequence[Size] | None = None,
    ) -> Value:
        """Pad ``x`` with a number, or crop it by negative widths; ``inside`` is the padding between
        elements."""
        between = list(inside) if inside is not None else [0] * x.rank
        if not any((*low, *high, *between)):
            return x
        if shape is None:
            shape = [
                s + a + b + max(s - 1, 0) * i if a or b or i else s
                for s, a, b, i in zip(x.shape, low, high, between, strict=True)
            ]
        attributes = f"low = {list_text(low)}, high = {list_text(high)}, interior = {list_text(between)}"
        return self.call(
            "pad", x, self.full(value, x.dtype), dtype=x.dtype, shape=shape, attributes=attributes
        )

    def iota(self, dtype: np.dtype, shape: Sequence[Size], axis: int) -> Value:
        """Return the indices along an axis: 0, 1, 2, ..."""
        kind = type_text(dtype, shape)
        if are_numbers(shape):
            return self.write(f"stablehlo.iota dim = {axis} : {kind}", dtype, shape)
        sizes = self.sizes(shape)
        text = f"stablehlo.dynamic_iota {sizes.name}, dim = {axis} : ({sizes.type}) -> {kind}"
        return self.write(text, dtype, shape)


def has_elements(dtype: np.dtype) -> bool:
    """Whether values of a dtype can be written."""
    return dtype.name in ELEMENTS
