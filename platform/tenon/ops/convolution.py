"""Convolution in any number of spatial axes: ``conv``, ``conv_input_grad``, ``conv_weight_grad``.

The three are the partial maps of one trilinear form ``<g, conv(x, weight)>``, so the gradients of each are
the other two: they are closed under differentiation to any order. Layouts: ``x[N, C, *S]``,
``weight[O, C / groups, *K]``, ``g[N, O, *S']``. ``stride``, ``padding`` (both sides) and ``dilation`` have
one entry per spatial axis. ``conv_input_grad`` is also transposed convolution.

The reference forwards gather windows and multiply matrices; ``tenon_cpu`` has faster kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenon.compat.saved_readers import CONVOLUTION, always
from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind, Primitive
from tenon.engine.sharding_rule import ShardingRule
from tenon.engine.types import Array, ArrayNamespace, Operand, OpNamespace
from tenon.errors import ShapeError
from tenon.ops.convolution_checks import check, check_bias, output_sizes
from tenon.ops.dtype_queries import is_complex
from tenon.tensors.storage.untyped import strided


def padded(xp: ArrayNamespace, x: Array, padding: tuple[int, ...]) -> Array:
    """Pad the spatial axes of ``x`` with zeros on both sides."""
    if not any(padding):
        return x
    shape = (*x.shape[:2], *(s + 2 * p for s, p in zip(x.shape[2:], padding, strict=True)))
    result = xp.zeros(shape, x.dtype)
    result[(..., *(slice(p, p + s) for s, p in zip(x.shape[2:], padding, strict=True)))] = x
    return result


def windows(
    xp: ArrayNamespace, x: Array, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> Array:
    """View the windows of a padded ``x[N, C, *S]`` as ``[N, C, *S', *K]``."""
    sizes = output_sizes(x.shape[2:], kernel, stride, (0,) * len(kernel), dilation)
    steps = x.strides[2:]
    strides = (
        *x.strides[:2],
        *(s * t for s, t in zip(steps, stride, strict=True)),
        *(s * d for s, d in zip(steps, dilation, strict=True)),
    )
    return strided(xp, x, (*x.shape[:2], *sizes, *kernel), strides)


def columns(
    xp: ArrayNamespace,
    x: Array,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """Return the windows of ``x`` as matrices ``[groups, C / groups * prod(K), N * prod(S')]``."""
    patches = windows(xp, padded(xp, x, padding), kernel, stride, dilation)
    rank, channels = len(kernel), x.shape[1] // groups
    patches = patches.reshape(x.shape[0], groups, channels, *patches.shape[2:])
    order = (1, 2, *range(3 + rank, 3 + 2 * rank), 0, *range(3, 3 + rank))
    return patches.transpose(order).reshape(
        groups, channels * math.prod(kernel), x.shape[0] * math.prod(patches.shape[3 : 3 + rank])
    )


def _conj(f: OpNamespace, x: Operand) -> Operand:
    """Return the conjugate of ``x``, without an op if it is real."""
    return f.conj(x) if is_complex(x) else x


def _rule(like: Operand, groups: int, first: str, second: str, result: str) -> ShardingRule:
    """The sharding rule of a map of two of ``x[n, c]``, ``weight[o, c]`` and ``g[n, o]`` to the third; with
    ``groups`` only the samples are independent."""
    space = (None,) * (len(like.shape) - 2)
    o, c = ("o", "c") if groups == 1 else (None, None)
    factors = {"x": ("n", c, *space), "weight": (o, c, *space), "g": ("n", o, *space)}
    return ShardingRule(
        (factors[first], factors[second]), (factors[result],), "sum", linear="separately", filled=True
    )


class Conv(Primitive):
    """Cross-correlation of ``x`` with ``weight``."""

    kind = Kind.CONVOLVE
    follows = 2
    inputs = ("x", "weight")
    saves = ("x", "weight")
    reads = {"x": ("weight",), "weight": ("x",)}
    grad_name = "ConvolutionBackward0"
    packable = True
    autocast = "lower"
    saved_names = CONVOLUTION | {"bias_sym_sizes_opt": always((0,))}  # PyTorch reports (0,) for None here

    def sharding_rule(self, x, weight, *, groups, **attrs):
        """Samples follow ``x``, channels ``weight``; sums over parts of the input channels add up."""
        return _rule(weight, groups, "x", "weight", "g")

    def infer(self, x, weight, *, stride, padding, dilation, groups):
        """Batch, output channels, output sizes."""
        check(x, weight, stride, padding, dilation, groups)
        sizes = output_sizes(x.shape[2:], weight.shape[2:], stride, padding, dilation)
        return Aval((x.shape[0], weight.shape[0], *sizes), x.dtype)

    def forward(self, xp, x, weight, *, stride, padding, dilation, groups):
        """Multiply the matrices of weights and windows, group by group."""
        shape = self.infer(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups).shape
        patches = columns(xp, x, weight.shape[2:], stride, padding, dilation, groups)
        per_group = weight.shape[0] // groups
        result = xp.matmul(weight.reshape(groups, per_group, math.prod(weight.shape[1:])), patches)
        result = result.reshape(weight.shape[0], x.shape[0], *shape[2:])
        return xp.ascontiguousarray(
            xp.swapaxes(result, 0, 1), dtype=x.dtype
        )  # bfloat16 multiplies in float32

    def vjp_x(self, f, g, out, x, weight, *, stride, padding, dilation, groups):
        return f.conv_input_grad(
            g,
            _conj(f, weight),
            sizes=tuple(x.shape[2:]),
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )

    def vjp_weight(self, f, g, out, x, weight, *, stride, padding, dilation, groups):
        return f.conv_weight_grad(
            _conj(f, x),
            g,
            kernel=tuple(weight.shape[2:]),
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )

    def cost(self, x, weight, **attrs):
        """A multiplication and an addition per product of a weight and an input."""
        return 2.0 * self.infer(x, weight, **attrs).size * math.prod(weight.shape[1:])


class ConvInputGrad(Primitive):
    """The gradient of ``conv`` with respect to its input: the transposed convolution of ``g`` to
    ``sizes``."""

    kind = Kind.CONVOLVE
    follows = 2
    inputs = ("g", "weight")
    saves = ("g", "weight")
    reads = {"g": ("weight",), "weight": ("g",)}
    grad_name = "ConvolutionBackward0"
    autocast = "lower"

    def sharding_rule(self, g, weight, *, groups, **attrs):
        """As ``conv``: sums over parts of the output channels add up."""
        return _rule(weight, groups, "g", "weight", "x")

    def infer(self, g, weight, *, sizes, stride, padding, dilation, groups):
        """The input's shape."""
        if g.shape[1] != weight.shape[0]:
            raise ShapeError(
                f"Given transposed=1, weight of size {list(weight.shape)}, expected input{list(g.shape)} to"
                f" have {weight.shape[0]} channels, but got {g.shape[1]} channels instead"
            )
        result = Aval((g.shape[0], weight.shape[1] * groups, *sizes), g.dtype)
        check(result, weight, stride, padding, dilation, groups)
        return result

    def cost(self, g, weight, **attrs):
        """A multiplication and an addition per pair of an element of ``g`` and a weight."""
        return 2.0 * g.size * math.prod(weight.shape[1:])

    def forward(self, xp, g, weight, *, sizes, stride, padding, dilation, groups):
        """Multiply the transposed weights with ``g``, then add the windows at their positions."""
        aval = self.infer(
            g, weight, sizes=sizes, stride=stride, padding=padding, dilation=dilation, groups=groups
        )
        kernel, batch, outs = weight.shape[2:], g.shape[0], g.shape[2:]
        per_group = weight.shape[0] // groups
        matrix = xp.swapaxes(weight.reshape(groups, per_group, math.prod(weight.shape[1:])), 1, 2)
        spread = xp.swapaxes(g, 0, 1).reshape(groups, per_group, batch * math.prod(outs))
        parts = xp.matmul(matrix, spread).reshape(aval.shape[1], *kernel, batch, *outs)
        result = xp.zeros(
            (batch, aval.shape[1], *(s + 2 * p for s, p in zip(sizes, padding, strict=True))), parts.dtype
        )
        for position in positions_in(kernel):
            region = tuple(
                slice(i * d, i * d + (n - 1) * t + 1, t)
                for i, d, n, t in zip(position, dilation, outs, stride, strict=True)
            )
            result[(..., *region)] += xp.swapaxes(parts[(slice(None), *position)], 0, 1)
        inner = tuple(slice(p, p + s) for s, p in zip(sizes, padding, strict=True))
        return xp.ascontiguousarray(result[(..., *inner)], dtype=g.dtype)

    def vjp_g(self, f, g, out, gradient, weight, *, sizes, stride, padding, dilation, groups):
        return f.conv(g, _conj(f, weight), stride=stride, padding=padding, dilation=dilation, groups=groups)

    def vjp_weight(self, f, g, out, gradient, weight, *, sizes, stride, padding, dilation, groups):
        return f.conv_weight_grad(
            g,
            _conj(f, gradient),
            kernel=tuple(weight.shape[2:]),
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )


def positions_in(kernel: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all positions in a window, in C order."""
    positions: list[tuple[int, ...]] = [()]
    for k in kernel:
        positions = [(*p, i) for p in positions for i in range(k)]
    return positions


class ConvWeightGrad(Primitive):
    """The gradient of ``conv`` with respect to its weight, of spatial size ``kernel``."""

    kind = Kind.CONVOLVE
    follows = 2
    inputs = ("x", "g")
    saves = ("x", "g")
    reads = {"x": ("g",), "g": ("x",)}
    grad_name = "ConvolutionBackward0"

    def sharding_rule(self, x, g, *, groups, **attrs):
        """As ``conv``: sums over parts of the samples add up."""
        return _rule(x, groups, "x", "g", "weight")

    def infer(self, x, g, *, kernel, stride, padding, dilation, groups):
        """The weight's shape."""
        return Aval((g.shape[1], x.shape[1] // groups, *kernel), x.dtype)

    def cost(self, x, g, *, kernel, groups, **attrs):
        """A multiplication and an addition per pair of an element of ``g`` and a weight."""
        return 2.0 * g.size * (x.shape[1] // groups) * math.prod(kernel)

    def forward(self, xp, x, g, *, kernel, stride, padding, dilation, groups):
        """Multiply ``g`` with the windows and sum over batch and positions."""
        patches = columns(xp, x, kernel, stride, padding, dilation, groups)
        reach = output_sizes(x.shape[2:], kernel, stride, padding, dilation)
        if tuple(g.shape[2:]) != reach:
            raise ShapeError(f"conv_weight_grad: g has sizes {list(g.shape[2:])}, expected {list(reach)}.")
        rows = xp.swapaxes(g, 0, 1).reshape(groups, g.shape[1] // groups, patches.shape[2])
        result = xp.matmul(rows, xp.swapaxes(patches, 1, 2)).reshape(
            g.shape[1], x.shape[1] // groups, *kernel
        )
        return xp.ascontiguousarray(result, dtype=x.dtype)

    def vjp_x(self, f, g, out, x, gradient, *, kernel, stride, padding, dilation, groups):
        return f.conv_input_grad(
            _conj(f, gradient),
            g,
            sizes=tuple(x.shape[2:]),
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )

    def vjp_g(self, f, g, out, x, gradient, *, kernel, stride, padding, dilation, groups):
        return f.conv(_conj(f, x), g, stride=stride, padding=padding, dilation=dilation, groups=groups)


class Convolution(Composite):
    """``conv`` plus a ``bias`` per output channel, as a single node."""

    kind = Kind.CONVOLVE
    follows = 2
    inputs = ("x", "weight", "bias")
    saves = ("x", "weight")
    reads = {"x": ("weight",), "weight": ("x",), "bias": ()}
    grad_name = "ConvolutionBackward0"
    packable = True
    autocast = "lower"
    saved_names = CONVOLUTION

    def sharding_rule(self, x, weight, bias, *, groups, **attrs):
        """Samples follow ``x``, channels ``weight``; its parts add up over parts of the input channels."""
        space = (None,) * (len(weight.shape) - 2)
        o = "o" if groups == 1 else None
        return ShardingRule((("n", None, *space), (o, None, *space), (o,)), (("n", o, *space),), filled=True)

    def decompose(self, f, x, weight, bias, *, stride, padding, dilation, groups):
        result = f.conv(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
        check_bias(weight, bias, weight.shape[0])
        return f.add(result, f.reshape(bias, shape=(-1, *(1,) * len(stride))))

    def vjp_x(self, f, g, out, x, weight, bias, **attrs):
        return f.conv_input_grad(g, _conj(f, weight), sizes=tuple(x.shape[2:]), **attrs)

    def vjp_weight(self, f, g, out, x, weight, bias, **attrs):
        return f.conv_weight_grad(_conj(f, x), g, kernel=tuple(weight.shape[2:]), **attrs)

    def vjp_bias(self, f, g, out, x, weight, bias, **attrs):
        return f.sum(g, axes=(0, *range(2, len(g.shape))))


conv, conv_input_grad, conv_weight_grad, convolution = (
    Conv(),
    ConvInputGrad(),
    ConvWeightGrad(),
    Convolution(),
)
