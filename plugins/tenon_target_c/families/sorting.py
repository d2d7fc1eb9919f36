"""Sorting, binary search, cumulative maxima and minima, cumulative log-sum-exp."""

from __future__ import annotations

import math

from tenon.extend import Node
from tenon_target_c.emitters import emits
from tenon_target_c.families.elementwise import fill
from tenon_target_c.program import Program, out
from tenon_target_c.values import SUFFIXES, View


def _is_sortable(node: Node) -> bool:
    return all(r.aval.dtype.name in SUFFIXES for r in node.refs)


@emits("argsort", when=_is_sortable)
def emit_argsort(program: Program, node: Node) -> None:
    """Add the indices that sort the elements along an axis, which is moved to the end."""
    x, target = program.view(node.args[0]), program.new(node)
    if not target.size:
        return
    if not x.shape:
        fill(program, target, 0)
        return
    axis, n = node.attrs["axis"], x.shape[node.attrs["axis"]]
    moved = program.dense(x.moved(x.array.swapaxes(axis, -1)))
    place = target.moved(target.array.swapaxes(axis, -1))
    result = place if place.dense else program.scratch(target.size, "int64").reshaped(*place.shape)
    a = node.attrs
    start = a.get("start", 0) if a.get("stop") is not None else 0
    program.step(
        f"k_argsort_{SUFFIXES[x.dtype.name]}", x.size // n, n, moved, bool(a.get("descending")), start,
        place.shape[-1], out(result), out(program.scratch(2 * n, "int64")),
    )  # fmt: skip
    if result is not place:
        program.copy(result, place)


def _supports_search(node: Node) -> bool:
    kinds = {a.aval.dtype for a in node.args}
    return len(kinds) == 1 and kinds.pop().name in ("float32", "float64", "int32", "int64")


@emits("searchsorted", when=_supports_search)
def emit_search(program: Program, node: Node) -> None:
    """Add the positions at which numbers would be inserted into sorted rows."""
    x, y, target = program.dense(node.args[0]), program.dense(node.args[1]), program.new(node)
    if not target.size:
        return
    shared = len(x.shape) == 1
    rows = 1 if shared else math.prod(x.shape[:-1])
    program.step(
        f"k_searchsorted_{SUFFIXES[x.dtype.name]}", rows, x.shape[-1], y.size // rows, x, shared, y,
        bool(node.attrs.get("right", False)), out(target),
    )  # fmt: skip


def _sides(x: View, axis: int) -> tuple[int, int, int]:
    if not x.shape:
        return 1, 1, 1
    return math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])


@emits("running_extreme", when=_supports_search)
def emit_running_extreme(program: Program, node: Node) -> None:
    """Add the index of the cumulative maximum or minimum."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        kernel = f"k_running_extreme_{SUFFIXES[x.dtype.name]}"
        largest = bool(node.attrs.get("largest", True))
        program.step(kernel, *_sides(x, node.attrs["axis"]), x, largest, out(target))


@emits("logcumsumexp", when=lambda node: node.avals[0].dtype.name in ("float32", "float64"))
def emit_logcumsumexp(program: Program, node: Node) -> None:
    """Add the cumulative log-sum-exp."""
    x, target = program.dense(node.args[0]), program.new(node)
    if target.size:
        kernel = f"k_logcumsumexp_{SUFFIXES[x.dtype.name]}"
        program.step(kernel, *_sides(x, node.attrs.get("axis", 0)), x, out(target))
