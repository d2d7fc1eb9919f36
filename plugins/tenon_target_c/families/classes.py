"""Ops over classes: one-hot vectors, negative log likelihood.

A class outside of the range ends the run with an error.
"""

from __future__ import annotations

import math

from tenon.extend import Node
from tenon_target_c.emitters import emits
from tenon_target_c.families.indexing import indices
from tenon_target_c.families.products import FLOATS
from tenon_target_c.program import Program, out
from tenon_target_c.values import SUFFIXES


@emits("one_hot")
def emit_one_hot(program: Program, node: Node) -> None:
    """Add one-hot vectors: zeros, in which one element of each row is set."""
    index, target = indices(program, node.args[0]), program.new(node)
    if target.size:
        program.step("k_one_hot", index.size, node.attrs["classes"], index, out(target), fallible=True)


def _sides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the sizes before, along and after the axis of classes."""
    if len(shape) == 1:
        return 1, shape[0], 1
    return shape[0], shape[1], math.prod(shape[2:])


_REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}


@emits("nll_loss", "nll_loss_grad", when=lambda node: node.avals[0].dtype.name in FLOATS)
def emit_nll_loss(program: Program, node: Node) -> None:
    """Add the negative log likelihood, or its gradient."""
    first, index, target = program.dense(node.args[0]), indices(program, node.args[1]), program.new(node)
    weight = program.dense(node.args[2]) if node.args[2] is not None else "NULL"
    backward = node.name == "nll_loss_grad"
    if not target.size:
        return
    sizes = _sides(target.shape if backward else first.shape)
    reduction = _REDUCTIONS[node.attrs.get("reduction", "mean")]
    kernel = f"k_nll_loss{'_gradient' if backward else ''}_{SUFFIXES[first.dtype.name]}"
    ignored = node.attrs.get("ignore_index", -100)
    program.step(kernel, *sizes, first, index, weight, reduction, ignored, out(target), fallible=True)
