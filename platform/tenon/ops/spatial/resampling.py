"""Interpolation and padding by elements that are there: ``resample`` and its transpose.

Each axis has a table of its own (``axis_tables.py``), so one op serves nearest neighbours, linear, cubic and
filtered interpolation and reflected, replicated and circular padding in any number of axes; the gradient is
the same walk over the transposed tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.compat.saved_readers import RESAMPLED
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace
from tenon.ops.kinds import dtype_of, is_short
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
#: Elements of padding of an axis up to which they are copied one by one.
_FEW = 64
_LINEAR = {1: "Linear", 2: "Bilinear", 3: "Trilinear"}


#: The spec of each of the last axes; None: the axis stays as it is.
Plan = tuple[Spec | None, ...]
Apply = Callable[[ArrayNamespace, Array, Table, int], Array]


def along(xp: ArrayNamespace, x: Array, table: Table, axis: int) -> Array:
    """``x`` with ``axis`` replaced by the rows of ``table``: one pass for each place in a row."""
    starts, places, weights = table
    counts = np.diff(starts)
    lead, spread = (slice(None),) * axis, (-1, *(1,) * (x.ndim - axis - 1))
    result = None
    for t in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > t)
        at = starts[rows] + t
        part = xp.take(x, xp.asarray(places[at]), axis=axis)
        if weights is not None:
            part = part * xp.asarray(weights[at].astype(x.dtype)).reshape(spread)
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


def tables(shape: tuple[int, ...], plan: Plan, dtype: np.dtype, *, turned: bool) -> list[tuple[int, Table]]:
    """``(axis, table)`` for every axis that ``plan`` changes, those first that leave least to do.

    ``shape`` is that of ``resample``'s input; ``turned`` gives the tables of its gradient."""
    lead, wide = len(shape) - len(plan), dtype.itemsize == 8
    make = transposed if turned else table_of
    found = [(a + lead, make(s, shape[a + lead], wide), s) for a, s in enumerate(plan) if s is not None]
    found.sort(key=lambda entry: _order(entry[0], length(entry[2], shape[entry[0]]), shape[entry[0]], turned))
    return [(axis, table) for axis, table, _ in found]


def _order(axis: int, made: int, size: int, turned: bool) -> tuple[float, int]:
    """Axes that shrink go first; of equal ones those whose elements lie apart, unless they grow."""
    growth = size / max(made, 1) if turned else made / max(size, 1)
    return growth, -axis if growth > 1 else axis


def walked(xp: ArrayNamespace, x: Array, steps: list[tuple[int, Table]], apply: Apply = along) -> Array:
    """``x`` after all ``steps``; floats of 16 bits are summed in float32 and rounded once."""
    short = is_short(x) and any(t.weights is not None or (np.diff(t.starts) != 1).any() for _, t in steps)
    result = x.astype(np.float32) if short else x
    for axis, table in steps:
        result = apply(xp, result, table, axis)
    result = result.astype(x.dtype) if short else result
    return result.copy() if result is x else result


def few_edges(plan: Plan) -> bool:
    """Whether ``plan`` pads by so little that each element of an edge is worth a copy of its own."""
    return all(s is None or (pads(s) and s[1] + s[2] <= _FEW) for s in plan)


def _edges(shape: tuple[int, ...], plan: Plan) -> list[tuple[int, int, int]]:
    """``(axis, padded place, place it is a copy of)`` for all edges, axis by axis."""
    found, lead = [], len(shape) - len(plan)
    for axis, spec in enumerate(plan, lead):
        if spec is not None:
            size, before = shape[axis], spec[1]
            places = table_of(spec, size, False).places
            outside = (*range(before), *range(before + size, places.size))
            found += [(axis, i, before + int(places[i])) for i in outside]
    return found


def _inner(shape: tuple[int, ...], plan: Plan) -> tuple[slice, ...]:
    firsts = [0] * (len(shape) - len(plan)) + [0 if s is None else s[1] for s in plan]
    return tuple(slice(p, p + n) for p, n in zip(firsts, shape, strict=True))


def padded(xp: ArrayNamespace, x: Array, plan: Plan) -> Array:
    """The input in the middle, then the edges from the last axis to the first, each over those before."""
    lead = x.ndim - len(plan)
    sizes = [n if s is None else length(s, n) for s, n in zip(plan, x.shape[lead:], strict=True)]
    result, inner = xp.empty((*x.shape[:lead], *sizes), x.dtype), _inner(x.shape, plan)
    result[inner] = x
    for axis, to, place in reversed(_edges(x.shape, plan)):
        rows, whole = inner[:axis], (slice(None),) * (x.ndim - axis - 1)
        result[(*rows, to, *whole)] = result[(*rows, place, *whole)]
    return result


def unpadded(xp: ArrayNamespace, g: Array, shape: tuple[int, ...], plan: Plan) -> Array:
    """The transpose of ``padded``: edges added to where they came from, from the first axis to the last."""
    left, inner = g.copy(), _inner(shape, plan)
    for axis, place, to in _edges(shape, plan):
        rows, whole = inner[:axis], (slice(None),) * (g.ndim - axis - 1)
        left[(*rows, to, *whole)] += left[(*rows, place, *whole)]
    return xp.ascontiguousarray(left[inner])


class Resample(Primitive):
    """The last axes of ``x``, each as its spec in ``plan`` says (None: as it is); see ``axis_tables``."""

    kind = Kind.WINDOW
    follows = 1
    saved_names = RESAMPLED

    def infer(self, x, *, plan):
        """Each planned axis in its new size."""
        lead = len(x.shape) - len(plan)
        sizes = (s if spec is None else length(spec, s) for spec, s in zip(plan, x.shape[lead:], strict=True))
        return Aval((*x.shape[:lead], *sizes), dtype_of(x))

    def forward(self, xp, x, *, plan):
        """Axis by axis; padding by copies of its edges."""
        if few_edges(plan):
            return padded(xp, x, plan)
        return walked(xp, x, tables(x.shape, plan, x.dtype, turned=False))

    def vjp_x(self, f, g, out, x, *, plan):
        return f.resample_grad(g, shape=tuple(x.shape), plan=plan)

    def torch_name(self, args, attrs):
        """By the kind and the number of axes."""
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
        """Axis by axis over the transposed tables; of padding, its edges back to where they came from."""
        if few_edges(plan):
            return unpadded(xp, g, shape, plan)
        return walked(xp, g, tables(shape, plan, g.dtype, turned=True))

    def vjp_g(self, f, g, out, gradient, *, shape, plan):
        return f.resample(g, plan=plan)


resample, resample_grad = Resample(), ResampleGrad()
