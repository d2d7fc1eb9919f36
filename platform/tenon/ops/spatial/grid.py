"""Weights and indices of a sampling grid: ``grid_weights``, ``grid_weights_grad``, ``grid_places``; and grids
of affine maps, ``affine_grid``, whose gradient ``affine_grid_grad`` needs no saved values.

``grid[N, P, axes]`` holds coordinates between -1 and 1, the last spatial axis first; ``sizes`` are those of
the image, first axis first. ``mode``: "nearest" (one tap per axis), "linear" (two), "cubic" (four);
``padding``: "zeros", "border", "reflection"; ``align``: whether -1 and 1 mean the centres of the outermost
elements or their outer edges. Taps are in the order of ``positions_in``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace, Operand, OpNamespace
from tenon.ops.convolution import positions_in
from tenon.ops.dtype_queries import dtype_of

_INT = np.dtype(np.int64)
OFFSETS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
#: The slope parameter of the cubic.
_A = -0.75


def _unnormalised(f: OpNamespace, g: Operand, size: int, align: bool) -> Operand:
    """Convert coordinates from [-1, 1] to elements."""
    if align:
        return f.mul(f.add(g, 1), (size - 1) / 2)
    return f.sub(f.mul(f.add(g, 1), size / 2), 0.5)


def _folded(f: OpNamespace, u: Operand, size: int, padding: str, align: bool) -> tuple[Operand, Operand]:
    """Return ``u`` clipped or reflected into the image by ``padding``, and the derivative: -1, 0 or 1 (None:
    1)."""
    if padding == "zeros":
        return u, None
    slope = None
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return f.mul(u, 0), f.mul(u, 0)
        z = f.sub(u, low)
        below = f.lt(z, 0)
        z = f.where(below, f.neg(z), z)
        flips = f.floor(f.div(z, span))
        extra = f.sub(z, f.mul(flips, span))
        odd = f.ne(f.sub(flips, f.mul(f.floor(f.div(flips, 2)), 2)), 0)
        u = f.add(f.where(odd, f.sub(span, extra), extra), low)
        ones = f.add(f.mul(f.floor(flips), 0), 1)
        slope = f.mul(f.where(below, f.neg(ones), ones), f.where(odd, f.neg(ones), ones))
    least, most = f.le(u, 0), f.ge(u, size - 1)
    zeros = f.mul(f.floor(u), 0)
    inside = f.where(least, zeros, f.where(most, f.add(zeros, size - 1), u))
    clip_slope = f.where(f.logical_or(least, most), zeros, f.add(zeros, 1))
    return inside, clip_slope if slope is None else f.mul(slope, clip_slope)


def _split(
    f: OpNamespace, grid: Operand, axis: int, size: int, mode: str, padding: str, align: bool
) -> tuple[Operand, Operand, Operand]:
    """Return the base element, the fraction beyond it and the slope along one axis; cubic folds its taps
    later."""
    u = _unnormalised(f, f.index(grid, key=(..., axis)), size, align)
    v, slope = (u, None) if mode == "cubic" else _folded(f, u, size, padding, align)
    base = f.round(v) if mode == "nearest" else f.floor(v)
    return base, f.sub(v, base), slope


def _factors(f: OpNamespace, t: Operand, mode: str) -> list[Operand]:
    """Return the weights of the taps of one axis at fraction ``t``."""
    if mode == "linear":
        return [f.sub(1, t), t]
    if mode == "nearest":
        return [f.add(f.mul(f.floor(t), 0), 1)]
    near = lambda x: f.add(f.mul(f.mul(f.sub(f.mul(x, _A + 2), _A + 3), x), x), 1)  # noqa: E731
    far = lambda x: f.sub(f.mul(f.add(f.mul(f.sub(x, 5), x), 8), f.mul(x, _A)), 4 * _A)  # noqa: E731
    return [far(f.add(t, 1)), near(t), near(f.sub(1, t)), far(f.sub(2, t))]


def _slopes(f: OpNamespace, t: Operand, mode: str) -> list[Operand]:
    """Return the derivatives of ``_factors`` with respect to ``t``."""
    if mode == "linear":
        ones = f.add(f.mul(f.floor(t), 0), 1)
        return [f.neg(ones), ones]
    if mode == "nearest":
        return [f.mul(f.floor(t), 0)]
    near = lambda x: f.mul(f.sub(f.mul(x, 3 * (_A + 2)), 2 * (_A + 3)), x)  # noqa: E731
    far = lambda x: f.mul(f.add(f.mul(f.sub(f.mul(x, 3), 10), x), 8), _A)  # noqa: E731
    return [far(f.add(t, 1)), near(t), f.neg(near(f.sub(1, t))), f.neg(far(f.sub(2, t)))]


def _products(f: OpNamespace, factors: Sequence[Sequence[Operand]]) -> Operand:
    """Return the products ``[N, taps, P]`` of one factor per axis, for every combination."""
    result = []
    for position in positions_in([len(per_axis) for per_axis in factors]):
        product = factors[0][position[0]]
        for axis, tap in enumerate(position[1:], 1):
            product = f.mul(product, factors[axis][tap])
        result.append(product)
    return f.stack(*result, axis=1)


def products(f: OpNamespace, fractions: list[Operand], mode: str) -> Operand:
    """Return weights ``[N, taps, P]`` from the fractions ``[N, P]`` beyond the base elements, one per
    axis."""
    return _products(f, [_factors(f, t, mode) for t in fractions])


class GridWeights(Composite):
    """Interpolation weights ``[N, taps, P]`` of ``grid``."""

    kind = Kind.INDEX
    inputs = ("grid",)
    saves = ("grid",)

    def decompose(self, f, grid, *, sizes, mode, padding, align):
        rank = len(sizes)
        fractions = [
            _split(f, grid, rank - 1 - axis, size, mode, padding, align)[1] for axis, size in enumerate(sizes)
        ]
        return products(f, fractions, mode)

    def vjp_grid(self, f, g, out, grid, **attrs):
        return f.grid_weights_grad(g, grid, **attrs)


class GridWeightsGrad(Composite):
    """The gradient of ``grid_weights`` with respect to its grid."""

    kind = Kind.INDEX
    inputs = ("g", "grid")

    def decompose(self, f, g, grid, *, sizes, mode, padding, align):
        rank = len(sizes)
        split = [
            _split(f, grid, rank - 1 - axis, size, mode, padding, align)[1:]
            for axis, size in enumerate(sizes)
        ]
        factors, result = [_factors(f, t, mode) for t, _ in split], []
        for axis in reversed(range(rank)):
            t, slope = split[axis]
            derivatives = [_slopes(f, t, mode) if a == axis else own for a, own in enumerate(factors)]
            gradient = f.sum(f.mul(g, _products(f, derivatives)), axes=(1,))
            gradient = gradient if slope is None else f.mul(gradient, slope)
            result.append(f.mul(gradient, (sizes[axis] - 1) / 2 if align else sizes[axis] / 2))
        return f.stack(*result, axis=2)


class GridPlaces(Primitive):
    """The indices into the flattened image that the taps of ``grid_weights`` read; -1 outside of it."""

    kind = Kind.INDEX
    inputs = ("grid",)

    def infer(self, grid, *, sizes, mode, padding, align):
        """int64, one per tap."""
        return Aval((grid.shape[0], len(OFFSETS[mode]) ** len(sizes), grid.shape[1]), _INT)

    def forward(self, xp, grid, *, sizes, mode, padding, align):
        """Compute indices for each axis, then for every combination of taps."""
        f, rank, taps = _ArrayOps(xp), len(sizes), OFFSETS[mode]
        per_axis = []
        for axis, size in enumerate(sizes):
            base = _split(f, grid, rank - 1 - axis, size, mode, padding, align)[0]
            coordinates = [base + offset for offset in taps]
            if mode == "cubic":
                coordinates = [_folded(f, u, size, padding, align)[0] for u in coordinates]
            valid = [(u >= 0) & (u <= size - 1) for u in coordinates]
            indices = [xp.where(v, u, 0).astype(_INT) for v, u in zip(valid, coordinates, strict=True)]
            per_axis.append((indices, valid))
        result = xp.empty((grid.shape[0], len(taps) ** rank, grid.shape[1]), _INT)
        for number, position in enumerate(positions_in([len(taps)] * rank)):
            flat, inside = per_axis[0][0][position[0]], per_axis[0][1][position[0]]
            for axis, tap in enumerate(position[1:], 1):
                flat = flat * sizes[axis] + per_axis[axis][0][tap]
                inside = inside & per_axis[axis][1][tap]
            result[:, number] = xp.where(inside, flat, -1)
        return result


def _homogeneous(sizes: tuple[int, ...], align: bool, dtype: np.dtype) -> Operand:
    """Return homogeneous coordinates ``[points, axes + 1]`` of all pixels, the last axis first."""
    steps = []
    for size in sizes:
        line = np.linspace(-1, 1, size) if size > 1 else np.zeros(1)
        steps.append(line if align or size <= 1 else line * (size - 1) / size)
    flat = [g.reshape(-1) for g in reversed(np.meshgrid(*steps, indexing="ij"))]
    return np.stack([*flat, np.ones(math.prod(sizes))], axis=1).astype(dtype)


class AffineGrid(Primitive):
    """The images of all pixels under the maps ``theta[N, axes, axes + 1]``: ``[N, points, axes]``."""

    kind = Kind.WINDOW
    inputs = ("theta",)
    grad_name = "AffineGridGeneratorBackward0"

    def infer(self, theta, *, sizes, align):
        """A point per pixel."""
        return Aval((theta.shape[0], math.prod(sizes), len(sizes)), dtype_of(theta))

    def forward(self, xp, theta, *, sizes, align):
        """One product for all maps."""
        points = xp.asarray(_homogeneous(sizes, align, theta.dtype))
        return xp.matmul(points, theta.swapaxes(1, 2)).astype(theta.dtype, copy=False)

    def vjp_theta(self, f, g, out, theta, *, sizes, align):
        return f.affine_grid_grad(g, sizes=sizes, align=align)


class AffineGridGrad(Primitive):
    """The gradient of ``affine_grid`` with respect to its maps."""

    kind = Kind.WINDOW
    inputs = ("g",)

    def infer(self, g, *, sizes, align):
        """A map per image."""
        return Aval((g.shape[0], len(sizes), len(sizes) + 1), dtype_of(g))

    def forward(self, xp, g, *, sizes, align):
        """The transposed product."""
        points = xp.asarray(_homogeneous(sizes, align, g.dtype))
        return xp.matmul(g.swapaxes(1, 2), points).astype(g.dtype, copy=False)

    def vjp_g(self, f, h, out, g, *, sizes, align):
        return f.affine_grid(h, sizes=sizes, align=align)


class _ArrayOps:
    """An op namespace over arrays of ``xp``, with the ops that coordinates need."""

    def __init__(self, xp: ArrayNamespace) -> None:
        self.xp = xp

    def __getattr__(self, name: str) -> Callable[..., Array]:
        names = {"mul": "multiply", "sub": "subtract", "div": "divide", "neg": "negative", "round": "rint"}
        names |= {"lt": "less", "le": "less_equal", "ge": "greater_equal", "ne": "not_equal"}
        return getattr(self.xp, names.get(name, name))

    @staticmethod
    def index(x: Array, *, key: tuple[object, ...]) -> Array:
        return x[key]


grid_weights, grid_weights_grad, grid_places = GridWeights(), GridWeightsGrad(), GridPlaces()
affine_grid, affine_grid_grad = AffineGrid(), AffineGridGrad()
