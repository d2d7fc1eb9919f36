"""Activations, selection, sums, tables and pooling of large float32 arrays, by compiled kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import embedding as _embedding
from tenon.ops import embedding_grad as _embedding_grad
from tenon_cpu.jit import choices, smooth, sums, tables, windows
from tenon_cpu.jit.calls import FLOAT, WORTH, fits, indices_fit, plain, share
from tenon_cpu.kernels import activation, direct, piecewise, pooling, selection

#: Elements of a run along the last axes from which a compiled sum is faster than NumPy's.
_RUN = 32
#: Elements below which an array is not worth asking what it is.
_FEW = 256
_NUMBERS = frozenset((bool, int, float))


def _with_slope(run: Any, x: Any, cost: int) -> Any:
    x = plain(x)
    out, slope = np.empty_like(x), np.empty_like(x)
    given, made, steep = x.reshape(-1), out.reshape(-1), slope.reshape(-1)
    share(lambda a, b: run(given, made, steep, a, b), x.size, cost * x.size)
    return out, slope


def gelu(f: Any, x: Any, *, approximate: str = "none") -> Any:
    """Value and slope."""
    if x.size < WORTH or not fits(x):
        return activation.gelu(f, x, approximate=approximate)
    return _with_slope((smooth.gelu_tanh if approximate == "tanh" else smooth.gelu).ready(), x, 7)


def silu(f: Any, x: Any) -> Any:
    """Value and slope."""
    if x.size < WORTH or not fits(x):
        return activation.silu(f, x)
    return _with_slope(smooth.silu.ready(), x, 5)


def relu_grad(g: Any, out: Any) -> Any:
    """The gradient where the gate is open."""
    if g.size < _FEW:
        return direct.relu_grad(g, out)
    if g.size < WORTH or g.shape != out.shape or not fits(g, out):
        return piecewise.relu_grad(g, out)
    g, out = plain(g), plain(out)
    made, run = np.empty_like(g), smooth.relu_grad.ready()
    given, gates, result = g.reshape(-1), out.reshape(-1), made.reshape(-1)
    share(lambda a, b: run(given, gates, result, a, b), g.size, g.size)
    return made


def embedding(weight: Any, indices: Any, **attrs: Any) -> Any:
    """Rows of the table; the reference says which index is outside."""
    width = weight.shape[1] if weight.ndim == 2 else 0
    if indices.size * width < WORTH or not indices_fit(indices) or not fits(weight):
        return _embedding.forward(np, weight, indices, **attrs)
    weight = plain(weight)
    out, run = np.empty((*indices.shape, width), FLOAT), tables.gather.ready()
    flat, made = indices.reshape(-1), out.reshape(-1, width)
    outside: list[int] = []
    share(lambda a, b: outside.append(run(weight, flat, made, a, b)), flat.size, out.size)
    if any(outside):
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
    out, run = np.empty((rows, g.shape[-1]), FLOAT), tables.scatter_add.ready()
    flat, given = indices.reshape(-1), plain(g).reshape(-1, g.shape[-1])
    share(lambda a, b: run(given, flat, padding_idx, out, a, b), rows, g.size + out.size)
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


def max_pool(x: Any, **attrs: Any) -> Any:
    """Windows of 2 by 2; others by NumPy."""
    if not _halves(x, attrs) or not fits(x):
        return pooling.max_pool(x, **attrs)
    out, run = (
        np.empty((*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2), FLOAT),
        windows.max_pool_2x2.ready(),
    )
    planes, made = _planes(x), _planes(out)
    share(lambda a, b: run(planes, made, a, b), made.shape[0], 2 * x.size)
    return out


def max_pool_grad(g: Any, x: Any, out: Any, **attrs: Any) -> Any:
    """Windows of 2 by 2; others by NumPy."""
    if not _halves(x, attrs) or not fits(g, x, out) or not g.shape == out.shape == _halved(x):
        return pooling.max_pool_grad(g, x, out, **attrs)
    g, x, out = plain(g), plain(x), plain(out)
    whole = x.shape[2] % 2 == x.shape[3] % 2 == 0
    made, run = np.empty_like(x) if whole else np.zeros_like(x), windows.max_pool_2x2_grad.ready()
    given, planes, tops, result = _planes(g), _planes(x), _planes(out), _planes(made)
    share(lambda a, b: run(given, planes, tops, result, a, b), given.shape[0], 8 * x.size)
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
        out, run = np.empty(x.shape, FLOAT), choices.choose.ready()
        flat = [plain(a).reshape(-1) for a in (condition.view(np.uint8), x, y)]
        made = out.reshape(-1)
        share(lambda a, b: run(*(v[a:b] for v in flat), made[a:b]), x.size, 2 * x.size)
        return out
    trailing = condition.shape
    while trailing and trailing[0] == 1:
        trailing = trailing[1:]
    if lead < 0 or trailing != kept.shape[kept.ndim - len(trailing) :]:
        return selection.where(condition, x, y)
    value = np.float32(x if one else y)
    flipped = np.uint8(0 if one else 1)
    gates = plain(condition.view(np.uint8)).reshape(-1)
    out, run, given = np.empty(kept.shape, FLOAT), choices.put.ready(), plain(kept).reshape(-1)
    made, step = out.reshape(-1), gates.size

    def work(a: int, b: int) -> None:
        if step == given.size:
            run(gates[a:b], flipped, value, given[a:b], made[a:b])
        else:
            run(gates, flipped, value, given[a * step : b * step], made[a * step : b * step])

    share(work, given.size if step == given.size else given.size // step, 2 * given.size)
    return out


def _reduced(x: Any, axes: Any) -> Any:
    """Sums over leading and trailing ``axes`` of ``x``, flat; None where NumPy is to sum."""
    if not x.ndim or not x.flags.carray:
        return None
    gone = sorted(axes)
    rank = x.ndim
    inner = 0
    while inner < len(gone) and gone[-1 - inner] == rank - 1 - inner:
        inner += 1
    outer = len(gone) - inner
    if not inner or gone[:outer] != list(range(outer)):
        return None
    shape = x.shape
    run = math.prod(shape[rank - inner :])
    if run < _RUN or not fits(x):
        return None
    matrix = x.reshape(math.prod(shape[:outer]), math.prod(shape[outer : rank - inner]), run)
    made, kernel = np.empty(matrix.shape[1], FLOAT), sums.sum_outer_and_inner.ready()
    share(lambda a, b: kernel(matrix, made, a, b), made.size, x.size)
    return made


def _shaped(made: Any, x: Any, axes: Any, keepdims: bool) -> Any:
    if keepdims:
        return made.reshape([1 if i in axes else s for i, s in enumerate(x.shape)])
    return made.reshape([s for i, s in enumerate(x.shape) if i not in axes])


def sum(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
    """Over leading and trailing axes; others by NumPy."""
    made = _reduced(x, axes) if x.size >= WORTH and axes else None
    return direct.sum(x, axes=axes, keepdims=keepdims) if made is None else _shaped(made, x, axes, keepdims)


def mean(x: Any, *, axes: Any, keepdims: bool = False) -> Any:
    """Over leading and trailing axes; others by NumPy."""
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


KERNELS: dict[str, Kernel] = {
    "relu_grad": relu_grad,
    "embedding": embedding,
    "embedding_grad": embedding_grad,
    "max_pool": max_pool,
    "max_pool_grad": max_pool_grad,
    "where": where,
    "sum": sum,
    "mean": mean,
    "sum_to": sum_to,
}
COMPOSITES: dict[str, Kernel] = {"gelu": gelu, "silu": silu}

__all__ = ["COMPOSITES", "KERNELS"]
