"""Activations, selection, sums, tables and pooling of large float32 arrays, by compiled kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tenon.extend import Attr, Attrs
from tenon.ops import max_pool as _max_pool
from tenon_cpu.jit.compiler.compile import Argument
from tenon_cpu.jit.compiler.compile import Kernel as Compiled
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, MIN_ELEMENTS, aligned, fits, indices_fit, plain, share
from tenon_cpu.jit.loops import choices, smooth, sums, tables, windows
from tenon_cpu.jit.loops.columns import WIDE
from tenon_cpu.kernels import direct

#: Elements of a run along the last axes from which a compiled sum is faster than NumPy's.
_RUN = 32
#: Rows above which NumPy's sums, row by row in float32, lose too many digits.
_ROWS = 1024
#: The fewest columns of a compiled sum: of narrower arrays, several rows count as one.
_WIDE = 64
_NUMBERS = frozenset((bool, int, float))
_ZERO, _INFINITY = np.float32(0), np.float32(math.inf)


def _with_slope(kernel: Compiled, x: np.ndarray, cost: int) -> tuple[np.ndarray, np.ndarray]:
    """The value and slope of an activation, at ``cost`` tenths of ns an element."""
    (x,), back = aligned(x)
    out, slope = np.empty_like(x), np.empty_like(x)
    share(kernel, (x.reshape(-1), out.reshape(-1), slope.reshape(-1)), x.size, cost * x.size)
    return (out, slope) if back is None else (out.transpose(back), slope.transpose(back))


def gelu(x: np.ndarray, *, approximate: str = "none") -> tuple[np.ndarray, np.ndarray]:
    """The value and slope of GELU."""
    return _with_slope(smooth.gelu_tanh if approximate == "tanh" else smooth.gelu, x, 7)


def silu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The value and slope of SiLU."""
    return _with_slope(smooth.silu, x, 5)


