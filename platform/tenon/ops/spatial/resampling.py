"""Interpolation and padding by existing elements: ``resample`` and its transpose.

Each axis has a table of its own (``axis_tables.py``), so one op serves nearest-neighbour, linear, cubic and
filtered interpolation and reflected, replicated and circular padding in any number of axes; the gradient
applies the transposed tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.compat.saved_readers import RESAMPLED
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace
from tenon.ops.dtype_queries import dtype_of, is_short
from tenon.ops.spatial.axis_tables import Spec, Table, length, pads, table_of, transposed

_NAMES = {
    "nearest": "UpsampleNearest{}DBackward0",
    "nearest-exact": "UpsampleNearestExact{}DBackward0",
    "linear": "Upsample{}{}DBackward0",
    "cubic": "UpsampleBicubic{}DBackward0",
    "antialias-linear": "UpsampleBilinear{}DAaBackward0",
    "antialias-cubic": "UpsampleBicubic{}DAaBackward0",
    "antialias-lanczos": "UpsampleLanczos{}DAaBackward0",
    "reflect": "ReflectionPad{}DBackward0",
    "replicate": "ReplicationPad{}DBackward0",
    "circular": "CopySlices",
}
#: The number of padding elements of an axis up to which they are copied one by one.
_FEW = 64
_LINEAR = {1: "Linear", 2: "Bilinear", 3: "Trilinear"}


#: The spec of each of the last axes; None for an axis that does not change.
Plan = tuple[Spec | None, ...]
Apply = Callable[[ArrayNamespace, Array, Table, int], Array]


def apply_table(xp: ArrayNamespace, x: Array, table: Table, axis: int) -> Array:
    """Multiply ``x`` along ``axis`` by ``table``, in one pass for each entry of a row."""
    starts, places, weights = table
    counts = np.diff(starts)
    lead, spread = (slice(None),) * axis, (-1, *(1,) * (x.ndim - axis - 1))
    result = None
    for t in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > t)
        entries = starts[rows] + t
        part = xp.take(x, xp.asarray(places[entries]), axis=axis)
        if weights is not None:
            part = part * xp.asarray(weights[entries].astype(x.dtype)).reshape(spread)
        if rows.size == counts.size:
            result = part if result is None else result + part
            continue
        if result is None:
            result = xp.zeros((*x.shape[:axis], counts.size, *x.shape[axis + 1 :]), x.dtype)
        key = (*lead, xp.asarray(rows))
        result[key] = result[key] + part
    if result is None:
        return xp.zeros((*x.shape[:axis], counts.size, *x.shape[axis + 1 :]), x.dtype)
    return result


def tables(
    shape: tuple[int, ...], plan: Plan, dtype: np.dtype, *, for_gradient: bool
) -> list[tuple[int, Table]]:
    """Return ``(axis, table)`` for every axis that ``plan`` changes, in the cheapest order.

    ``shape`` is that of ``resample``'s input; ``for_gradient`` selects the tables of its gradient.
    """
    lead, wide = len(shape) - len(plan), dtype.itemsize == 8
    find_table = transposed if for_gradient else table_of
    entries = [
        (a + lead, find_table(s, shape[a + lead], wide), s) for a, s in enumerate(plan) if s is not None
    ]
    entries.sort(
        key=lambda entry: _order(entry[0], length(entry[2], shape[entry[0]]), shape[entry[0]], for_gradient)
    )
    return [(axis, table) for axis, table, _ in entries]


def _order(axis: int, new_size: int, size: int, for_gradient: bool) -> tuple[float, int]:
    """Return the sort key: axes that shrink most first; of equal ones the first axis, or the last if they
    grow."""
    growth = size / max(new_size, 1) if for_gradient else new_size / max(size, 1)
    return growth, -axis if growth > 1 else axis


def apply_tables(
    xp: ArrayNamespace, x: Array, steps: list[tuple[int, Table]], apply: Apply = apply_table
) -> Array:
    """Apply the tables of ``steps`` to ``x``; 16-bit floats are summed in float32 and rounded once."""
    short = is_short(x) and any(t.weights is not None or (np.diff(t.starts) != 1).any() for _, t in steps)
    result = x.astype(np.float32) if short else x
    for axis, table in steps:
        result = apply(xp, result, table, axis)
    result = result.astype(x.dtype) if short else result
    return result.copy() if result is x else result


def pads_few_elements(plan: Plan) -> bool:
    """Whether ``plan`` only pads, by so few elements that they are copied one by one."""
    return all(s is None or (pads(s) and s[1] + s[2] <= _FEW) for s in plan)


def _edges(shape: tuple[int, ...], plan: Plan) -> list[tuple[int, int, int]]:
    """Return ``(axis, index of a padding element, index of its source)`` for all padding, axis by axis."""
    copies, lead = [], len(shape) - len(plan)
    for axis, spec in enumerate(plan, lead):
        if spec is not None:
            size, before = shape[axis], spec[1]
            places = table_of(spec, size, False).places
            outside = (*range(before), *range(before + size, places.size))
            copies += [(axis, i, before + int(places[i])) for i in outside]
    return copies


def _inner(shape: tuple[int, ...], plan: Plan) -> tuple[slice, ...]:
    """Return the slices of the unpadded elements."""
    firsts = [0] * (len(shape) - len(plan)) + [0 if s is None else s[1] for s in plan]
    return tuple(slice(p, p + n) for p, n in zip(firsts, shape, strict=True))


def padded(xp: ArrayNamespace, x: Array, plan: Plan) -> Array:
    """Copy the input, then pad from the last axis to the first, including the padding so far."""
    lead = x.ndim - len(plan)
    sizes = [n if s is None else length(s, n) for s, n in zip(plan, x.shape[lead:], strict=True)]
    result, inner = xp.empty((*x.shape[:lead], *sizes), x.dtype), _inner(x.shape, plan)
    result[inner] = x
    for axis, target, source in reversed(_edges(x.shape, plan)):
        rows, rest = inner[:axis], (slice(None),) * (x.ndim - axis - 1)
        result[(*rows, target, *rest)] = result[(*rows, source, *rest)]
    return result


def unpadded(xp: ArrayNamespace, g: Array, shape: tuple[int, ...], plan: Plan) -> Array:
    """The transpose of ``padded``: add padding to its sources, from the first axis to the last."""
    sums, inner = g.copy(), _inner(shape, plan)
    for axis, source, target in _edges(shape, plan):
        rows, rest = inner[:axis], (slice(None),) * (g.ndim - axis - 1)
        sums[(*rows, target, *rest)] += sums[(*rows, source, *rest)]
    return xp.ascontiguousarray(sums[inner])


class Resample(Primitive):
    """The last axes of ``x`` resampled or padded by the specs in ``plan`` (None: unchanged); see
    ``axis_tables``."""

    kind = Kind.WINDOW
    follows = 1
    saved_names = RESAMPLED

    def infer(self, x, *, plan):
        """The new size of each axis in ``plan``."""
        lead = len(x.shape) - len(plan)
        sizes = (s if spec is None else length(spec, s) for spec, s in zip(plan, x.shape[lead:], strict=True))
        return Aval((*x.shape[:lead], *sizes), dtype_of(x))

    def forward(self, xp, x, *, plan):
        """Apply the tables axis by axis; small paddings are copied."""
        if pads_few_elements(plan):
            return padded(xp, x, plan)
        return apply_tables(xp, x, tables(x.shape, plan, x.dtype, for_gradient=False))

    def vjp_x(self, f, g, out, x, *, plan):
        return f.resample_grad(g, shape=tuple(x.shape), plan=plan)

    def torch_name(self, args, attrs):
        """PyTorch's name, by the kind and the number of axes."""
        plan = [s for s in attrs["plan"] if s is not None]
        if not plan:
            return "CloneBackward0"
        rank, name = len(attrs["plan"]), _NAMES[plan[0][0]]
        return name.format(_LINEAR[rank], rank) if plan[0][0] == "linear" else name.format(rank)


class ResampleGrad(Primitive):
    """The transpose of ``resample`` on inputs of ``shape``."""

    kind = Kind.WINDOW
    follows = 1
    inputs = ("g",)

    def infer(self, g, *, shape, plan):
        """``shape``."""
        return Aval(tuple(shape), dtype_of(g))

    def forward(self, xp, g, *, shape, plan):
        """Apply the transposed tables axis by axis; add small paddings to their sources."""
        if pads_few_elements(plan):
            return unpadded(xp, g, shape, plan)
        return apply_tables(xp, g, tables(shape, plan, g.dtype, for_gradient=True))

    def vjp_g(self, f, g, out, gradient, *, shape, plan):
        return f.resample(g, plan=plan)


resample, resample_grad = Resample(), ResampleGrad()
