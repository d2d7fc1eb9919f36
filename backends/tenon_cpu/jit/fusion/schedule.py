"""Schedule a cluster with reductions: which axes form a row, and what each pass over a row computes.

The *inner* axes form a row, the *outer* ones enumerate rows. A reduction over all inner axes has its result
at the end of a pass over the row, and later passes may use it: softmax, norms. A reduction over all outer
axes is accumulated row by row, and has its result at the end of all rows: bias gradients, losses; values that
depend on it are computed *after*. So softmax takes three passes over a row that stays in the cache, and a
layer norm's gradients for input, weight and bias one pass over memory.
"""

from __future__ import annotations

import math

from tenon.extend import errors, expressions
from tenon_cpu.jit.fusion.domain import Cluster, Loops, Ref

#: Bytes of a kernel's temporary rows, which are on its stack.
SCRATCH = 192 << 10
#: Elements of the accumulators of all chunks together.
MOST = 1 << 19
#: Chunks of rows that are accumulated separately, so that results do not depend on the number of threads.
CHUNKS = 32
#: Elements of a row cut from a long axis.
PIECE = 1 << 12


class Schedule:
    """The plan for one choice of inner axes; NotFusableError if they do not fit the cluster."""

    def __init__(self, cluster: Cluster, loops: Loops, inner: frozenset[int]) -> None:
        self.cluster, self.loops, self.inner = cluster, loops, inner
        self.n = len(cluster.inputs)
        self.count = self.n + len(cluster.steps)
        every = frozenset(range(len(loops.sizes)))
        self.outer_axes = [a for a in range(len(loops.sizes)) if a not in inner]
        self.inner_axes = [a for a in range(len(loops.sizes)) if a in inner]
        self.row = math.prod(loops.sizes[a] for a in self.inner_axes)
        #: Reductions over the row, over the rows, and over everything.
        self.rowwise: list[int] = []
        self.across: list[int] = []
        self.total: list[int] = []
        self.after: set[int] = set()
        self.stage = [0] * self.count
        for index, step in enumerate(cluster.steps, self.n):
            self._place(index, step.reduces, [r.index for r in step.refs], every)
        self._passes()

    def _place(self, index: int, reduction: bool, sources: list[int], every: frozenset[int]) -> None:
        has, reduced = self.loops.has, self.loops.reduced
        if any(i in self.after for i in sources):
            if reduction or not (has[index] == self.inner or not has[index]):
                raise errors.NotFusableError("a value after a sum over the rows has all of the rows' axes.")
            if any(self.stage[i] for i in sources if i not in self.after):
                raise errors.NotFusableError("a value after a sum over the rows reads one along a row.")
            self.after.add(index)
            return
        self.stage[index] = max((self.stage[i] for i in sources), default=0)
        if not reduction:
            return
        source = sources[0]
        if reduced[index] == self.inner and has[source] >= self.inner and self.inner:
            self.rowwise.append(index)
            self.stage[index] += 1
        elif reduced[index] == every and has[source] == every:
            self.total.append(index)
            self.after.add(index)
        elif (
            reduced[index] == every - self.inner == has[source] - self.inner
            and reduced[index]
            and (has[source] & self.inner) in (self.inner, frozenset())
        ):
            self.across.append(index)
            self.after.add(index)
        else:
            raise errors.NotFusableError("a reduction runs over some axes of a row, or of the rows, only.")

    def is_inner(self, index: int) -> bool:
        """Whether a value has axes of the row."""
        return bool(self.loops.has[index] & self.inner)

    def _passes(self) -> None:
        """Find what each pass over the row computes; values of earlier passes are kept or computed again."""
        cluster = self.cluster
        outputs = [r.index for r in cluster.outputs if r.index not in self.after]
        reductions = (*self.rowwise, *self.across, *self.total)
        sources = {i: cluster.steps[i - self.n].refs[0].index for i in reductions}
        last = max([self.stage[i] for i in [*outputs, *sources.values()]], default=0)
        #: For each pass, the values along the row that it computes, and the values per row that it reads.
        self.makes: list[set[int]] = [set() for _ in range(last + 1)]
        self.reads: list[set[int]] = [set() for _ in range(last + 2)]
        for index in [*outputs, *sources.values()]:
            if self.is_inner(index):
                self.makes[self.stage[index]].add(index)
            else:
                self.reads[-1].add(index)
        self.kept: set[int] = set()
        room = SCRATCH
        for t in range(last, -1, -1):
            seen: set[int] = set()
            for root in sorted(self.makes[t]):
                room = self._walk(root, t, seen, room)
        #: Every stage has a reduction, so no pass computes values that are not read.
        self.passes = [t for t in range(last + 1) if self.makes[t]]

    def _walk(self, index: int, t: int, seen: set[int], room: int) -> int:
        """Note what value ``index`` needs in pass ``t``; returns the bytes left of ``room`` for kept rows."""
        if index in seen:
            return room
        seen.add(index)
        if not self.is_inner(index):
            self.reads[t].add(index)
            return room
        step = self.cluster.step(Ref(index))
        if step is None:
            return room
        own = self.stage[index]
        if own < t:
            size = self.row * 8
            if index in self.kept or (self._is_costly(index) and size <= room):
                if index not in self.kept:
                    self.kept.add(index)
                    room -= size
                self.makes[own].add(index)
                return room
        for ref in step.refs:
            room = self._walk(ref.index, t, seen, room)
        return room

    def _is_costly(self, index: int) -> bool:
        """Whether computing a value again from the inputs costs more than reading it back."""
        work, stack, seen = 0, [index], set()
        while stack:
            i = stack.pop()
            step = self.cluster.step(Ref(i))
            if i in seen or step is None or not self.is_inner(i):
                continue
            seen.add(i)
            op = step.definition
            work += 8 if expressions.is_costly(op) or expressions.divides(op) else 1
            stack += [r.index for r in step.refs]
        return work > 4


