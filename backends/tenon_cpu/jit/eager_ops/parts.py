"""Activations, selection, sums, tables and pooling of large float32 arrays, by compiled kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.ops import max_pool as _max_pool
from tenon_cpu.jit.compiler.compile import Kernel as Compiled
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, WORTH, aligned, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import choices, smooth, sums, tables, windows
from tenon_cpu.jit.loops.columns import WIDE
from tenon_cpu.kernels import direct

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


def gelu(x: Any, *, approximate: str = "none") -> Any:
    """Value and slope."""
    return _with_slope(smooth.gelu_tanh if approximate == "tanh" else smooth.gelu, x, 7)


def silu(x: Any) -> Any:
    """Value and slope."""
    return _with_slope(smooth.silu, x, 5)


def relu(x: Any, *, out: Any = None) -> Any:
    """The larger of ``x`` and 0 (6.7 against 25 us on 65,536 elements: NumPy's loop with a number is no
    vector's)."""
    if out is not None:
        share(smooth.clamp_over, (x.reshape(-1), _NOTHING, _INFINITY), x.size, x.size)
        return out
    (x,), back = aligned(x)
    out = np.empty_like(x)
    share(smooth.relu, (x.reshape(-1), out.reshape(-1)), x.size, x.size)
    return out if back is None else out.transpose(back)


def clamp(x: Any, min: Any, max: Any, *, out: Any = None) -> Any:
    """Over itself, between numbers."""
    bounds = (-math.inf if min is None else min, math.inf if max is None else max)
    share(smooth.clamp_over, (x.reshape(-1), *(np.float32(b) for b in bounds)), x.size, x.size)
    return out


def relu_grad(g: Any, out: Any) -> Any:
    """The gradient where the gate is open."""
    (g, out), back = aligned(g, out)
    made = np.empty_like(g)
    share(smooth.relu_grad, (g.reshape(-1), out.reshape(-1), made.reshape(-1)), g.size, g.size)
    return made if back is None else made.transpose(back)


def embedding(weight: Any, indices: Any, *, out: Any = None) -> Any:
    """Rows of the table, in ``out`` if given; the reference says which index is outside."""
    weight, width = plain(weight), weight.shape[1]
    out, outside = np.empty((*indices.shape, width), FLOAT) if out is None else out, np.zeros(1, INDEX)
    arrays = (weight, indices.reshape(-1), out.reshape(-1, width), outside)
    share(tables.gather, arrays, indices.size, out.size)
    return NotImplemented if outside[0] else out


def embedding_grad(g: Any, indices: Any, *, rows: int, padding_idx: int = -1) -> Any:
    """Each thread sums the rows of its part of the table, always in the order of the indices."""
    out = np.empty((rows, g.shape[-1]), FLOAT)
    arrays = (plain(g).reshape(-1, g.shape[-1]), indices.reshape(-1), padding_idx, out)
    share(tables.scatter_add, arrays, rows, g.size + out.size)
    return out


def segment_sum(x: Any, offsets: Any, *, end: int) -> Any:
    """Row by row; the reference says which offsets are none."""
    bounds = np.append(offsets, end)
    if not indices_fit(bounds) or not 0 == bounds[0] <= end <= x.shape[0] or (bounds[1:] < bounds[:-1]).any():
        return NotImplemented
    out = np.empty((offsets.size, *x.shape[1:]), FLOAT)
    rows = plain(x).reshape(x.shape[0], -1)
    share(tables.segment_sum, (rows, bounds, out.reshape(offsets.size, rows.shape[1])), offsets.size, x.size)
    return out


def halves(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool = False) -> bool:
    """Windows of 2 by 2, side by side, on planes."""
    return bool(
        x.ndim == 4
        and kernel == stride == (2, 2)
        and padding == (0, 0)
        and dilation == (1, 1)
        and not (ceil_mode and (x.shape[2] % 2 or x.shape[3] % 2))
        and min(x.shape[2:]) >= 2
    )


def halved(x: Any) -> tuple[int, ...]:
    """The shape of the result of ``max_pool_halves``."""
    return (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)


def _planes(x: Any) -> Any:
    return x.reshape(-1, *x.shape[2:])


def _line(attrs: dict[str, Any]) -> tuple[int, ...]:
    """The windows' layout along their only axis."""
    return tuple(attrs[name][0] for name in ("kernel", "stride", "padding", "dilation"))


def max_pool_lines(x: Any, **attrs: Any) -> Any:
    """Windows along lines."""
    out = np.empty(_max_pool.infer(x, **attrs).shape, FLOAT)
    count, made = x.shape[0] * x.shape[1], out.reshape(-1, out.shape[2])
    share(windows.max_pool_lines, (plain(x).reshape(count, -1), *_line(attrs), made), count, 4 * x.size)
    return out


def max_pool_halves(x: Any) -> Any:
    """Windows of 2 by 2."""
    out = np.empty(halved(x), FLOAT)
    made = _planes(out)
    share(windows.max_pool_2x2, (_planes(x), made), made.shape[0], 2 * x.size)
    return out


def max_pool_lines_grad(g: Any, x: Any, out: Any, **attrs: Any) -> Any:
    """Windows along lines."""
    count, dx = x.shape[0] * x.shape[1], np.zeros(x.shape, FLOAT)
    lines = [plain(a).reshape(count, -1) for a in (g, x, out)]
    arrays = (*lines, *_line(attrs), dx.reshape(count, -1))
    share(windows.max_pool_lines_grad, arrays, count, 20 * g.size)
    return dx


def max_pool_halves_grad(g: Any, x: Any, out: Any) -> Any:
    """Windows of 2 by 2."""
    g, x, out = plain(g), plain(x), plain(out)
    whole = x.shape[2] % 2 == x.shape[3] % 2 == 0
    made = np.empty_like(x) if whole else np.zeros_like(x)
    arrays = (_planes(g), _planes(x), _planes(out), _planes(made))
    share(windows.max_pool_2x2_grad, arrays, arrays[0].shape[0], 8 * x.size)
    return made


def max_pool_grad(g: Any, x: Any, out: Any, **attrs: Any) -> Any:
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


def selects(condition: Any, x: Any, y: Any) -> bool:
    """Large float32 arrays of one shape, or one of them and a number, by a condition that repeats."""
    one, other = x.__class__ in _NUMBERS, y.__class__ in _NUMBERS
    kept = y if one else x
    if (
        one is other is True
        or condition.__class__ is not np.ndarray
        or condition.dtype.char != "?"
        or getattr(kept, "size", 0) < WORTH
        or not fits(kept)
    ):
        return False
    if not (one or other):
        return bool(condition.shape == x.shape == y.shape and fits(y))
    trailing = _trailing(condition.shape)
    return condition.ndim <= kept.ndim and trailing == kept.shape[kept.ndim - len(trailing) :]


def _trailing(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def where(condition: Any, x: Any, y: Any) -> Any:
    """Of arrays of one shape, or of one and a number by a condition that may repeat over leading axes."""
    one, other = x.__class__ in _NUMBERS, y.__class__ in _NUMBERS
    kept = y if one else x
    if not (one or other):
        out = np.empty(x.shape, FLOAT)
        arrays = tuple(plain(a).reshape(-1) for a in (condition.view(np.uint8), x, y, out))
        share(choices.choose, arrays, x.size, 2 * x.size)
        return out
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
    """Over leading and trailing axes or many rows."""
    made = _reduced(x, axes)
    return NotImplemented if made is None else _shaped(made, x, axes, keepdims)


def mean(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
    """Over leading and trailing axes or many rows."""
    made = _reduced(x, axes)
    if made is None:
        return NotImplemented
    made /= np.float32(x.size // made.size)
    return _shaped(made, x, axes, keepdims)


def sum_to(x: Any, *, shape: Any) -> Any:
    """Down to a shape that keeps axes in the middle."""
    own = x.shape
    lead = len(own) - len(shape)
    axes = (*range(lead), *(i + lead for i, s in enumerate(shape) if s == 1 and own[i + lead] != 1))
    made = _reduced(x, axes)
    return NotImplemented if made is None else made.reshape(shape)


def adaptive_avg_pool(x: Any, *, sizes: Any) -> Any:
    """One mean of each plane by a compiled sum."""
    axes = tuple(range(2, x.ndim))
    made = mean(x, axes=axes, keepdims=True)
    return direct.mean(x, axes=axes, keepdims=True) if made is NotImplemented else made
