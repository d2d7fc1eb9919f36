"""Activations, selection, sums, tables and pooling of large float32 arrays, by compiled kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import embedding as _embedding
from tenon.ops import embedding_grad as _embedding_grad
from tenon.ops import max_pool as _max_pool
from tenon.ops import segment_sum as _segment_sum
from tenon_cpu.jit.compiler.compile import Kernel as Compiled
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, WORTH, aligned, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import choices, smooth, sums, tables, windows
from tenon_cpu.jit.loops.columns import WIDE
from tenon_cpu.kernels import activation, direct, piecewise, pointwise, pooling, selection

#: Elements of a run along the last axes from which a compiled sum is faster than NumPy's.
_RUN = 32
#: Elements below which an array is not worth asking what it is.
_FEW = 256
#: Rows above which NumPy's sums, row by row in float32, lose too many digits.
_ROWS = 1024
#: Columns that a compiled sum takes at least: of narrower arrays, as many rows count as one.
_WIDE = 64
_NUMBERS = frozenset((bool, int, float))
_NOTHING, _INFINITY = np.float32(0), np.float32(math.inf)


def _with_slope(kernel: Compiled, x: Any, cost: int) -> Any:
    (x,), back = aligned(x)
    out, slope = np.empty_like(x), np.empty_like(x)
    share(kernel, (x.reshape(-1), out.reshape(-1), slope.reshape(-1)), x.size, cost * x.size)
    return (out, slope) if back is None else (out.transpose(back), slope.transpose(back))


def gelu(f: Any, x: Any, *, approximate: str = "none") -> Any:
    """Value and slope."""
    if x.size < WORTH or not fits(x):
        return activation.gelu(f, x, approximate=approximate)
    return _with_slope(smooth.gelu_tanh if approximate == "tanh" else smooth.gelu, x, 7)


def silu(f: Any, x: Any) -> Any:
    """Value and slope."""
    if x.size < WORTH or not fits(x):
        return activation.silu(f, x)
    return _with_slope(smooth.silu, x, 5)


def relu(x: Any, *, out: Any = None) -> Any:
    """The larger of ``x`` and 0 (6.7 against 25 us on 65,536 elements: NumPy's loop with a number is no
    vector's)."""
    if x.size < WORTH or not fits(x) or (out is not None and not (out is x and x.flags.carray)):
        return direct.relu(x, out=out)
    if out is not None:
        share(smooth.clamp_over, (x.reshape(-1), _NOTHING, _INFINITY), x.size, x.size)
        return out
    (x,), back = aligned(x)
    out = np.empty_like(x)
    share(smooth.relu, (x.reshape(-1), out.reshape(-1)), x.size, x.size)
    return out if back is None else out.transpose(back)


def clamp(x: Any, min: Any, max: Any, *, out: Any = None) -> Any:
    """Over itself, between numbers; all else by NumPy."""
    bounds = (-math.inf if min is None else min, math.inf if max is None else max)
    if (
        out is None
        or out is not x
        or x.size < WORTH
        or not all(b.__class__ in _NUMBERS and b == b for b in bounds)
        or not fits(x)
        or not x.flags.carray
    ):
        return pointwise.clamp(x, min, max, out=out)
    share(smooth.clamp_over, (x.reshape(-1), *(np.float32(b) for b in bounds)), x.size, x.size)
    return out


def relu_grad(g: Any, out: Any) -> Any:
    """The gradient where the gate is open."""
    if g.size < _FEW:
        return direct.relu_grad(g, out)
    if g.size < WORTH or g.shape != out.shape or not fits(g, out):
        return piecewise.relu_grad(g, out)
    (g, out), back = aligned(g, out)
    made = np.empty_like(g)
    share(smooth.relu_grad, (g.reshape(-1), out.reshape(-1), made.reshape(-1)), g.size, g.size)
    return made if back is None else made.transpose(back)


def embedding(weight: Any, indices: Any, *, out: Any = None, **attrs: Any) -> Any:
    """Rows of the table, in ``out`` if given and loops serve; the reference says which index is outside."""
    width = weight.shape[1] if weight.ndim == 2 else 0
    if indices.size * width < WORTH or not indices_fit(indices) or not fits(weight):
        return _embedding.forward(np, weight, indices, **attrs)
    weight = plain(weight)
    out, outside = np.empty((*indices.shape, width), FLOAT) if out is None else out, np.zeros(1, INDEX)
    arrays = (weight, indices.reshape(-1), out.reshape(-1, width), outside)
    share(tables.gather, arrays, indices.size, out.size)
    if outside[0]:
        return _embedding.forward(np, weight, indices, **attrs)
    return out


def embedding_grad(
    g: Any, indices: Any, *, rows: int, padding_idx: int = -1, by_frequency: bool = False
) -> Any:
    """Each thread sums the rows of its part of the table, always in the order of the indices."""
    if (
        g.size < WORTH
        or by_frequency
        or g.shape[:-1] != indices.shape
        or not indices_fit(indices)
        or not fits(g)
    ):
        return _embedding_grad.forward(
            np, g, indices, rows=rows, padding_idx=padding_idx, by_frequency=by_frequency
        )
    out = np.empty((rows, g.shape[-1]), FLOAT)
    arrays = (plain(g).reshape(-1, g.shape[-1]), indices.reshape(-1), padding_idx, out)
    share(tables.scatter_add, arrays, rows, g.size + out.size)
    return out


def segment_sum(x: Any, offsets: Any, *, end: int) -> Any:
    """Row by row; the reference says which offsets are none."""
    bounds = np.append(offsets, end)
    if (
        x.size < WORTH
        or not indices_fit(bounds)
        or not fits(x)
        or not 0 == bounds[0] <= end <= x.shape[0]
        or (bounds[1:] < bounds[:-1]).any()
    ):
        return _segment_sum.forward(np, x, offsets, end=end)
    out = np.empty((offsets.size, *x.shape[1:]), FLOAT)
    rows = plain(x).reshape(x.shape[0], -1)
    share(tables.segment_sum, (rows, bounds, out.reshape(offsets.size, rows.shape[1])), offsets.size, x.size)
    return out


def _halves(x: Any, attrs: dict[str, Any]) -> bool:
    """Windows of 2 by 2, side by side, on planes of float32."""
    return bool(
        x.ndim == 4
        and x.size >= WORTH
        and attrs["kernel"] == attrs["stride"] == (2, 2)
        and attrs["padding"] == (0, 0)
        and attrs["dilation"] == (1, 1)
        and not (attrs.get("ceil_mode") and (x.shape[2] % 2 or x.shape[3] % 2))
        and min(x.shape[2:]) >= 2
    )


def _halved(x: Any) -> tuple[int, ...]:
    return (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)


def _planes(x: Any) -> Any:
    return x.reshape(-1, *x.shape[2:])


def _line(attrs: dict[str, Any]) -> tuple[int, ...]:
    """The windows' layout along their only axis."""
    return tuple(attrs[name][0] for name in ("kernel", "stride", "padding", "dilation"))


def max_pool(x: Any, **attrs: Any) -> Any:
    """Windows of 2 by 2 and along lines; others by NumPy."""
    if x.ndim == 3 and x.size >= WORTH and fits(x):
        out = np.empty(_max_pool.infer(x, **attrs).shape, FLOAT)
        count, made = x.shape[0] * x.shape[1], out.reshape(-1, out.shape[2])
        share(windows.max_pool_lines, (plain(x).reshape(count, -1), *_line(attrs), made), count, 4 * x.size)
        return out
    if not _halves(x, attrs) or not fits(x):
        return pooling.max_pool(x, **attrs)
    out = np.empty(_halved(x), FLOAT)
    made = _planes(out)
    share(windows.max_pool_2x2, (_planes(x), made), made.shape[0], 2 * x.size)
    return out


def max_pool_grad(g: Any, x: Any, out: Any, **attrs: Any) -> Any:
    """Windows of 2 by 2, along lines, and all others."""
    if x.ndim == 3 and x.size >= WORTH and fits(g, x, out) and g.shape == out.shape:
        count, dx = x.shape[0] * x.shape[1], np.zeros(x.shape, FLOAT)
        lines = [plain(a).reshape(count, -1) for a in (g, x, out)]
        arrays = (*lines, *_line(attrs), dx.reshape(count, -1))
        share(windows.max_pool_lines_grad, arrays, count, 20 * g.size)
        return dx
    if x.ndim < 4 or x.size < WORTH or not fits(g, x, out) or g.shape != out.shape:
        return pooling.max_pool_grad(g, x, out, **attrs)
    if not _halves(x, attrs) or g.shape != _halved(x):
        return _max_pool_grad(g, x, out, attrs)
    g, x, out = plain(g), plain(x), plain(out)
    whole = x.shape[2] % 2 == x.shape[3] % 2 == 0
    made = np.empty_like(x) if whole else np.zeros_like(x)
    arrays = (_planes(g), _planes(x), _planes(out), _planes(made))
    share(windows.max_pool_2x2_grad, arrays, arrays[0].shape[0], 8 * x.size)
    return made


def _max_pool_grad(g: Any, x: Any, out: Any, attrs: dict[str, Any]) -> Any:
    """Of planes and volumes, whatever the windows."""
    missing, count = 5 - x.ndim, x.shape[0] * x.shape[1]
    layout = np.ones((5, 3), INDEX)
    layout[2] = 0
    for row, name in zip(layout, ("kernel", "stride", "padding", "dilation"), strict=False):
        row[missing:] = attrs[name]
    volumes = [plain(a).reshape(count, *(1,) * missing, *a.shape[2:]) for a in (g, x, out)]
    steps, dilation = layout[1], layout[3]
    reach = (np.array(volumes[0].shape[1:]) - 1) * steps + (layout[0] - 1) * dilation + 1
    np.maximum(reach, layout[2] + volumes[1].shape[1:], out=layout[4])
    _, high, wide = layout[4]
    offsets = np.zeros((1, 1, 1), INDEX)
    for axis, size in enumerate((high * wide, wide, 1)):
        places = np.arange(layout[0, axis] - 1, -1, -1) * dilation[axis] * size
        offsets = offsets + places.reshape([-1 if a == axis else 1 for a in range(3)])
    made = np.empty(x.shape, FLOAT)
    arrays = (*volumes, layout, offsets.reshape(-1), made.reshape(count, -1))
    share(windows.max_pool_grad, arrays, count, 15 * g.size * offsets.size)
    return made


def where(condition: Any, x: Any, y: Any) -> Any:
    """Of arrays of one shape, or of one and a number by a condition that may repeat over leading axes."""
    one, other = x.__class__ in _NUMBERS, y.__class__ in _NUMBERS
    kept = y if one else x
    if (
        one is other is True
        or condition.__class__ is not np.ndarray
        or condition.dtype.char != "?"
        or getattr(kept, "size", 0) < WORTH
        or not fits(kept)
    ):
        return selection.where(condition, x, y)
    lead = kept.ndim - condition.ndim
    if not (one or other):
        if not condition.shape == x.shape == y.shape or not fits(y):
            return selection.where(condition, x, y)
        out = np.empty(x.shape, FLOAT)
        arrays = tuple(plain(a).reshape(-1) for a in (condition.view(np.uint8), x, y, out))
        share(choices.choose, arrays, x.size, 2 * x.size)
        return out
    trailing = condition.shape
    while trailing and trailing[0] == 1:
        trailing = trailing[1:]
    if lead < 0 or trailing != kept.shape[kept.ndim - len(trailing) :]:
        return selection.where(condition, x, y)
    value = np.float32(x if one else y)
    flipped = np.uint8(0 if one else 1)
    gates = plain(condition.view(np.uint8)).reshape(-1)
    kept = plain(kept)
    out, step = np.empty(kept.shape, FLOAT), gates.size
    if step == kept.size:
        share(choices.put, (gates, flipped, value, kept.reshape(-1), out.reshape(-1)), step, 2 * step)
    else:
        arrays = (gates, flipped, value, kept.reshape(-1, step), out.reshape(-1, step))
        share(choices.put_rows, arrays, kept.size // step, 2 * kept.size)
    return out


def _reduced(x: Any, axes: Any) -> Any:
    """Sums over leading and trailing ``axes`` of ``x``, or many rows, flat; None where NumPy is to sum."""
    if not x.ndim or not x.flags.carray:
        return None
    gone = sorted(axes)
    rank = x.ndim
    inner = 0
    while inner < len(gone) and gone[-1 - inner] == rank - 1 - inner:
        inner += 1
    outer = len(gone) - inner
    shape = x.shape
    if not inner:
        return _rows_reduced(x, gone[0], gone[-1] + 1) if gone[-1] - gone[0] < outer else None
    if gone[:outer] != list(range(outer)):
        return None
    run = math.prod(shape[rank - inner :])
    if run < _RUN or not fits(x):
        return None
    matrix = x.reshape(math.prod(shape[:outer]), math.prod(shape[outer : rank - inner]), run)
    made = np.empty(matrix.shape[1], FLOAT)
    share(sums.sum_outer_and_inner, (matrix, made), made.size, x.size)
    return made


def _rows_reduced(x: Any, first: int, last: int) -> Any:
    """Sums over the axes ``first`` to ``last``, flat: of runs of rows in float32, which join in float64.

    Narrow rows are quicker too (0.6 against 36 ms on ``[2000000, 2]``); wide ones NumPy adds as quickly.
    """
    shape = x.shape
    outer, count, width = math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])
    if count <= _ROWS or not fits(x):
        return None
    x = x.reshape(outer, count, width)
    at_once = _ROWS if width > WIDE else max(_WIDE // width, 1)
    runs, rest = divmod(count, at_once)
    whole = x[:, : count - rest]
    if width > WIDE:
        parts = np.add.reduce(whole.reshape(outer, runs, at_once, width), 2)
    else:
        parts = np.empty((outer, at_once, width), np.float64)
        flat = parts.reshape(outer, at_once * width)
        share(sums.sum_rows, (plain(whole).reshape(outer, runs, at_once * width), flat), outer, x.size)
    made = np.add.reduce(parts, 1, np.float64)
    if rest:
        made += np.add.reduce(x[:, count - rest :], 1)
    return made.astype(FLOAT).reshape(-1)


def _shaped(made: Any, x: Any, axes: Any, keepdims: bool) -> Any:
    if keepdims:
        return made.reshape([1 if i in axes else s for i, s in enumerate(x.shape)])
    return made.reshape([s for i, s in enumerate(x.shape) if i not in axes])


def sum(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
    """Over leading and trailing axes or many rows; others by NumPy."""
    made = _reduced(x, axes) if x.size >= WORTH and axes else None
    return direct.sum(x, axes=axes, keepdims=keepdims) if made is None else _shaped(made, x, axes, keepdims)


def mean(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
    """Over leading and trailing axes or many rows; others by NumPy."""
    made = _reduced(x, axes) if x.size >= WORTH and axes else None
    if made is None:
        return direct.mean(x, axes=axes, keepdims=keepdims)
    made /= np.float32(x.size // made.size)
    return _shaped(made, x, axes, keepdims)


def sum_to(x: Any, *, shape: Any) -> Any:
    """Down to a shape that keeps axes in the middle; others by NumPy."""
    own = x.shape
    if own == shape:
        return x
    if x.size < WORTH:
        return direct.sum_to(x, shape=shape)
    lead = len(own) - len(shape)
    axes = (*range(lead), *(i + lead for i, s in enumerate(shape) if s == 1 and own[i + lead] != 1))
    made = _reduced(x, axes)
    return direct.sum_to(x, shape=shape) if made is None else made.reshape(shape)


def adaptive_avg_pool(x: Any, *, sizes: Any) -> Any:
    """One mean of each plane by a compiled sum; others by NumPy."""
    if x.ndim != len(sizes) + 2 or set(sizes) != {1} or x.size < WORTH or 0 in x.shape or not x.flags.carray:
        return pooling.adaptive_avg_pool(x, sizes=sizes)
    return mean(x, axes=tuple(range(2, x.ndim)), keepdims=True)


KERNELS: dict[str, Kernel] = {
    "adaptive_avg_pool": adaptive_avg_pool,
    "relu": relu,
    "clamp": clamp,
    "relu_grad": relu_grad,
    "embedding": embedding,
    "embedding_grad": embedding_grad,
    "segment_sum": segment_sum,
    "max_pool": max_pool,
    "max_pool_grad": max_pool_grad,
    "where": where,
    "sum": sum,
    "mean": mean,
    "sum_to": sum_to,
}
COMPOSITES: dict[str, Kernel] = {"gelu": gelu, "silu": silu}

__all__ = ["COMPOSITES", "KERNELS"]
