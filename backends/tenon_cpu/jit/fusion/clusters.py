"""Fused clusters on the CPU: ``fuse(cluster)`` is a kernel called as ``kernel(*inputs, *outputs)``.

A kernel is generated at the first call for the strides of its arrays, and kept for later calls with these;
``bind(*arrays)`` fixes the arrays, so that a program's replay costs one call of machine code and no more.
Without llvmlite, and for clusters that there is no code for, ``fuse`` returns None: the ops run one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
    """The machine code of a cluster for arrays of certain strides."""

    def __init__(self, text: str, pieces: int, work: int, scratch: tuple[int, ...] = ()) -> None:
        self.text = text
        self.entry = llvm.load(text)
        self.pieces = pieces
        self.work = work
        #: The number of float64 elements of each temporary array that the caller provides.
        self.scratch = scratch

    @property
    def threads(self) -> int:
        """The number of threads that the kernel can use."""
        return llvm.ALL if self.work >= SHARED else 1


class FusedKernel:
    """The kernel of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.domain = Domain(cluster)
        self.types = types_of(cluster)
        self.size = max([1, *(s.aval.size for s in cluster.steps), *(a.size for a in cluster.inputs)])
        if self.cluster.reduces:  # raises NotFusableError now if there is no code for it
            rowwise(cluster, scheduled(cluster, split(cluster, Loops(self.domain, self._contiguous()))), True)
        self.empty = any(s.aval.size == 0 for s in cluster.steps)
        self._generated: dict[tuple[tuple[int, ...], ...], Generated] = {}

    def __call__(self, *arrays: np.ndarray | float) -> None:
        """Compute the outputs (the last arrays) from the inputs; number inputs are Python floats."""
        self.bind(*arrays)()

    def bind(self, *arrays: np.ndarray | float) -> Callable[[], None]:
        """A function without arguments that computes on these arrays; a number may be a 0-d float64 array."""
        if self.empty:
            return _nothing
        ins = arrays[: len(self.cluster.inputs)]
        if self.cluster.reduces and _overlap(ins, arrays[len(ins) :]):
            raise errors.NotFusableError("a reduction over a row cannot overwrite the row.")
        numbers = self.cluster.numbers
        operands = [np.asarray(a, np.float64 if i in numbers else None) for i, a in enumerate(arrays)]
        code = self.generated(operands)
        extra = scratch.arrays(code.scratch)
        table = np.array([a.__array_interface__["data"][0] for a in [*operands, *extra]], np.int64)
        return bound(code.entry, table, code.threads, operands, extra)

    def generated(self, arrays: list[np.ndarray]) -> Generated:
        """The code for arrays with these strides."""
        key = tuple([a.strides for a in arrays])
        code = self._generated.get(key)
        if code is None:
            code = self._generated[key] = self._generate(self._layouts(arrays))
        return code

    def _layouts(self, arrays: list[np.ndarray]) -> tuple[tuple[int, ...], ...]:
        """The strides of inputs and outputs in elements; ArgumentError if they do not fit the cluster."""
        refs = [*range(len(self.cluster.inputs)), *(r.index for r in self.cluster.outputs)]
        layouts = []
        for a, index in zip(arrays, refs, strict=True):
            kind = self.types[index]
            if a.dtype.name != kind.name or a.shape != self.domain.shapes[index]:
                raise errors.ArgumentError(
                    f"a fused kernel was given {a.dtype}{list(a.shape)} where its cluster has "
                    f"{kind.name}{list(self.domain.shapes[index])}. Build a cluster for these arrays."
                )
            if any(s % kind.size for s, n in zip(a.strides, a.shape, strict=True) if n > 1):
                raise errors.NotFusableError(f"strides {a.strides} are not multiples of {kind.size} bytes.")
            layouts.append(
                tuple(s // kind.size if n > 1 else 0 for s, n in zip(a.strides, a.shape, strict=True))
            )
        return tuple(layouts)

    def _contiguous(self) -> tuple[tuple[int, ...], ...]:
        """The layouts of contiguous inputs and outputs."""
        layouts = []
        for index in (*range(len(self.cluster.inputs)), *(r.index for r in self.cluster.outputs)):
            shape = self.domain.shapes[index]
            strides = [0 if n == 1 else math.prod(shape[d + 1 :]) for d, n in enumerate(shape)]
            layouts.append(tuple(strides))
        return tuple(layouts)

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


def _overlap(ins: Sequence[np.ndarray | float], outs: Sequence[np.ndarray | float]) -> bool:
    """Whether an output shares memory with an input."""
    arrays = [a for a in ins if isinstance(a, np.ndarray) and a.ndim]
    return any(np.may_share_memory(a, b) for b in outs for a in arrays)


def _nothing() -> None:
    """The bound kernel of arrays without elements."""


_kernels: dict[Cluster, FusedKernel | None] = {}


def fuse(cluster: Cluster) -> FusedKernel | None:
    """The kernel of ``cluster``; None if there is no code for it."""
    if not llvm.available():
        return None
    if cluster not in _kernels:
        try:
            _kernels[cluster] = FusedKernel(cluster)
        except errors.NotFusableError:
            _kernels[cluster] = None
    return _kernels[cluster]
