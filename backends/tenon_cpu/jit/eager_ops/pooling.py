"""Max pooling of large float32 arrays, and means of planes, by compiled kernels."""

from __future__ import annotations

import numpy as np

from tenon.extend import Attr, Attrs
from tenon.ops import max_pool as _max_pool
from tenon_cpu.jit.compiler.compile import Argument
from tenon_cpu.jit.eager_ops.calls import FLOAT, INDEX, plain, share
from tenon_cpu.jit.eager_ops.sums import mean
from tenon_cpu.jit.loops import windows
from tenon_cpu.kernels import direct


def is_2x2(
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


def pooled_2x2_shape(x: np.ndarray) -> tuple[int, ...]:
    """The shape of the result of ``max_pool_2x2``."""
    return (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)


def _planes(x: np.ndarray) -> np.ndarray:
    """``x`` with batch and channels as one axis."""
    return x.reshape(-1, *x.shape[2:])


def _geometry_1d(attrs: Attrs) -> tuple[int, ...]:
    """The windows' size, stride, padding and dilation along their only axis."""
    return tuple(attrs[name][0] for name in ("kernel", "stride", "padding", "dilation"))


def max_pool_1d(x: np.ndarray, **attrs: Attr) -> np.ndarray:
    """Max pooling in one dimension."""
    out = np.empty(_max_pool.infer(x, **attrs).shape, FLOAT)
    count, lines = x.shape[0] * x.shape[1], out.reshape(-1, out.shape[2])
    share(windows.max_pool_1d, (plain(x).reshape(count, -1), *_geometry_1d(attrs), lines), count, 4 * x.size)
    return out


def max_pool_2x2(x: np.ndarray) -> np.ndarray:
    """Max pooling of windows of 2 by 2."""
    out = np.empty(pooled_2x2_shape(x), FLOAT)
    planes = _planes(out)
    share(windows.max_pool_2x2, (_planes(x), planes), planes.shape[0], 2 * x.size)
    return out


def max_pool_1d_grad(g: np.ndarray, x: np.ndarray, out: np.ndarray, **attrs: Attr) -> np.ndarray:
    """The gradient of max pooling in one dimension."""
    count, dx = x.shape[0] * x.shape[1], np.zeros(x.shape, FLOAT)
    lines = [plain(a).reshape(count, -1) for a in (g, x, out)]
    arrays: tuple[Argument, ...] = (*lines, *_geometry_1d(attrs), dx.reshape(count, -1))
    share(windows.max_pool_1d_grad, arrays, count, 20 * g.size)
    return dx


def max_pool_2x2_grad(g: np.ndarray, x: np.ndarray, out: np.ndarray) -> np.ndarray:
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


def adaptive_avg_pool(x: np.ndarray, *, sizes: tuple[int, ...]) -> np.ndarray:
    """The mean of each plane, for ``sizes`` that are all 1."""
    axes = tuple(range(2, x.ndim))
    means = mean(x, axes=axes, keepdims=True)
    return direct.mean(x, axes=axes, keepdims=True) if means is NotImplemented else means
