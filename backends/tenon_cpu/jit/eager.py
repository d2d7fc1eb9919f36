"""The compiled kernels as ops: which calls they serve, and how threads share them.

They take contiguous float32 arrays of some size. Everything else goes to the NumPy kernels, as all does where
numba is missing or turned off. What a call gets depends on its arguments alone, never on what ran before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import cross_entropy as _cross_entropy
from tenon.ops import embedding as _embedding
from tenon.ops import embedding_grad as _embedding_grad
from tenon.ops.composite.classification import present_targets
from tenon_cpu.jit import losses, rows, smooth, tables, windows
from tenon_cpu.jit.compile import available
from tenon_cpu.kernels import activation, piecewise, pooling, rowwise
from tenon_cpu.kernels.blocks import rows_of
from tenon_cpu.threads import split

#: Elements from which a kernel is worth loading numba for.
_WORTH = 1 << 13
#: The same for cross entropy, which is some fifteen calls of NumPy whatever the size.
_WORTH_LOSS = 1 << 10
#: Tenths of nanoseconds of work that a second thread is worth being woken for.
_SHARED = 1_000_000

_FLOAT, _INDEX = np.dtype(np.float32), np.dtype(np.int64)
_ONE = np.float32(1)
_NO_WEIGHT = np.empty(0, np.float32)


def _fits(*arrays: Any) -> bool:
    """All are float32 arrays as the kernels take them: contiguous, aligned, writable, and numba is there."""
    return all(a.dtype is _FLOAT and a.flags.carray for a in arrays) and available()


def _indices(array: Any) -> bool:
    return array.dtype is _INDEX and array.flags.carray


def _share(work: Callable[[int, int], Any], count: int, tenths: int) -> None:
    """``work`` over ``range(count)``, by several threads where it takes ``tenths`` of nanoseconds enough."""
    if tenths < _SHARED:
        work(0, count)
    else:
        split(work, count)


def _last(x: Any, axis: int) -> bool:
    return bool(x.size >= _WORTH and axis == x.ndim - 1)


def softmax(f: Any, x: Any, *, axis: int) -> Any:
    """Along the last axis."""
    if not _last(x, axis) or not _fits(x):
        return rowwise.softmax(f, x, axis=axis)
    out, run = np.empty_like(x), rows.softmax.ready()
    given, made = rows_of(x), rows_of(out)
    _share(lambda a, b: run(given, made, a, b), given.shape[0], 5 * x.size)
    return out


def softmax_grad(f: Any, g: Any, out: Any, *, axis: int) -> Any:
    """Along the last axis."""
    if not _last(out, axis) or not _fits(g, out) or g.shape != out.shape:
        return rowwise.softmax_grad(f, g, out, axis=axis)
    made, run = np.empty_like(g), rows.softmax_grad.ready()
    given, known, result = rows_of(g), rows_of(out), rows_of(made)
    _share(lambda a, b: run(given, known, result, a, b), given.shape[0], 2 * g.size)
    return made


def log_softmax(f: Any, x: Any, *, axis: int) -> Any:
    """Along the last axis."""
    if not _last(x, axis) or not _fits(x):
        return rowwise.log_softmax(f, x, axis=axis)
    out, run = np.empty_like(x), rows.log_softmax.ready()
    given, made = rows_of(x), rows_of(out)
    _share(lambda a, b: run(given, made, a, b), given.shape[0], 5 * x.size)
    return out


def log_softmax_grad(f: Any, g: Any, out: Any, *, axis: int) -> Any:
    """Along the last axis."""
    if not _last(out, axis) or not _fits(g, out) or g.shape != out.shape:
        return rowwise.log_softmax_grad(f, g, out, axis=axis)
    made, run = np.empty_like(g), rows.log_softmax_grad.ready()
    given, known, result = rows_of(g), rows_of(out), rows_of(made)
    _share(lambda a, b: run(given, known, result, a, b), given.shape[0], 5 * g.size)
    return made


def layer_norm(f: Any, x: Any, weight: Any, bias: Any, *, rank: int, eps: float = 1e-5) -> Any:
    """Result, mean and reciprocal deviation; a missing weight is ones, a missing bias zeros."""
    affine = [v for v in (weight, bias) if v is not None]
    if x.size < _WORTH or not _fits(x, *affine) or any(v.shape != x.shape[x.ndim - rank :] for v in affine):
        return rowwise.layer_norm(f, x, weight, bias, rank=rank, eps=eps)
    matrix, run = rows_of(x, rank), rows.layer_norm.ready()
    count, width = matrix.shape
    scale = np.ones(width, _FLOAT) if weight is None else weight.reshape(-1)
    shift = np.zeros(width, _FLOAT) if bias is None else bias.reshape(-1)
    out = np.empty_like(x)
    made, means, deviations = rows_of(out, rank), np.empty(count, _FLOAT), np.empty(count, _FLOAT)
    small = np.float32(eps)
    _share(lambda a, b: run(matrix, scale, shift, small, made, means, deviations, a, b), count, 3 * x.size)
    kept = (*x.shape[: x.ndim - rank], *(1,) * rank)
    return out, means.reshape(kept), deviations.reshape(kept)


def layer_norm_grad(
    f: Any, g: Any, x: Any, weight: Any, mean: Any, deviation: Any, *, rank: int, needs: Any
) -> Any:
    """All three gradients, whichever are needed; each thread sums up its rows' share of the parameters'."""
    affine = [] if weight is None else [weight]
    if (
        x.size < _WORTH
        or not needs[0]
        or not _fits(x, g, mean, deviation, *affine)
        or g.shape != x.shape
        or any(v.shape != x.shape[x.ndim - rank :] for v in affine)
    ):
        return rowwise.layer_norm_grad(f, g, x, weight, mean, deviation, rank=rank, needs=needs)
    matrix, slopes, run = rows_of(x, rank), rows_of(g, rank), rows.layer_norm_grad.ready()
    count, width = matrix.shape
    scale = np.ones(width, _FLOAT) if weight is None else weight.reshape(-1)
    dx = np.empty_like(x)
    made, means, deviations = rows_of(dx, rank), mean.reshape(-1), deviation.reshape(-1)
    sums: dict[int, Any] = {}

    def work(a: int, b: int) -> None:
        own = sums[a] = np.zeros((2, width), _FLOAT)
        run(slopes, matrix, scale, means, deviations, made, own, a, b)

    _share(work, count, 4 * x.size)
    dweight, dbias = sums.pop(min(sums))
    for start in sorted(sums):
        dweight += sums[start][0]
        dbias += sums[start][1]
    shape = x.shape[x.ndim - rank :]
    return dx, dweight.reshape(shape), dbias.reshape(shape)


def cross_entropy(
    f: Any, x: Any, target: Any, weight: Any, *, reduction: str = "mean", ignore_index: int = -100
) -> Any:
    """Loss, and the log-sum-exp of each row."""
    if (
        x.size < _WORTH_LOSS
        or x.ndim != 2
        or not _indices(target)
        or not _fits(*((x,) if weight is None else (x, weight)))
    ):
        return rowwise.cross_entropy(f, x, target, weight, reduction=reduction, ignore_index=ignore_index)
    _cross_entropy.infer(x, target, weight, reduction=reduction, ignore_index=ignore_index)
    count, run = x.shape[0], losses.cross_entropy.ready()
    totals, parts = np.empty((count, 1), _FLOAT), np.empty((2, count), _FLOAT)
    each, weights = parts
    known = _NO_WEIGHT if weight is None else weight
    outside: list[int] = []
    _share(
        lambda a, b: outside.append(run(x, target, known, ignore_index, totals, each, weights, a, b)),
        count,
        5 * x.size,
    )
    if any(outside):
        present_targets(np, target, x.shape[1], ignore_index)  # says which
    if reduction == "none":
        return each, totals
    if reduction == "sum":
        return each.sum(), totals
    share = weights.sum()
    return each.sum() / share if share else np.float32("nan"), totals


def cross_entropy_grad(
    f: Any,
    g: Any,
    x: Any,
    total: Any,
    target: Any,
    weight: Any,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Any:
    """Probabilities times each row's share of the loss, less that share at the target."""
    if (
        x.size < _WORTH_LOSS
        or x.ndim != 2
        or not _indices(target)
        or target.shape != x.shape[:1]
        or total.shape != (x.shape[0], 1)
        or getattr(g, "dtype", None) is not _FLOAT
        or not _fits(x, total)
    ):
        return rowwise.cross_entropy_grad(
            f, g, x, total, target, weight, reduction=reduction, ignore_index=ignore_index
        )
    present = target != ignore_index
    if weight is None:
        weights = present.astype(_FLOAT)
    else:
        weights = np.where(present, weight[np.where(present, target, 0)], np.float32(0))
    if reduction == "mean":
        share = weights.sum()
        weights *= -g / share if share else np.float32(0)
    else:
        weights = weights * -g
    out, run = np.empty_like(x), losses.cross_entropy_grad.ready()
    _share(lambda a, b: run(x, total, target, weights, ignore_index, out, a, b), x.shape[0], 4 * x.size)
    return out


