"""Reductions over axes: sums, means, products, extrema, logic; positions of extrema; cumulative sums and
products.

A kernel reduces the middle axis of ``[outer, n, inner]``. Axes that are not adjacent are moved together
first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenon.extend import Node
from tenon_target_c.emitters import emits
from tenon_target_c.families.elementwise import Loop, copy_loop, fill
from tenon_target_c.program import Program, out
from tenon_target_c.values import SUFFIXES, View, reserve


def _has_dtype(*dtypes: str) -> object:
    return lambda node: (
        node.refs[0].aval.dtype.name in dtypes and node.avals[0].dtype.name in (*dtypes, "bool")
    )


def _sides(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int]:
    """Return the sizes before, along and after neighbouring ``axes``."""
    first, last = axes[0], axes[-1]
    return math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])


def reduce(program: Program, x: View, axes: Sequence[int], kernel: str, target: View) -> None:
    """Add a reduction of ``x`` over ``axes`` (sorted) into ``target``, in C order of the remaining axes."""
    axes = [a for a in axes if x.shape[a] != 1]
    if not axes:
        copy_loop(program, x.moved(x.array.reshape(-1)) if x.dense else x, _like(x, target))
        return
    if axes[-1] - axes[0] + 1 != len(axes):
        if kernel == "k_sum_f32" and x.dense and axes == [0, *range(axes[1], x.array.ndim)]:
            _reduce_twice(program, x, axes, kernel, target)
            return
        remaining = [a for a in range(x.array.ndim) if a not in axes]
        x = x.moved(x.array.transpose(*remaining, *axes))
        axes = list(range(len(remaining), x.array.ndim))
    outer, n, inner = _sides(x.shape, axes)
    program.step(kernel, outer, n, inner, program.dense(x), out(target))


def _like(x: View, target: View) -> View:
    flat = target.array.reshape(-1)
    return target.moved(flat if x.dense else flat.reshape(x.shape))


def _reduce_twice(program: Program, x: View, axes: list[int], kernel: str, target: View) -> None:
    """Reduce the last axes, then the first ones, such as all but the channels of images."""
    middle = x.shape[: axes[1]]
    part = reserve("arena", middle, x.dtype)
    program.step(kernel, math.prod(middle), math.prod(x.shape[axes[1] :]), 1, x, out(part))
    program.step(kernel, 1, middle[0], math.prod(middle[1:]), part, out(target))


_NUMBERS = ("float32", "float64", "int64", "int32")


@emits("sum", "prod", when=_has_dtype(*_NUMBERS))  # type: ignore[arg-type]
@emits("amax", "amin")
def emit_reduction(program: Program, node: Node) -> None:
    """Add a reduction that keeps the dtype."""
    x, target = program.view(node.args[0]), program.new(node)
    if not target.size:
        return
    if not x.size:
        fill(program, target, 1 if node.name == "prod" else 0)
        return
    reduce(program, x, sorted(node.attrs["axes"]), f"k_{node.name}_{SUFFIXES[x.dtype.name]}", target)


@emits("mean", when=_has_dtype("float32", "float64"))  # type: ignore[arg-type]
def emit_mean(program: Program, node: Node) -> None:
    """Add a sum, and its division by the count."""
    x, target = program.view(node.args[0]), program.new(node)
    if not target.size:
        return
    count = math.prod(x.shape[a] for a in node.attrs["axes"])
    if not count:
        fill(program, target, math.nan)
        return
    total = reserve("arena", target.shape, target.dtype)
    reduce(program, x, sorted(node.attrs["axes"]), f"k_sum_{SUFFIXES[x.dtype.name]}", total)
    Loop(program, target, [total]).emit([], f"x0 / ({target.ctype})s0", [f"(double){count}"], "share")


@emits("sum_to", when=_has_dtype(*_NUMBERS))  # type: ignore[arg-type]
def emit_sum_to(program: Program, node: Node) -> None:
    """Add the sum over broadcast axes."""
    x, target = program.view(node.args[0]), program.new(node)
    shape, own = tuple(node.attrs["shape"]), x.shape
    if not target.size:
        return
    if not x.size:
        fill(program, target, 0)
        return
    lead = len(own) - len(shape)
    axes = [i for i in range(len(own)) if i < lead or (shape[i - lead] == 1 and own[i] != 1)]
    reduce(program, x, axes, f"k_sum_{SUFFIXES[x.dtype.name]}", target)


@emits("any", "all")
def emit_logic(program: Program, node: Node) -> None:
    """Add whether any element, or each, is non-zero."""
    x, target = program.view(node.args[0]), program.new(node)
    if x.ctype != "uint8_t":
        x = program.copy(x, reserve("arena", x.shape, np.dtype(np.bool_)))
    if not target.size:
        return
    if not x.size:
        fill(program, target, int(node.name == "all"))
        return
    reduce(program, x, sorted(node.attrs["axes"]), f"k_{node.name}_u8", target)


@emits("argmax", "argmin")
def emit_position(program: Program, node: Node) -> None:
    """Add the index of the first maximum or minimum."""
    x, target = program.dense(node.args[0]), program.new(node)
    if not target.size:
        return
    axis = node.attrs["axis"]
    axes = range(x.array.ndim) if axis is None or not x.shape else [axis % x.array.ndim]
    outer, n, inner = _sides(x.shape, list(axes)) if x.shape else (1, 1, 1)
    program.step(f"k_{node.name}_{SUFFIXES[x.dtype.name]}", outer, n, inner, x, out(target))


@emits("cumsum", "cumprod", when=_has_dtype("float32", "float64", "int64"))  # type: ignore[arg-type]
def emit_running(program: Program, node: Node) -> None:
    """Add a cumulative sum or product."""
    x, target = program.dense(node.args[0]), program.new(node)
    if not target.size:
        return
    outer, n, inner = _sides(x.shape, [node.attrs["axis"]]) if x.shape else (1, 1, 1)
    program.step(f"k_{node.name}_{SUFFIXES[x.dtype.name]}", outer, n, inner, x, out(target))
