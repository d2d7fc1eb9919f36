"""Grid sampling, affine grids, and sums of bags of rows."""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Node, wrap
from tenon.ops import affine_grid
from tenon_target_c.emitters import emits
from tenon_target_c.families.indexing import indices
from tenon_target_c.families.products import FLOATS, NUMBERS, batched
from tenon_target_c.program import Program, out, shape_text
from tenon_target_c.values import SUFFIXES, View

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


@emits("grid_places", when=lambda node: node.args[0].aval.dtype.name in FLOATS)
def emit_places(program: Program, node: Node) -> None:
    """Add the indices of the elements from which each point of a grid is interpolated (its taps)."""
    grid, target, a = program.dense(node.args[0]), program.new(node), node.attrs
    if target.size:
        sizes = f"(const long[]){shape_text(a['sizes'])}"
        program.step(
            f"k_grid_places_{SUFFIXES[grid.dtype.name]}", *grid.shape[:2], len(a["sizes"]), sizes,
            _TAPS[a["mode"]], _PADDINGS[a["padding"]], bool(a["align"]), grid, out(target),
        )  # fmt: skip


def _has_one_float_dtype(node: Node) -> bool:
    kinds = {node.avals[0].dtype.name, *(r.aval.dtype.name for r in node.refs[:2])}
    return len(kinds) == 1 and kinds <= set(FLOATS)


@emits("tap_sum", "tap_spread", "tap_dot", when=_has_one_float_dtype)
def emit_taps(program: Program, node: Node) -> None:
    """Add the weighted sums of the taps, or one of their gradients."""
    first, second = (program.dense(a) for a in node.args[:2])
    places, target = indices(program, node.args[2]), program.new(node)
    if not target.size:
        return
    image = {"tap_sum": first, "tap_spread": target, "tap_dot": second}[node.name]
    sizes = (*first.shape[:2], image.shape[2], *places.shape[1:])
    program.step(f"k_{node.name}_{SUFFIXES[first.dtype.name]}", *sizes, first, second, places, out(target))


def _points(program: Program, node: Node, rank: int) -> View:
    """Return the coordinates of all pixels, and 1: what the identity gives."""
    identity = np.eye(rank, rank + 1, dtype=node.avals[0].dtype)[None]
    attrs = {"sizes": node.attrs["sizes"], "align": node.attrs["align"]}
    grid = np.asarray(affine_grid(wrap(identity), **attrs).numpy())[0]
    return program.weight(np.concatenate([grid, np.ones_like(grid[:, :1])], 1))


def _supports_affine_grid(node: Node) -> bool:
    return node.avals[0].dtype.name in FLOATS


@emits("affine_grid", when=_supports_affine_grid)
def emit_affine_grid(program: Program, node: Node) -> None:
    """Add the coordinates to which affine maps take all pixels."""
    theta, target = program.view(node.args[0]), program.new(node)
    if target.size:
        points = _points(program, node, theta.shape[1])
        batched(program, points, theta.moved(theta.array.swapaxes(1, 2)), target, theta.shape[:1])


@emits("affine_grid_grad", when=_supports_affine_grid)
def emit_affine_grid_gradient(program: Program, node: Node) -> None:
    """Add the gradient of the maps."""
    grad, target = program.view(node.args[0]), program.new(node)
    if target.size:
        points = _points(program, node, target.shape[1])
        batched(program, grad.moved(grad.array.swapaxes(1, 2)), points, target, grad.shape[:1])


@emits("segment_sum", "segment_spread", when=lambda node: node.avals[0].dtype.name in NUMBERS)
def emit_segments(program: Program, node: Node) -> None:
    """Add sums of bags of rows, or their transpose."""
    x, offsets, target = program.dense(node.args[0]), indices(program, node.args[1]), program.new(node)
    if not target.size:
        return
    rows = (node.attrs["rows"],) if node.name == "segment_spread" else ()
    program.step(
        f"k_{node.name}_{SUFFIXES[x.dtype.name]}", offsets.size, node.attrs["end"],
        math.prod(target.shape[1:]), x, offsets, *rows, out(target), fallible=True,
    )  # fmt: skip
