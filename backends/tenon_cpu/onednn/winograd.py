"""Convolutions of 3 by 3 windows with a quarter of the multiplications: Winograd's F(4 x 4, 3 x 3).

A tile of 4 x 4 results needs 6 x 6 inputs. Tile and window are polynomials in two variables, whose product
takes 36 multiplications of their values at points instead of 144: *maps* transform inputs and windows to
their values at the points (``winograd_code.py``), where all tiles and channels are 36 matrix products
(oneDNN's), and transform the results back. The gradient of the input is a convolution too; that of the weight
is the transposed algorithm.

Rounding: the relative difference from an exact sum is some 2e-6 (of a direct float32 sum: 4e-7). If a result
is not finite the direct kernel computes all of them again, since Winograd would spread NaN and infinity over
a tile, and may overflow where a direct sum does not. ``TENON_WINOGRAD=0`` disables it.

A ``Winograd`` is called like a ``Chain``. Next: ``convolution.py`` and ``prepared_convolution.py``, for which
``chain`` returns the faster one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tenon.extend import Config
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.chain import Chain, shared
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.layouts import blocked
from tenon_cpu.onednn.primitives import Primitive, address_of, reorder
from tenon_cpu.onednn.problems import Problem
from tenon_cpu.onednn.runtime import ALIGNMENT, Buffer
from tenon_cpu.onednn.weight_packing import Counter
from tenon_cpu.onednn.winograd_code import STEP, TABLE, WINDOW, text
from tenon_cpu.onednn.winograd_parts import (
    FLOAT,
    POINTS,
    POSITIONS,
    Points,
    by_positions,
    grid,
    pieces,
)

Array = np.ndarray
#: The cost model: operations per second of a direct kernel and of the products at the points, bytes per
#: second of maps, and of maps of weights, which are read from memory. Only their ratios matter.
_DIRECT, _PRODUCTS, _MAPS, _WEIGHTS = 110e9, 85e9, 70e9, 20e9
_WORDS = {word: index for index, word in enumerate(TABLE)}
#: Bytes of a weight's values at the points up to which they are cached until the weight changes.
MAX_KEPT_BYTES = 4 << 20
Set = Callable[[int], None]
Shape = tuple[int, ...]
#: The location of a value: an argument of the call by its index, scratch memory at offset ``-1 - location``,
#: or a buffer.
Location = int | Buffer


@functools.cache
def _allowed() -> bool:
    off = (Config.from_environment().setting("winograd", "1") or "1").strip().lower() in (
        "0",
        "off",
        "no",
        "false",
    )
    return not off and llvm.available() and blocked().block > 0


def is_faster(problem: Problem) -> bool:
    """Whether Winograd's algorithm supports the convolution and the cost model finds it faster."""
    if problem.dtype != FLOAT or problem.weight[2:] != (WINDOW, WINDOW) or problem.groups != 1:
        return False
    if {*problem.stride, *problem.dilation} != {1} or any(p > WINDOW - 1 for p in problem.padding):
        return False
    if not _allowed() or not all(blocked().fits(shape) for shape in (problem.x, problem.y)):
        return False
    channels, filters, (n, _, *sizes) = problem.x[1], problem.y[1], problem.y
    tiles = n * math.prod(-(-s // STEP) for s in sizes)
    direct = 2 * POSITIONS * n * math.prod(sizes) * channels * filters / _DIRECT
    multiplied = 2 * POINTS * tiles * channels * filters / _PRODUCTS
    maps = 16 * POINTS * tiles * (channels + filters) / _MAPS
    weights = 8 * (POINTS + POSITIONS) * channels * filters / _WEIGHTS
    return multiplied + maps + weights < 0.8 * direct


@functools.lru_cache(1 << 12)
def is_faster_for(
    kind: str, first: Shape, second: Shape, sizes: Shape, stride: Shape, padding: Shape, dilation: Shape,
    groups: int,
) -> bool:  # fmt: skip
    """Whether ``is_faster`` holds for arrays of these shapes in float32: the condition of a kernel's row.

    ``first`` and ``second`` are the shapes of ``kind``'s arrays, x and weight, for "input" g and weight, for
    "weight" x and g; ``sizes`` are the sizes of a gradient's last axes.
    """
    if not len(first) == len(second) == 4 or {*stride, *dilation} != {1} or groups != 1:
        return False
    x: Shape
    y: Shape
    weight: Shape
    if kind == "forward":
        x, weight = first, second
        y = (x[0], weight[0], *(s + 2 * p - WINDOW + 1 for s, p in zip(x[2:], padding, strict=True)))
    elif kind == "input":
        y, weight = first, second
        x = (y[0], weight[1], *sizes)
    else:
        x, y = first, second
        weight = (y[1], x[1], *sizes)
    return min(y) > 0 and is_faster(Problem(x, weight, y, FLOAT, stride, padding, dilation, groups))


def chain(
    kind: str,
    problem: Problem,
    primitive: Primitive,
    inputs: Mapping[int, Descriptor],
    outputs: Mapping[int, Descriptor],
    counter: Counter | None = None,
    parts: Sequence[str] = (),
) -> Chain | Winograd:
    """Return the faster of Winograd's algorithm and a chain of the direct ``primitive``, with the same
    arguments.

    ``counter`` is the weight's version counter: Winograd's algorithm caches the weight at the points until it
    changes. ``parts`` has the roles of the last inputs: a "scale" and a "shift" for each channel of the
    result, and an array that is "added" to it.
    """
    if len(outputs) > 1 or not is_faster(problem):
        return Chain(primitive, inputs, outputs)
    direct = functools.partial(Chain, primitive, inputs, outputs)
    return Winograd(kind, problem, list(inputs.values()), list(outputs.values()), direct, counter, parts)


class Winograd:
    """``kind`` ("forward", "input", "weight") of ``problem``. ``inputs`` and ``outputs`` are the descriptors
    of a call's arrays, in a chain's order. ``direct`` creates the chain that is used if a result is not
    finite."""

    def __init__(
        self,
        kind: str,
        problem: Problem,
        inputs: Sequence[Descriptor],
        outputs: Sequence[Descriptor],
        direct: Callable[[], Chain],
        counter: Counter | None = None,
        parts: Sequence[str] = (),
    ) -> None:
        #: The weight's version counter, its last value, and the steps that compute the weight at the points.
        self._counter, self._number = counter, -1
        self._list: list[int] = []
        self._weights: list[Callable[[], object]] = []
        self._parts, self._make_direct = parts, direct
        self._direct: Chain | None = None
        self._flag, self.size, self._base = np.zeros(1, np.int64), 0, 0
        #: Functions that receive an address: those of each argument, and those of scratch memory, with
        #: offsets.
        self._outer: list[list[tuple[int, Set]]] = [[] for _ in (*inputs, *outputs)]
        self._inner: list[tuple[int, Set]] = []
        self._steps: list[Callable[[], object]] = []
        self._kept_alive: list[object] = []
        {"forward": self._forward, "input": self._input, "weight": self._weight}[kind](
            problem, list(inputs), list(outputs)
        )

    # --- the three kinds ---

    def _forward(self, problem: Problem, inputs: list[Descriptor], outputs: list[Descriptor]) -> None:
        first_part = len(inputs) - len(self._parts)
        operands = {name: first_part + i for i, name in enumerate(self._parts)}
        if first_part > 2:
            operands["bias"] = 2
        self._convolution(
            problem, (problem.x, problem.y), problem.padding, "weight", inputs, outputs, operands
        )

    def _input(self, problem: Problem, inputs: list[Descriptor], outputs: list[Descriptor]) -> None:
        around = tuple(WINDOW - 1 - p for p in problem.padding)
        self._convolution(problem, (problem.y, problem.x), around, "flipped", inputs, outputs, {})

    def _convolution(
        self,
        problem: Problem,
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        padding: tuple[int, ...],
        matrix: str,
        inputs: list[Descriptor],
        outputs: list[Descriptor],
        operands: dict[str, int],
    ) -> None:
        source, target = shapes
        channels, filters = source[1], target[1]
        chunks, tiles = pieces(source, target)
        values, products = (
            self._reserve(4 * POINTS * tiles * channels),
            self._reserve(4 * POINTS * tiles * filters),
        )
        x, y = self._blocked(0, source, inputs[0]), self._result_location(len(inputs), target, outputs[0])
        size = 4 * POINTS * channels * filters
        if size > MAX_KEPT_BYTES:
            self._counter = None
        weight = self._reserve(size) if self._counter is None else Buffer(size)
        weight_rows = self._reserve(4 * POSITIONS * channels * filters)
        previous_steps, self._steps = self._steps, self._weights
        weight_by_position = by_positions(problem, flipped=matrix == "flipped")
        self._reorder((1, inputs[1]), (weight_rows, weight_by_position))
        sizes = {"count": channels, "blocks": filters // blocked().block, "across": 1, "down": 1}
        steps = {"from_point": channels * filters, "from_tile": filters}
        steps |= {"point": channels * filters, "tile": filters}
        self._map(matrix, ("points", weight_rows, 0), ("points", weight, 0), sizes | steps)
        self._steps = previous_steps
        entries = (grid(source, target[2:], padding), grid(target, target[2:], (0, 0)))
        for first, count in chunks:
            lines = count * entries[0]["down"]
            points = Points(lines * entries[0]["across"], channels, filters)
            into, back = (
                entry | {"count": lines} | points.words(shape[1])
                for entry, shape in zip(entries, shapes, strict=True)
            )
            offset = [4 * first * math.prod(shape[1:]) for shape in shapes]
            self._map("input", ("grid", x, offset[0]), ("points", values, 0), into)
            self._multiply(points.products(), {c.SRC: values, c.WEIGHTS: weight, c.DST: products})
            self._map("output", ("points", products, 0), ("grid", y, offset[1]), back, operands)
        self._copy_back(y, len(inputs), target, outputs[0])

    def _weight(self, problem: Problem, inputs: list[Descriptor], outputs: list[Descriptor]) -> None:
        channels, filters = problem.x[1], problem.y[1]
        chunks, tiles = pieces(problem.x, problem.y)
        values, gradients = (
            self._reserve(4 * POINTS * tiles * channels),
            self._reserve(4 * POINTS * tiles * filters),
        )
        x, g = self._blocked(0, problem.x, inputs[0]), self._blocked(1, problem.y, inputs[1])
        weight = self._reserve(4 * POINTS * channels * filters)
        rows = self._reserve(4 * POSITIONS * channels * filters)
        entries = (
            grid(problem.x, problem.y[2:], problem.padding),
            grid(problem.y, problem.y[2:], (0, 0)),
        )
        for first, count in chunks:
            lines = count * entries[0]["down"]
            points = Points(lines * entries[0]["across"], channels, filters)
            for matrix, entry, shape, location, destination in (
                ("input", entries[0], problem.x, x, values),
                ("gradient", entries[1], problem.y, g, gradients),
            ):
                words = entry | {"count": lines} | points.words(shape[1])
                offset = 4 * first * math.prod(shape[1:])
                self._map(matrix, ("grid", location, offset), ("points", destination, 0), words)
            self._multiply(
                points.sums(accumulate=first > 0), {c.SRC: values, c.WEIGHTS: gradients, c.DST: weight}
            )
        sizes = {"count": channels, "blocks": filters // blocked().block, "across": 1, "down": 1}
        steps = {"from_point": channels * filters, "from_tile": filters}
        steps |= {"point": channels * filters, "tile": filters}
        self._map("weight_grad", ("points", weight, 0), ("points", rows, 0), sizes | steps)
        self._reorder((rows, by_positions(problem, flipped=False)), (2, outputs[0]))

    # --- memory ---

    def _reserve(self, size: int) -> int:
        offset = self.size
        self.size += size + -size % ALIGNMENT
        return -1 - offset

    def _on_address(self, location: Location, setter: Set, offset: int = 0) -> None:
        """Call ``setter`` with the address of ``location``: now for a buffer, else whenever the address
        changes."""
        if isinstance(location, Buffer):
            self._kept_alive.append(location)
            setter(location.address + offset)
        elif location < 0:
            self._inner.append((-1 - location + offset, setter))
        else:
            self._outer[location].append((offset, setter))

    def _blocked(self, array: int, shape: tuple[int, ...], descriptor: Descriptor) -> int:
        """Return the location of the array in the blocked layout: its own, or that of a copy."""
        blocked_descriptor = blocked().descriptor(shape, FLOAT)
        if descriptor == blocked_descriptor:
            return array
        copy = self._reserve(blocked_descriptor.size)
        self._reorder((array, descriptor), (copy, blocked_descriptor))
        return copy

    def _result_location(self, array: int, shape: tuple[int, ...], descriptor: Descriptor) -> int:
        """Return the location of a result in the blocked layout: the array's own, or scratch memory."""
        blocked_descriptor = blocked().descriptor(shape, FLOAT)
        return array if descriptor == blocked_descriptor else self._reserve(blocked_descriptor.size)

    def _copy_back(self, location: int, array: int, shape: tuple[int, ...], descriptor: Descriptor) -> None:
        if location != array:
            self._reorder((location, blocked().descriptor(shape, FLOAT)), (array, descriptor))

    # --- steps ---

    def _reorder(self, source: tuple[int, Descriptor], target: tuple[int, Descriptor]) -> None:
        primitive = reorder(source[1], target[1])
        self._multiply(primitive, {c.SRC: source[0], c.DST: target[0]})

    def _multiply(self, primitive: Primitive, locations: dict[int, Location]) -> None:
        execution = primitive.execution(dict.fromkeys(locations))
        if primitive.scratchpad is not None:
            locations = locations | {c.SCRATCHPAD: self._reserve(primitive.scratchpad.size)}
        for position, location in locations.items():
            self._on_address(location, functools.partial(execution.point, position))
        run, execute = execution.run, execution.execute

        def step() -> None:
            if status := execute(*run):
                raise execution.failed(status)

        self._steps.append(step)

    def _map(
        self,
        matrix: str,
        source: tuple[str, Location, int],
        target: tuple[str, Location, int],
        words: dict[str, int],
        operands: dict[str, int] | None = None,
    ) -> None:
        table = np.zeros(len(TABLE), np.int64)
        for word, value in words.items():
            table[_WORDS[word]] = value
        table[_WORDS["flag"]] = address_of(self._flag)
        self._on_address(source[1], functools.partial(table.__setitem__, _WORDS["source"]), source[2])
        self._on_address(target[1], functools.partial(table.__setitem__, _WORDS["target"]), target[2])
        if target[0] == "grid":
            self._bind_operands(table, operands or {}, target[2])
        kind = "sum" if operands and "added" in operands else target[0]
        entry = llvm.load(text(matrix, source[0], kind, blocked().block))
        self._kept_alive.append(table)
        self._steps.append(functools.partial(entry, table.ctypes.data, llvm.ALL))

    def _bind_operands(self, table: Array, operands: dict[str, int], offset: int) -> None:
        """Set the table's addresses of bias, scale, shift and added array; those without an operand get a
        constant."""
        for word, default in (("bias", 0), ("scale", 1), ("shift", 0)):
            if word in operands:
                table[_WORDS[f"{word}_step"]] = blocked().block
                self._on_address(operands[word], functools.partial(table.__setitem__, _WORDS[word]))
            else:
                constant = np.full(blocked().block, default, np.float32)
                self._kept_alive.append(constant)
                table[_WORDS[word]] = address_of(constant)
        if "added" in operands:
            self._on_address(operands["added"], functools.partial(table.__setitem__, _WORDS["added"]), offset)

    # --- calls ---

    def bind(self, *addresses: int) -> None:
        """Point the arguments at arrays by their addresses."""
        for setters, start in zip(self._outer, addresses, strict=True):
            for offset, setter in setters:
                setter(start + offset)

    def __call__(self, *arrays: Array) -> None:
        """Compute on ``arrays``."""
        self.bind(*[address_of(array) for array in arrays])
        self._run(arrays)

    def bound(self, *arrays: Array) -> Callable[[], None]:
        """Return a function without arguments that computes on ``arrays`` and keeps them alive."""
        self.bind(*[address_of(array) for array in arrays])
        return functools.partial(self._run, arrays)

    def _run(self, arrays: Sequence[Array]) -> None:
        memory = shared.at_least(self.size)
        if memory.address != self._base:
            self._rebase(memory)
        if self._changed():
            for step in self._weights:
                step()
        for step in self._steps:
            step()
        if self._flag[0]:
            self._flag[0] = 0
            if self._direct is None:
                self._direct = self._make_direct()
            self._direct(*arrays)

    def _changed(self) -> bool:
        """Whether the weight at the points must be recomputed; remembers the counter."""
        if self._counter is None:
            return True
        now = self._counter()
        same = now is self._list and now[0] == self._number and len(now) == 1
        self._list, self._number = now, now[0]
        return not same

    def _rebase(self, memory: Buffer) -> None:
        self._base = 0
        for offset, setter in self._inner:
            setter(memory.address + offset)
        self._base = memory.address if memory is shared.buffer else 0