def _with_slope(run: Any, x: Any, cost: int) -> Any:
    out, slope = np.empty_like(x), np.empty_like(x)
    given, made, steep = x.reshape(-1), out.reshape(-1), slope.reshape(-1)
    _share(lambda a, b: run(given, made, steep, a, b), x.size, cost * x.size)
    return out, slope


def gelu(f: Any, x: Any, *, approximate: str = "none") -> Any:
    """Value and slope."""
    if x.size < _WORTH or not _fits(x):
        return activation.gelu(f, x, approximate=approximate)
    return _with_slope((smooth.gelu_tanh if approximate == "tanh" else smooth.gelu).ready(), x, 7)


def silu(f: Any, x: Any) -> Any:
    """Value and slope."""
    if x.size < _WORTH or not _fits(x):
        return activation.silu(f, x)
    return _with_slope(smooth.silu.ready(), x, 5)


def relu_grad(g: Any, out: Any) -> Any:
    """The gradient where the gate is open."""
    if g.size < _WORTH or g.shape != out.shape or not _fits(g, out):
        return piecewise.relu_grad(g, out)
    made, run = np.empty_like(g), smooth.relu_grad.ready()
    given, gates, result = g.reshape(-1), out.reshape(-1), made.reshape(-1)
    _share(lambda a, b: run(given, gates, result, a, b), g.size, g.size)
    return made