def scheduled(cluster: Cluster, loops: Loops) -> Schedule:
    """The best plan for a cluster with reductions; NotFusableError if there is none."""
    size = len(loops.sizes)
    every = frozenset(range(size))
    choices = [frozenset(range(i, size)) for i in range(size - 1, -1, -1)]
    choices += sorted(set(loops.reduced.values()) - set(choices), key=len)
    reason: Exception | None = None
    plans = []
    for inner in choices:
        try:
            plan = Schedule(cluster, loops, inner)
        except errors.NotFusableError as error:
            reason = reason or error
            continue
        strided = bool(every) and (size - 1) not in inner
        if any(loops.has[i] & inner for i in plan.across) and plan.row > MOST // 8:
            continue
        if plan.row > 1 << 20 and (plan.rowwise or plan.across):
            continue
        plans.append(((strided, inner == every, -len(plan.rowwise), len(inner)), plan))
    if not plans:
        raise errors.NotFusableError(f"no order of loops fits: {reason}")
    cost, plan = min(plans, key=lambda pair: pair[0])
    if cost[0] and math.prod(loops.sizes) > 1 << 14:
        raise errors.NotFusableError("the reduction runs along memory that is not contiguous.")
    return plan


def split(cluster: Cluster, loops: Loops) -> Loops:
    """Cut a single long axis that is reduced as a whole into rows, so that threads can share it."""
    if len(loops.sizes) != 1 or loops.sizes[0] < 4 * PIECE:
        return loops
    after: set[int] = set(loops.reduced)
    for index, step in enumerate(cluster.steps, len(cluster.inputs)):
        if index not in after and any(r.index in after for r in step.refs):
            after.add(index)
            if loops.has[index]:
                return loops  # a value along the axis depends on the result: the axis stays one row
    loops.tail = loops.sizes[0]
    loops.sizes = [-(-loops.tail // PIECE), PIECE]
    loops.strides = [[s[0] * PIECE, s[0]] for s in loops.strides]
    both = frozenset({0, 1})
    loops.has = [both if h else h for h in loops.has]
    loops.reduced = dict.fromkeys(loops.reduced, both)
    return loops
