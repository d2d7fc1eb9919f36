"""Look-ups by index: embedding, gather, advanced indexing along one axis, one-hot rows.

An index outside of its range ends the run with an error; nothing is read or written there.
"""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_c.emitters import emits
from tenon_target_c.program import Program, out
from tenon_target_c.values import View, reserve

_SUFFIXES = {"float32": "f32", "int64": "i64"}


def _fits(node: Node) -> bool:
    return node.refs[0].aval.dtype.name in _SUFFIXES


def indices(program: Program, ref: Ref) -> View:
    """Return an index array in C order, as int64."""
    view = program.view(ref)
    if view.dtype == np.int64:
        return program.dense(view)
    return program.copy(view, reserve("arena", view.shape, np.dtype(np.int64)))


@emits("embedding", when=_fits)
def emit_embedding(program: Program, node: Node) -> None:
    """Copy rows of the table."""
    weight, index = program.dense(node.args[0]), indices(program, node.args[1])
    _look_up(program, weight, index, program.new(node), 0)


def _look_up(program: Program, table: View, index: View, target: View, wrap: int) -> None:
    if index.size and target.size:
        rows, n = table.shape[0], math.prod(table.shape[1:])
        program.step(
            f"k_look_up_{_SUFFIXES[table.dtype.name]}", index.size, rows, n, table, index, wrap, out(target),
            fallible=True,
        )  # fmt: skip


def _is_simple(node: Node) -> bool:
    return _fits(node) and len(node.args) == 2 and node.args[1].aval.dtype.kind == "i"


@emits("take", when=_is_simple)
def emit_take(program: Program, node: Node) -> None:
    """Copy the elements at an index array along one axis, which is moved to the front."""
    x, index = program.view(node.args[0]), indices(program, node.args[1])
    target = program.new(node)
    axis = next(a for a, k in enumerate(node.attrs["layout"]) if not isinstance(k, slice))
    moved = program.dense(x.moved(np.moveaxis(x.array, axis, 0)))
    if not axis:
        _look_up(program, moved, index, target, 1)
        return
    result = reserve("arena", (*index.shape, *moved.shape[1:]), x.dtype)
    _look_up(program, moved, index, result, 1)
    lead = len(index.shape)
    order = [*range(lead, lead + axis), *range(lead), *range(lead + axis, result.array.ndim)]
    program.copy(result.moved(result.array.transpose(order)), target)


def _gathers(node: Node) -> bool:
    return _fits(node)


@emits("gather", when=_gathers)
def emit_gather(program: Program, node: Node) -> None:
    """Pick elements along an axis by an index of the same rank."""
    x, index, target = program.view(node.args[0]), indices(program, node.args[1]), program.new(node)
    if not target.size:
        return
    axis = node.attrs["axis"]
    if x.shape:
        window = tuple(slice(None) if a == axis else slice(0, s) for a, s in enumerate(index.shape))
        x = program.dense(x.moved(x.array[window]))
    shape = x.shape or (1,)
    outer, n, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    count = (index.shape or (1,))[axis]
    program.step(
        f"k_gather_{_SUFFIXES[x.dtype.name]}", outer, n, inner, count, x, index, out(target), fallible=True
    )


@emits("embedding_grad", when=lambda node: _fits(node) and not node.attrs.get("by_frequency"))
def emit_embedding_gradient(program: Program, node: Node) -> None:
    """Add up rows of the gradient by index."""
    g, index, target = program.dense(node.args[0]), indices(program, node.args[1]), program.new(node)
    if target.size:
        rows, n = target.shape
        program.step(
            "k_embedding_gradient", index.size, rows, n, g, index, node.attrs.get("padding_idx", -1),
            out(target), fallible=True,
        )  # fmt: skip


@emits("one_hot")
def emit_one_hot(program: Program, node: Node) -> None:
    """Set one element of each row of zeros."""
    index, target = indices(program, node.args[0]), program.new(node)
    if target.size:
        program.step("k_one_hot", index.size, node.attrs["classes"], index, out(target), fallible=True)


def _sides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the sizes before, along and after the axis of classes."""
    if len(shape) == 1:
        return 1, shape[0], 1
    return shape[0], shape[1], math.prod(shape[2:])


_REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}


@emits("nll_loss", "nll_loss_grad", when=lambda node: node.avals[0].dtype == np.float32)
def emit_nll_loss(program: Program, node: Node) -> None:
    """Add the loss of log-probabilities by class, or its gradient."""
    first, index, target = program.dense(node.args[0]), indices(program, node.args[1]), program.new(node)
    weight = program.dense(node.args[2]) if node.args[2] is not None else "NULL"
    backward = node.name == "nll_loss_grad"
    if not target.size:
        return
    sizes = _sides(target.shape if backward else first.shape)
    reduction = _REDUCTIONS[node.attrs.get("reduction", "mean")]
    kernel = "k_nll_loss_gradient" if backward else "k_nll_loss"
    ignored = node.attrs.get("ignore_index", -100)
    program.step(kernel, *sizes, first, index, weight, reduction, ignored, out(target), fallible=True)
