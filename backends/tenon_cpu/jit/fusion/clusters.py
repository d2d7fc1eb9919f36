"""Fused clusters on the CPU: ``fuse(cluster)`` is a kernel called as ``kernel(*inputs, *outputs)``.

A kernel is generated for the strides of the arrays it is first given, and kept for the next of the same;
``bind(*arrays)`` fixes the arrays, so that a program's replay pays for one call into machine code and nothing
else. Without llvmlite, and for what has no code, ``fuse`` is None: the ops run one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.extend import errors, expressions
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.emission.pointwise import pointwise, types_of
from tenon_cpu.jit.emission.rows import rowwise
from tenon_cpu.jit.fusion import scratch
from tenon_cpu.jit.fusion.chains import bound
from tenon_cpu.jit.fusion.domain import Cluster, Domain, Loops
from tenon_cpu.jit.fusion.schedule import scheduled, split

#: Elements (weighted by the cost of their ops) below which one thread is faster than two.
SHARED = 1 << 16


class Generated:
    """Machine code of a cluster for arrays of certain strides."""

    def __init__(self, text: str, pieces: int, work: int, scratch: tuple[int, ...] = ()) -> None:
        self.text = text
        self.entry = llvm.load(text)
        self.pieces = pieces
        self.work = work
        #: Float64 elements of each temporary array that the caller provides.
        self.scratch = scratch

    @property
    def threads(self) -> int:
        """How many threads the kernel can use."""
        return llvm.ALL if self.work >= SHARED else 1


class FusedKernel:
    """A cluster as a kernel."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.domain = Domain(cluster)
        self.types = types_of(cluster)
        self.size = max([1, *(s.aval.size for s in cluster.steps), *(a.size for a in cluster.inputs)])
        if self.cluster.reduces:  # whether it fits shows before there are arrays
            rowwise(cluster, scheduled(cluster, split(cluster, Loops(self.domain, self._contiguous()))), True)
        self.empty = any(s.aval.size == 0 for s in cluster.steps)
        self._made: dict[Any, Generated] = {}

    def __call__(self, *arrays: Any) -> None:
        """Compute the outputs (the last arrays) from the inputs; number inputs are Python floats."""
        self.bind(*arrays)()

    def bind(self, *arrays: Any) -> Callable[[], None]:
        """A function of nothing that computes on these arrays; a number input may be a 0-d float64 array."""
        if self.empty:
            return _nothing
        ins = arrays[: len(self.cluster.inputs)]
        if self.cluster.reduces and _overlap(ins, arrays[len(ins) :]):
            raise errors.NotFusableError("a reduction over a row cannot overwrite the row.")
        held = [np.asarray(a, np.float64) if i in self.cluster.numbers else a for i, a in enumerate(arrays)]
        found = self.generated(held)
        extra = scratch.arrays(found.scratch)
        table = np.array([a.__array_interface__["data"][0] for a in [*held, *extra]], np.int64)
        return bound(found.entry, table, found.threads, held, extra)

    def generated(self, arrays: list[Any]) -> Generated:
        """The code for arrays with these strides."""
        key = tuple([a.strides for a in arrays])
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._generate(self._layouts(arrays))
        return found

    def _layouts(self, arrays: list[Any]) -> tuple[tuple[int, ...], ...]:
        refs = [*range(len(self.cluster.inputs)), *(r.index for r in self.cluster.outputs)]
        made = []
        for a, index in zip(arrays, refs, strict=True):
            kind = self.types[index]
            if a.dtype.name != kind.name or a.shape != self.domain.shapes[index]:
                raise errors.ArgumentError(
                    f"a fused kernel was given {a.dtype}{list(a.shape)} where its cluster has "
                    f"{kind.name}{list(self.domain.shapes[index])}. Build a cluster for these arrays."
                )
            if any(s % kind.size for s, n in zip(a.strides, a.shape, strict=True) if n > 1):
                raise errors.NotFusableError(f"strides {a.strides} are no multiples of {kind.size} bytes.")
            made.append(
                tuple(s // kind.size if n > 1 else 0 for s, n in zip(a.strides, a.shape, strict=True))
            )
        return tuple(made)

    def _contiguous(self) -> tuple[tuple[int, ...], ...]:
        """Layouts of contiguous arrays."""
        made = []
        for index in (*range(len(self.cluster.inputs)), *(r.index for r in self.cluster.outputs)):
            shape = self.domain.shapes[index]
            strides = [0 if n == 1 else math.prod(shape[d + 1 :]) for d, n in enumerate(shape)]
            made.append(tuple(strides))
        return tuple(made)

    def _generate(self, layouts: tuple[tuple[int, ...], ...]) -> Generated:
        fma = llvm.compiler().has_fma
        weight = 1 + 6 * sum(expressions.is_costly(s.definition) for s in self.cluster.steps)
        loops = Loops(self.domain, layouts)
        if not self.cluster.reduces:
            text, pieces = pointwise(self.cluster, loops, fma)
            return Generated(text, pieces, self.size * weight)
        plan = scheduled(self.cluster, split(self.cluster, loops))
        text, pieces, scratch = rowwise(self.cluster, plan, fma)
        return Generated(text, pieces, self.size * weight, scratch)


def _overlap(ins: Any, outs: Any) -> bool:
    """Whether an output lies where an input does."""
    return any(np.may_share_memory(a, b) for b in outs for a in ins if isinstance(a, np.ndarray) and a.ndim)


def _nothing() -> None:
    """Arrays without elements need no work."""


_made: dict[Cluster, Any] = {}


def fuse(cluster: Cluster) -> FusedKernel | None:
    """The kernel of ``cluster``; None where its ops are better left apart."""
    if not llvm.available():
        return None
    if cluster not in _made:
        try:
            _made[cluster] = FusedKernel(cluster)
        except errors.NotFusableError:
            _made[cluster] = None
    found: FusedKernel | None = _made[cluster]
    return found