def embedding(weight: Any, indices: Any, **attrs: Any) -> Any:
    """Rows of the table; the reference says which index is outside."""
    width = weight.shape[1] if weight.ndim == 2 else 0
    if indices.size * width < _WORTH or not _indices(indices) or not _fits(weight):
        return _embedding.forward(np, weight, indices, **attrs)
    out, run = np.empty((*indices.shape, width), _FLOAT), tables.gather.ready()
    flat, made = indices.reshape(-1), out.reshape(-1, width)
    outside: list[int] = []
    _share(lambda a, b: outside.append(run(weight, flat, made, a, b)), flat.size, out.size)
    if any(outside):
        return _embedding.forward(np, weight, indices, **attrs)
    return out


def embedding_grad(
    g: Any, indices: Any, *, rows: int, padding_idx: int = -1, by_frequency: bool = False
) -> Any:
    """Each thread sums the rows of its part of the table, always in the order of the indices."""
    if (
        g.size < _WORTH
        or by_frequency
        or g.shape[:-1] != indices.shape
        or not _indices(indices)
        or not _fits(g)
    ):
        return _embedding_grad.forward(
            np, g, indices, rows=rows, padding_idx=padding_idx, by_frequency=by_frequency
        )
    out, run = np.empty((rows, g.shape[-1]), _FLOAT), tables.scatter_add.ready()
    flat, given = indices.reshape(-1), g.reshape(-1, g.shape[-1])
    _share(lambda a, b: run(given, flat, padding_idx, out, a, b), rows, g.size + out.size)
    return out


def _halves(x: Any, attrs: dict[str, Any]) -> bool:
    """Windows of 2 by 2, side by side, on planes of float32."""
    return bool(
        x.ndim == 4
        and x.size >= _WORTH
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
    if not _halves(x, attrs) or not _fits(x):
        return pooling.max_pool(x, **attrs)
    out, run = (
        np.empty((*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2), _FLOAT),
        windows.max_pool_2x2.ready(),
    )
    planes, made = _planes(x), _planes(out)
    _share(lambda a, b: run(planes, made, a, b), made.shape[0], 2 * x.size)
    return out


def max_pool_grad(g: Any, x: Any, out: Any, **attrs: Any) -> Any:
    """Windows of 2 by 2; others by NumPy."""
    if not _halves(x, attrs) or not _fits(g, x, out) or not g.shape == out.shape == _halved(x):
        return pooling.max_pool_grad(g, x, out, **attrs)
    whole = x.shape[2] % 2 == x.shape[3] % 2 == 0
    made, run = np.empty_like(x) if whole else np.zeros_like(x), windows.max_pool_2x2_grad.ready()
    given, planes, tops, result = _planes(g), _planes(x), _planes(out), _planes(made)
    _share(lambda a, b: run(given, planes, tops, result, a, b), given.shape[0], 8 * x.size)
    return made


KERNELS: dict[str, Kernel] = {
    "relu_grad": relu_grad,
    "embedding": embedding,
    "embedding_grad": embedding_grad,
    "max_pool": max_pool,
    "max_pool_grad": max_pool_grad,
}
COMPOSITES: dict[str, Kernel] = {
    "softmax": softmax,
    "softmax_grad": softmax_grad,
    "log_softmax": log_softmax,
    "log_softmax_grad": log_softmax_grad,
    "layer_norm": layer_norm,
    "layer_norm_grad": layer_norm_grad,
    "cross_entropy": cross_entropy,
    "cross_entropy_grad": cross_entropy_grad,
    "gelu": gelu,
    "silu": silu,
}
