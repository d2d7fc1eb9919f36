"""Limits of clusters: the size that compiles fast, and the reductions that one kernel can compute."""

from __future__ import annotations

from tenon.graph.cluster import Cluster
from tenon.kernels.backend import Backend

#: Maximum numbers of steps, which bounds the compile time, and of arrays, which bounds register use.
STEPS, ARRAYS = 80, 24
#: Maximum length of a row that is reduced and read again in one kernel.
ROW = 1 << 16


def is_one_kernel(backend: Backend, cluster: Cluster) -> bool:
    """Whether ``backend`` has one kernel for ``cluster``."""
    compiler = backend.compiler
    if compiler is None or not 0 < len(cluster.steps) <= STEPS or not _reduces_rows(cluster):
        return False
    return compiler.fuse(cluster) is not None


def _reduces_rows(cluster: Cluster) -> bool:
    """Whether all reductions whose result is used in the cluster run over rows of one length up to
    ``ROW``."""
    count = len(cluster.inputs)
    moved: dict[int, int] = {}
    length = None
    for index, step in enumerate(cluster.steps, count):
        for ref in step.refs:
            source = moved.get(ref.index, ref.index)
            reduction = cluster.steps[source - count] if source >= count else None
            if reduction is None or not reduction.reduces:
                continue
            if step.moves:
                moved[index] = source
                continue
            row = _row_length(cluster.aval(reduction.refs[0]).shape, reduction.attr("axes"))
            if row is None or row > ROW or (length is not None and row != length):
                return False
            length = row
    return True


def _row_length(shape: tuple[int, ...], axes: tuple[int, ...]) -> int | None:
    """Return the length of a row if ``axes`` are the last axes of ``shape``, ignoring sizes of 1; else
    None."""
    length, ended = 1, False
    for axis in reversed(range(len(shape))):
        if axis in axes and shape[axis] != 1:
            if ended:
                return None
            length *= shape[axis]
        elif shape[axis] != 1:
            ended = True
    return length