def relu(x: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """The larger of ``x`` and 0; ``out`` is ``x`` (6.7 us on 65,536 elements, NumPy 25: it is not vectorised
    for an array and a number)."""
    if out is not None:
        share(smooth.clamp_over, (x.reshape(-1), _ZERO, _INFINITY), x.size, x.size)
        return out
    (x,), back = aligned(x)
    out = np.empty_like(x)
    share(smooth.relu, (x.reshape(-1), out.reshape(-1)), x.size, x.size)
    return out if back is None else out.transpose(back)


def clamp(
    x: np.ndarray, min: float | None, max: float | None, *, out: np.ndarray | None = None
) -> np.ndarray | None:
    """Clamp ``x``, which is ``out``, in place between two numbers."""
    bounds = (-math.inf if min is None else min, math.inf if max is None else max)
    share(smooth.clamp_over, (x.reshape(-1), *(np.float32(b) for b in bounds)), x.size, x.size)
    return out


def relu_grad(g: np.ndarray, out: np.ndarray) -> np.ndarray:
    """``g`` where ``out`` is positive, else 0."""
    (g, out), back = aligned(g, out)
    dx = np.empty_like(g)
    share(smooth.relu_grad, (g.reshape(-1), out.reshape(-1), dx.reshape(-1)), g.size, g.size)
    return dx if back is None else dx.transpose(back)


def embedding(weight: np.ndarray, indices: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """Rows of the table, in ``out`` if given; declines if an index is out of range."""
    weight, width = plain(weight), weight.shape[1]
    out, outside = np.empty((*indices.shape, width), FLOAT) if out is None else out, np.zeros(1, INDEX)
    arrays = (weight, indices.reshape(-1), out.reshape(-1, width), outside)
    share(tables.gather, arrays, indices.size, out.size)
    return NotImplemented if outside[0] else out


def embedding_grad(g: np.ndarray, indices: np.ndarray, *, rows: int, padding_idx: int = -1) -> np.ndarray:
    """The gradient of the table: each thread sums its part of the rows, in the order of the indices."""
    out = np.empty((rows, g.shape[-1]), FLOAT)
    arrays = (plain(g).reshape(-1, g.shape[-1]), indices.reshape(-1), padding_idx, out)
    share(tables.scatter_add, arrays, rows, g.size + out.size)
    return out


def segment_sum(x: np.ndarray, offsets: np.ndarray, *, end: int) -> np.ndarray:
    """Sums of the rows between offsets; declines if the offsets are not in order or out of range."""
    bounds = np.append(offsets, end)
    if not indices_fit(bounds) or not 0 == bounds[0] <= end <= x.shape[0] or (bounds[1:] < bounds[:-1]).any():
        return NotImplemented
    out = np.empty((offsets.size, *x.shape[1:]), FLOAT)
    rows = plain(x).reshape(x.shape[0], -1)
    share(tables.segment_sum, (rows, bounds, out.reshape(offsets.size, rows.shape[1])), offsets.size, x.size)
    return out


def halves(
    x: np.ndarray, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...], ceil_mode: bool = False,
) -> bool:  # fmt: skip
    """Whether the windows are 2 by 2, do not overlap, and are on planes."""
    return bool(
        x.ndim == 4
        and kernel == stride == (2, 2)
        and padding == (0, 0)
        and dilation == (1, 1)
        and not (ceil_mode and (x.shape[2] % 2 or x.shape[3] % 2))
        and min(x.shape[2:]) >= 2
    )


def halved(x: np.ndarray) -> tuple[int, ...]:
    """The shape of the result of ``max_pool_halves``."""
    return (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)


def _planes(x: np.ndarray) -> np.ndarray:
    """``x`` with batch and channels as one axis."""
    return x.reshape(-1, *x.shape[2:])


def _line(attrs: Attrs) -> tuple[int, ...]:
    """The windows' size, stride, padding and dilation along their only axis."""
    return tuple(attrs[name][0] for name in ("kernel", "stride", "padding", "dilation"))


def max_pool_lines(x: np.ndarray, **attrs: Attr) -> np.ndarray:
    """Max pooling along lines."""
    out = np.empty(_max_pool.infer(x, **attrs).shape, FLOAT)
    count, lines = x.shape[0] * x.shape[1], out.reshape(-1, out.shape[2])
    share(windows.max_pool_lines, (plain(x).reshape(count, -1), *_line(attrs), lines), count, 4 * x.size)
    return out


def max_pool_halves(x: np.ndarray) -> np.ndarray:
    """Max pooling of windows of 2 by 2."""
    out = np.empty(halved(x), FLOAT)
    planes = _planes(out)
    share(windows.max_pool_2x2, (_planes(x), planes), planes.shape[0], 2 * x.size)
    return out


def max_pool_lines_grad(g: np.ndarray, x: np.ndarray, out: np.ndarray, **attrs: Attr) -> np.ndarray:
    """The gradient of max pooling along lines."""
    count, dx = x.shape[0] * x.shape[1], np.zeros(x.shape, FLOAT)
    lines = [plain(a).reshape(count, -1) for a in (g, x, out)]
    arrays: tuple[Argument, ...] = (*lines, *_line(attrs), dx.reshape(count, -1))
    share(windows.max_pool_lines_grad, arrays, count, 20 * g.size)
    return dx


def max_pool_halves_grad(g: np.ndarray, x: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The gradient of max pooling of windows of 2 by 2."""
    g, x, out = plain(g), plain(x), plain(out)
    covered = x.shape[2] % 2 == x.shape[3] % 2 == 0
    dx = np.empty_like(x) if covered else np.zeros_like(x)
    arrays = (_planes(g), _planes(x), _planes(out), _planes(dx))
    share(windows.max_pool_2x2_grad, arrays, arrays[0].shape[0], 8 * x.size)
    return dx


def max_pool_grad(g: np.ndarray, x: np.ndarray, out: np.ndarray, **attrs: Attr) -> np.ndarray:
    """The gradient of max pooling of planes and volumes, for any windows."""
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
        along = np.arange(layout[0, axis] - 1, -1, -1) * dilation[axis] * size
        offsets = offsets + along.reshape([-1 if a == axis else 1 for a in range(3)])
    dx = np.empty(x.shape, FLOAT)
    arrays = (*volumes, layout, offsets.reshape(-1), dx.reshape(count, -1))
    share(windows.max_pool_grad, arrays, count, 15 * g.size * offsets.size)
    return dx


def selects(condition: np.ndarray, x: np.ndarray | float, y: np.ndarray | float) -> bool:
    """Whether ``where`` below supports the call: large float32 arrays of one shape, or one and a number."""
    one, other = x.__class__ in _NUMBERS, y.__class__ in _NUMBERS
    array = y if one else x
    if (
        one is other is True
        or condition.__class__ is not np.ndarray
        or condition.dtype.char != "?"
        or not isinstance(array, np.ndarray)
        or array.size < MIN_ELEMENTS
        or not fits(array)
    ):
        return False
    if not (one or other):
        return isinstance(y, np.ndarray) and condition.shape == array.shape == y.shape and fits(y)
    trailing = _trailing(condition.shape)
    return condition.ndim <= array.ndim and trailing == array.shape[array.ndim - len(trailing) :]


def _trailing(shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` without leading axes of size 1."""
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def where(condition: np.ndarray, x: np.ndarray | float, y: np.ndarray | float) -> np.ndarray:
    """Select from arrays of one shape, or from one and a number; ``condition`` may lack leading axes then."""
    if not isinstance(y, np.ndarray):
        return _put(condition, x, y, 1) if isinstance(x, np.ndarray) else NotImplemented
    if not isinstance(x, np.ndarray):
        return _put(condition, y, x, 0)
    out = np.empty(x.shape, FLOAT)
    arrays = tuple(plain(a).reshape(-1) for a in (condition.view(np.uint8), x, y, out))
    share(choices.choose, arrays, x.size, 2 * x.size)
    return out


def _put(condition: np.ndarray, x: np.ndarray, number: float, unless: int) -> np.ndarray:
    """``x``, but ``number`` where ``condition`` holds, or with 1 for ``unless`` where it does not."""
    value, flipped = np.float32(number), np.uint8(unless)
    gates, x = plain(condition.view(np.uint8)).reshape(-1), plain(x)
    out, step = np.empty(x.shape, FLOAT), gates.size
    if step == x.size:
        share(choices.put, (gates, flipped, value, x.reshape(-1), out.reshape(-1)), step, 2 * step)
    else:
        matrices = (x.reshape(-1, step), out.reshape(-1, step))
        share(choices.put_rows, (gates, flipped, value, *matrices), x.size // step, 2 * x.size)
    return out


def _reduced(x: np.ndarray, axes: Sequence[int]) -> np.ndarray | None:
    """Sums over leading and trailing ``axes`` of ``x``, or over many rows, flat; None if NumPy is to sum."""
    if not x.ndim or not x.flags.carray:
        return None
    reduced = sorted(axes)
    rank = x.ndim
    inner = 0
    while inner < len(reduced) and reduced[-1 - inner] == rank - 1 - inner:
        inner += 1
    outer = len(reduced) - inner
    shape = x.shape
    if not inner:
        return _rows_reduced(x, reduced[0], reduced[-1] + 1) if reduced[-1] - reduced[0] < outer else None
    if reduced[:outer] != list(range(outer)):
        return None
    run = math.prod(shape[rank - inner :])
    if run < _RUN or not fits(x):
        return None
    matrix = x.reshape(math.prod(shape[:outer]), math.prod(shape[outer : rank - inner]), run)
    out = np.empty(matrix.shape[1], FLOAT)
    share(sums.sum_outer_and_inner, (matrix, out), out.size, x.size)
    return out


def _rows_reduced(x: np.ndarray, first: int, last: int) -> np.ndarray | None:
    """Sums over the axes ``first`` to ``last``, flat: of runs of rows in float32, of these in float64.

    Sums of narrow rows are quicker too (0.6 against 36 ms on ``[2000000, 2]``); NumPy adds wide ones as
    quickly.
    """
    shape = x.shape
    outer, count, width = math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])
    if count <= _ROWS or not fits(x):
        return None
    x = x.reshape(outer, count, width)
    at_once = _ROWS if width > WIDE else max(_WIDE // width, 1)
    runs, rest = divmod(count, at_once)
    full = x[:, : count - rest]
    if width > WIDE:
        parts = np.add.reduce(full.reshape(outer, runs, at_once, width), 2)
    else:
        parts = np.empty((outer, at_once, width), np.float64)
        flat = parts.reshape(outer, at_once * width)
        share(sums.sum_rows, (plain(full).reshape(outer, runs, at_once * width), flat), outer, x.size)
    totals: np.ndarray = np.add.reduce(parts, 1, np.float64)
    if rest:
        totals += np.add.reduce(x[:, count - rest :], 1)
    return totals.astype(FLOAT).reshape(-1)


def _shaped(totals: np.ndarray, x: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
    """Flat results of a reduction of ``x`` over ``axes`` in their shape."""
    if keepdims:
        return totals.reshape([1 if i in axes else s for i, s in enumerate(x.shape)])
    return totals.reshape([s for i, s in enumerate(x.shape) if i not in axes])


def sum(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """The sum over leading and trailing axes, or over many rows; declines other axes."""
    totals = _reduced(x, axes)
    return NotImplemented if totals is None else _shaped(totals, x, axes, keepdims)


def mean(x: np.ndarray, *, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
    """The mean over leading and trailing axes, or over many rows; declines other axes."""
    totals = _reduced(x, axes)
    if totals is None:
        return NotImplemented
    totals /= np.float32(x.size // totals.size)
    return _shaped(totals, x, axes, keepdims)


def sum_to(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    """The sum over the axes that ``shape`` lacks or has of size 1; declines where NumPy is to sum."""
    own = x.shape
    lead = len(own) - len(shape)
    axes = (*range(lead), *(i + lead for i, s in enumerate(shape) if s == 1 and own[i + lead] != 1))
    totals = _reduced(x, axes)
    return NotImplemented if totals is None else totals.reshape(shape)


def adaptive_avg_pool(x: np.ndarray, *, sizes: tuple[int, ...]) -> np.ndarray:
    """The mean of each plane, for ``sizes`` that are all 1."""
    axes = tuple(range(2, x.ndim))
    means = mean(x, axes=axes, keepdims=True)
    return direct.mean(x, axes=axes, keepdims=True) if means is NotImplemented else means
