"""Emit loops over the rows of a cluster with reductions, as ``fusion/schedule.py`` planned them.

Sums of float32 are added in vectors over at most 4096 elements, and their results in float64; sums over rows
are added in chunks of rows, and these in order when all rows are done. Both are more accurate than pairwise
summation, and neither depends on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.emission.formulas import convert
from tenon_cpu.jit.emission.functions import TYPES, Code, Index, Val
from tenon_cpu.jit.emission.pointwise import Body, numbers, pointers, types_of, worker
from tenon_cpu.jit.emission.reductions import After, Reduce
from tenon_cpu.jit.fusion.domain import Cluster, Ref, Step
from tenon_cpu.jit.fusion.schedule import CHUNKS, MOST, Schedule

_BLOCK = 4096
#: The offset of each array's element, by the array's position among the kernel's arguments.
_Offsets = Mapping[int, Index]
#: The stack variables of each reduction over the row: its total, and that of a block.
_Totals = Mapping[int, tuple[str, str]]


class _Row(Body):
    """Values that are the same along a row."""

    def __init__(self, rows: Rows, offsets: _Offsets, fixed: dict[int, Val]) -> None:
        super().__init__(rows.code, rows.cluster, fixed)
        self.rows, self.offsets = rows, offsets

    def load(self, index: int) -> Val:
        return self.code.load(f"%a{index}", self.rows.types[index], self.offsets[index])


class _Inner(Body):
    """Values at one column of a row, in pass ``t``."""

    def __init__(self, rows: Rows, row: _Row, t: int, offsets: _Offsets, column: Index) -> None:
        super().__init__(rows.code, rows.cluster, {})
        self.rows, self.row, self.t, self.offsets, self.column = rows, row, t, offsets, column

    def get(self, ref: Ref) -> Val:
        plan = self.rows.plan
        if not plan.is_inner(ref.index):
            return self.row.get(ref)
        if ref.index in plan.kept and plan.stage[ref.index] < self.t and ref.index not in self.values:
            kind = self.rows.types[ref.index]
            kind = TYPES["float32"] if kind.reg == "float" else kind
            kept = self.code.load(self.rows.scratch[ref.index], kind, self.column)
            self.values[ref.index] = Val(kept.text, self.rows.types[ref.index])
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
        self.stop: Index | None = None
        self.scratch: dict[int, str] = {}
        for index in sorted(plan.kept):
            kind = self.types[index]
            self.scratch[index] = self.code.variable(
                TYPES["float32"] if kind.reg == "float" else kind, plan.row
            )

    def _step(self, index: int) -> Step:
        return self.cluster.steps[index - self.n]

    def vector(self, index: int) -> bool:
        """Whether a reduction over the rows has a result for each column."""
        return self.plan.is_inner(self._step(index).refs[0].index) and index in self.plan.across

    def counted(self, index: int) -> int:
        """The number of elements that a reduction reduces to one."""
        step = self._step(index)
        shape = self.cluster.aval(step.refs[0]).shape
        return math.prod(shape[a] for a in step.attr("axes"))

    def _moved(self, offsets: _Offsets, axis: int, i: Index) -> _Offsets:
        """The offsets at index ``i`` of a loop's axis."""
        code = self.code
        return {p: code.plus(o, code.times(i, self.loops.strides[p][axis])) for p, o in offsets.items()}

    # --- the rows ---

    def module(self) -> tuple[str, int, tuple[int, ...]]:
        """The text, the number of pieces of work, and the float64 elements of each temporary array."""
        start: _Offsets = {p: 0 for p in range(len(self.arrays)) if p not in self.cluster.numbers}
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

    def _chunk(self, chunk: str, start: _Offsets) -> None:
        """Emit the rows of one chunk, and store the results of its reductions over rows."""
        code, sums = self.code, dict[int, str]()
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
            first, last = (code.let(f"sdiv i64 {b}, {self.chunks}") for b in (low, high))
            self._nest(0, start, (first, last), sums)
        else:
            self._row(start, sums)
        for position, index in enumerate(self.sums):
            if not self.vector(index):
                how = self.reduce[index]
                code.store(code.load(sums[index], how.wide), f"%x{position}", chunk)

    def _nest(
        self, depth: int, offsets: _Offsets, bounds: tuple[Index, Index] | None, sums: dict[int, str]
    ) -> None:
        """Emit loops over the outer axes from ``depth`` on; ``bounds`` are those of the first loop."""
        if depth == len(self.plan.outer_axes):
            self._row(offsets, sums)
            return
        axis = self.plan.outer_axes[depth]
        with self.code.loop(*(bounds or (0, self.loops.sizes[axis]))) as i:
            if self.loops.tail:
                left = self.code.plus(self.code.times(i, -self.plan.row), self.loops.tail)
                self.stop = self.code.least(left, self.plan.row)
            self._nest(depth + 1, self._moved(offsets, axis, i), None, sums)

    def _row(self, offsets: _Offsets, sums: dict[int, str]) -> None:
        """Emit the passes over one row."""
        code, plan = self.code, self.plan
        row = _Row(self, offsets, self.fixed)
        for t in plan.passes:
            for index in sorted(plan.reads[t]):
                row.get(Ref(index))
            accumulated = [i for i in (*plan.rowwise, *plan.total) if self._pass(i) == t]
            totals = {}
            for index in accumulated:
                how = self.reduce[index]
                totals[index] = (code.variable(how.wide), code.variable(how.type))
                code.store(how.identity(how.wide), totals[index][0])
            self._along(0, row, t, offsets, 0, totals, sums)
            for index in accumulated:
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
                element = convert(code, how.element(code, row.get(self._step(index).refs[0])), how.wide)
                code.store(how.join(code, code.load(sums[index], how.wide), element), sums[index])

    def _pass(self, index: int) -> int:
        """The pass that accumulates a reduction."""
        return self.plan.stage[self._step(index).refs[0].index]

    # --- one pass over a row ---

    def _along(
        self, depth: int, row: _Row, t: int, offsets: _Offsets, column: Index, totals: _Totals,
        sums: dict[int, str],
    ) -> None:  # fmt: skip
        """Emit loops over the inner axes from ``depth`` on: pass ``t``."""
        code, axes = self.code, self.plan.inner_axes
        if not axes:
            self._element(row, t, offsets, 0, totals, sums)
            return
        axis = axes[depth]
        size = self.loops.sizes[axis]
        column = code.times(column, size)
        if depth < len(axes) - 1:
            with code.loop(0, size) as i:
                self._along(
                    depth + 1, row, t, self._moved(offsets, axis, i), code.plus(column, i), totals, sums
                )
        elif totals and size > _BLOCK:
            with code.loop(0, size, _BLOCK) as start:
                stop = code.least(code.plus(start, _BLOCK), size)
                self._block(start, stop, axis, row, t, offsets, column, totals, sums)
        else:
            self._block(0, self.stop or size, axis, row, t, offsets, column, totals, sums)

    def _block(
        self, start: Index, stop: Index, axis: int, row: _Row, t: int, offsets: _Offsets, column: Index,
        totals: _Totals, sums: dict[int, str],
    ) -> None:  # fmt: skip
        """Emit a loop over a part of the last axis, whose reductions are added to ``totals`` at its end."""
        code = self.code
        for index, (_, local) in totals.items():
            code.store(self.reduce[index].identity(self.reduce[index].type), local)
        with code.loop(start, stop) as i:
            self._element(row, t, self._moved(offsets, axis, i), code.plus(column, i), totals, sums)
        for index, (total, local) in totals.items():
            how = self.reduce[index]
            part = convert(code, code.load(local, how.type), how.wide)
            code.store(how.join(code, code.load(total, how.wide), part), total)

    def _element(
        self, row: _Row, t: int, offsets: _Offsets, column: Index, totals: _Totals, sums: dict[int, str]
    ) -> None:
        """Emit one iteration of pass ``t``; all loads come before the first store."""
        code, plan = self.code, self.plan
        body = _Inner(self, row, t, offsets, column)
        for index, (_, local) in totals.items():
            how = self.reduce[index]
            element = how.element(code, body.get(self._step(index).refs[0]))
            code.store(how.join(code, code.load(local, how.type), element, free=True), local)
        stores: list[Callable[[], None]] = []
        for index in sorted(plan.makes[t] & plan.kept):
            value = body.get(Ref(index))
            kind = TYPES["float32"] if value.type.reg == "float" else value.type
            stores.append(_storing(code, Val(value.text, kind), self.scratch[index], column))
        for position, ref in enumerate(self.cluster.outputs, self.n):
            if ref.index not in plan.after and plan.is_inner(ref.index) and plan.stage[ref.index] == t:
                stores.append(_storing(code, body.get(ref), f"%a{position}", offsets[position]))
        for index in plan.across:
            if self.vector(index) and self._pass(index) == t:
                how = self.reduce[index]
                element = how.element(code, body.get(self._step(index).refs[0]))
                joined = how.join(code, code.load(sums[index], how.type, column), element)
                stores.append(_storing(code, joined, sums[index], column))
        for store in stores:
            store()


def _storing(code: Code, value: Val, pointer: str, index: Index) -> Callable[[], None]:
    return lambda: code.store(value, pointer, index)


def rowwise(cluster: Cluster, plan: Schedule, fma: bool) -> tuple[str, int, tuple[int, ...]]:
    """The module of a cluster with reductions: text, pieces of work, sizes of temporary arrays."""
    return Rows(cluster, plan, fma).module()
