"""Loops over the rows of a cluster with reductions; ``fusion/schedule.py`` planned them.

Sums of float32 run in vectors over at most 4096 elements, and these add up in float64; sums over rows add up
in chunks of rows, which are added in order when all rows are done. Both are more accurate than adding
pairwise, and neither depends on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.emission.formulas import convert
from tenon_cpu.jit.emission.functions import TYPES, Code, Val
from tenon_cpu.jit.emission.pointwise import Body, numbers, pointers, types_of, worker
from tenon_cpu.jit.emission.reductions import After, Reduce
from tenon_cpu.jit.fusion.domain import Cluster, Ref, Step
from tenon_cpu.jit.fusion.schedule import CHUNKS, MOST, Schedule

_BLOCK = 4096


class _Row(Body):
    """Values that are the same along a row."""

    def __init__(self, rows: Rows, offsets: dict[int, Any], fixed: dict[int, Val]) -> None:
        super().__init__(rows.code, rows.cluster, fixed)
        self.rows, self.offsets = rows, offsets

    def load(self, index: int) -> Val:
        return self.code.load(f"%a{index}", self.rows.types[index], self.offsets[index])


class _Inner(Body):
    """Values at one place of a row."""

    def __init__(self, rows: Rows, row: _Row, t: int, offsets: dict[int, Any], place: Any) -> None:
        super().__init__(rows.code, rows.cluster, {})
        self.rows, self.row, self.t, self.offsets, self.place = rows, row, t, offsets, place

    def get(self, ref: Any) -> Any:
        if ref.__class__ is not Ref:
            return ref
        plan = self.rows.plan
        if not plan.is_inner(ref.index):
            return self.row.get(ref)
        if ref.index in plan.kept and plan.stage[ref.index] < self.t and ref.index not in self.values:
            kind = self.rows.types[ref.index]
            kind = TYPES["float32"] if kind.reg == "float" else kind
            found = self.code.load(self.rows.scratch[ref.index], kind, self.place)
            self.values[ref.index] = Val(found.text, self.rows.types[ref.index])
        return super().get(ref)

    def load(self, index: int) -> Val:
        return self.code.load(f"%a{index}", self.rows.types[index], self.offsets[index])


class Rows:
    """The generator of one module."""

    def __init__(self, cluster: Cluster, plan: Schedule, fma: bool) -> None:
        self.cluster, self.plan, self.loops = cluster, plan, plan.loops
        self.types = types_of(cluster)
        self.n = len(cluster.inputs)
        self.arrays, _ = pointers(cluster)
        self.code = Code(fma=fma)
        self.fma = fma
        self.fixed = numbers(self.code, cluster)
        self.sums = [*plan.across, *plan.total]
        self.reduce = {
            i: Reduce(self._step(i), self.types[self._step(i).refs[0].index])
            for i in (*plan.rowwise, *self.sums)
        }
        first = self.loops.sizes[plan.outer_axes[0]] if plan.outer_axes else 1
        vectors = max([1, *(plan.row for i in plan.across if self.vector(i))])
        self.first = first
        self.chunks = max(1, min(first, CHUNKS, MOST // vectors)) if self.sums else first
        self.stop: Any = None
        self.scratch: dict[int, str] = {}
        for index in sorted(plan.kept):
            kind = self.types[index]
            self.scratch[index] = self.code.variable(
                TYPES["float32"] if kind.reg == "float" else kind, plan.row
            )

    def _step(self, index: int) -> Step:
        return self.cluster.steps[index - self.n]

    def vector(self, index: int) -> bool:
        """Whether a reduction over the rows has a result per element of the row."""
        return self.plan.is_inner(self._step(index).refs[0].index) and index in self.plan.across

    def counted(self, index: int) -> int:
        """How many elements a reduction reduces to one."""
        step = self._step(index)
        shape = self.cluster.aval(step.refs[0]).shape
        return math.prod(shape[a] for a in step.attr("axes"))

    def _moved(self, offsets: dict[int, Any], axis: int, i: Any) -> dict[int, Any]:
        code = self.code
        return {p: code.plus(o, code.times(i, self.loops.strides[p][axis])) for p, o in offsets.items()}

    # --- the rows ---

    def module(self) -> tuple[str, int, tuple[int, ...]]:
        """Text, number of pieces, and float64 elements of each scratch array."""
        start = {p: 0 for p in range(len(self.arrays)) if p not in self.cluster.numbers}
        if self.sums:
            with self.code.loop("%first", "%last") as chunk:
                self._chunk(chunk, start)
        elif self.plan.outer_axes:
            self._nest(0, start, ("%first", "%last"), {})
        else:
            self._row(start, {})
        sizes = tuple(self.chunks * (self.plan.row if self.vector(i) else 1) for i in self.sums)
        text = worker(self.code, self.cluster, len(self.sums))
        if not self.sums:
            return text + driver(self.chunks), self.chunks, ()
        after = After(self).function()
        declared = set(self.code.declared.values())
        extra = [line for line in after[1] if line not in declared]
        return "\n".join([text, after[0], *extra]) + driver(self.chunks, after=True), self.chunks, sizes

    def _chunk(self, chunk: str, start: dict[int, Any]) -> None:
        """The rows of one chunk, and what they add up to."""
        code, sums = self.code, {}
        for position, index in enumerate(self.sums):
            how = self.reduce[index]
            if self.vector(index):
                base = code.at(f"%x{position}", how.type, code.times(chunk, self.plan.row))
                with code.loop(0, self.plan.row) as j:
                    code.store(how.identity(how.type), base, j)
                sums[index] = base
            else:
                sums[index] = code.variable(how.wide)
                code.store(how.identity(how.wide), sums[index])
        if self.plan.outer_axes:
            low = code.let(f"mul i64 {chunk}, {self.first}")
            high = code.plus(low, self.first)
            bounds = tuple(code.let(f"sdiv i64 {b}, {self.chunks}") for b in (low, high))
            self._nest(0, start, bounds, sums)
        else:
            self._row(start, sums)
        for position, index in enumerate(self.sums):
            if not self.vector(index):
                how = self.reduce[index]
                code.store(code.load(sums[index], how.wide), f"%x{position}", chunk)

    def _nest(self, depth: int, offsets: dict[int, Any], bounds: Any, sums: dict[int, str]) -> None:
        if depth == len(self.plan.outer_axes):
            self._row(offsets, sums)
            return
        axis = self.plan.outer_axes[depth]
        with self.code.loop(*(bounds or (0, self.loops.sizes[axis]))) as i:
            if self.loops.tail:
                left = self.code.plus(self.code.times(i, -self.plan.row), self.loops.tail)
                self.stop = self.code.least(left, self.plan.row)
            self._nest(depth + 1, self._moved(offsets, axis, i), None, sums)

    def _row(self, offsets: dict[int, Any], sums: dict[int, str]) -> None:
        code, plan = self.code, self.plan
        row = _Row(self, offsets, self.fixed)
        for t in plan.passes:
            for index in sorted(plan.reads[t]):
                row.get(Ref(index))
            wanted = [i for i in (*plan.rowwise, *plan.total) if self._pass(i) == t]
            totals = {}
            for index in wanted:
                how = self.reduce[index]
                totals[index] = (code.variable(how.wide), code.variable(how.type))
                code.store(how.identity(how.wide), totals[index][0])
            self._along(0, row, t, offsets, 0, totals, sums)
            for index in wanted:
                how = self.reduce[index]
                total = code.load(totals[index][0], how.wide)
                if index in plan.rowwise:
                    row.values[index] = how.result(code, total, self.counted(index))
                else:
                    code.store(how.join(code, code.load(sums[index], how.wide), total), sums[index])
        for index in sorted(plan.reads[-1]):
            row.get(Ref(index))
        for position, ref in enumerate(self.cluster.outputs, self.n):
            if ref.index not in plan.after and not plan.is_inner(ref.index):
                code.store(row.get(ref), f"%a{position}", offsets[position])
        for index in plan.across:
            if not self.vector(index):
                how = self.reduce[index]
                given = convert(code, how.given(code, row.get(self._step(index).refs[0])), how.wide)
                code.store(how.join(code, code.load(sums[index], how.wide), given), sums[index])

    def _pass(self, index: int) -> int:
        return self.plan.stage[self._step(index).refs[0].index]

    # --- one pass over a row ---

    def _along(
        self,
        depth: int,
        row: _Row,
        t: int,
        offsets: dict[int, Any],
        place: Any,
        totals: Any,
        sums: dict[int, str],
    ) -> None:
        code, axes = self.code, self.plan.inner_axes
        if not axes:
            self._element(row, t, offsets, 0, totals, sums)
            return
        axis = axes[depth]
        size = self.loops.sizes[axis]
        place = code.times(place, size)
        if depth < len(axes) - 1:
            with code.loop(0, size) as i:
                self._along(
                    depth + 1, row, t, self._moved(offsets, axis, i), code.plus(place, i), totals, sums
                )
        elif totals and size > _BLOCK:
            with code.loop(0, size, _BLOCK) as start:
                stop = code.least(code.plus(start, _BLOCK), size)
                self._stretch(start, stop, axis, row, t, offsets, place, totals, sums)
        else:
            self._stretch(0, self.stop or size, axis, row, t, offsets, place, totals, sums)

    def _stretch(
        self, start: Any, stop: Any, axis: int, row: _Row, t: int, offsets: dict[int, Any], place: Any,
        totals: Any, sums: dict[int, str],
    ) -> None:  # fmt: skip
        code = self.code
        for index, (_, local) in totals.items():
            code.store(self.reduce[index].identity(self.reduce[index].type), local)
        with code.loop(start, stop) as i:
            self._element(row, t, self._moved(offsets, axis, i), code.plus(place, i), totals, sums)
        for index, (total, local) in totals.items():
            how = self.reduce[index]
            part = convert(code, code.load(local, how.type), how.wide)
            code.store(how.join(code, code.load(total, how.wide), part), total)

    def _element(
        self, row: _Row, t: int, offsets: dict[int, Any], place: Any, totals: Any, sums: dict[int, str]
    ) -> None:
        code, plan = self.code, self.plan
        body = _Inner(self, row, t, offsets, place)
        for index, (_, local) in totals.items():
            how = self.reduce[index]
            given = how.given(code, body.get(self._step(index).refs[0]))
            code.store(how.join(code, code.load(local, how.type), given, free=True), local)
        stores: list[Callable[[], None]] = []
        for index in sorted(plan.makes[t] & plan.kept):
            made = body.get(Ref(index))
            kind = TYPES["float32"] if made.type.reg == "float" else made.type
            stores.append(_storing(code, Val(made.text, kind), self.scratch[index], place))
        for position, ref in enumerate(self.cluster.outputs, self.n):
            if ref.index not in plan.after and plan.is_inner(ref.index) and plan.stage[ref.index] == t:
                stores.append(_storing(code, body.get(ref), f"%a{position}", offsets[position]))
        for index in plan.across:
            if self.vector(index) and self._pass(index) == t:
                how = self.reduce[index]
                given = how.given(code, body.get(self._step(index).refs[0]))
                joined = how.join(code, code.load(sums[index], how.type, place), given)
                stores.append(_storing(code, joined, sums[index], place))
        for store in stores:
            store()


def _storing(code: Code, value: Val, pointer: str, place: Any) -> Callable[[], None]:
    return lambda: code.store(value, pointer, place)


def rowwise(cluster: Cluster, plan: Schedule, fma: bool) -> tuple[str, int, tuple[int, ...]]:
    """The module of a cluster with reductions: text, pieces of work, sizes of scratch arrays."""
    return Rows(cluster, plan, fma).module()
