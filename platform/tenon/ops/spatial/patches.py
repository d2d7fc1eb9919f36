"""Patches of an image as columns, and their sum back: ``unfold`` and ``fold``, which are transposes.

``x[N, C, *S]`` and ``columns[N, C * prod(kernel), patches]``; one entry per spatial axis in ``kernel``,
``stride``, ``padding`` and ``dilation``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import EllipsisType

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.errors import ShapeError
from tenon.ops.convolution import padded, positions_in
from tenon.ops.convolution_checks import output_sizes
from tenon.ops.dtype_queries import in_float32


def _counts(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the number of patches along each axis; raise unless the arguments are valid."""
    for name, values in (("kernel size", kernel), ("stride", stride), ("dilation", dilation)):
        if any(v < 1 for v in values):
            raise ShapeError(f"{name} should be greater than zero, but got {list(values)}")
    if any(p < 0 for p in padding):
        raise ShapeError(f"padding should be non-negative, but got {list(padding)}")
    counts = output_sizes(shape[2:], kernel, stride, padding, dilation)
    if min(counts) < 1:
        raise ShapeError(
            f"Given input with spatial size {tuple(shape[2:])}, kernel_size={tuple(kernel)},"
            f" dilation={tuple(dilation)}, padding={tuple(padding)}, calculated shape of the array of sliding"
            f" blocks as {tuple(counts)}, but its components must be at least one."
        )
    return counts


def _regions(
    kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], counts: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[EllipsisType | slice, ...]]]:
    """Yield every position in a patch, and the strided region of the padded image with its elements."""
    for position in positions_in(kernel):
        yield (
            position,
            (
                ...,
                *(
                    slice(i * d, i * d + (n - 1) * t + 1, t)
                    for i, d, n, t in zip(position, dilation, counts, stride, strict=True)
                ),
            ),
        )


class Unfold(Primitive):
    """Patches of ``x`` as columns."""

    kind = Kind.WINDOW
    grad_name = "Im2ColBackward0"

    def infer(self, x, *, kernel, stride, padding, dilation):
        """Channels times patch size, then the number of patches."""
        counts = _counts(x.shape, kernel, stride, padding, dilation)
        return Aval((x.shape[0], x.shape[1] * math.prod(kernel), math.prod(counts)), x.dtype)

    def forward(self, xp, x, *, kernel, stride, padding, dilation):
        """One strided copy per position in a patch."""
        counts = _counts(x.shape, kernel, stride, padding, dilation)
        padded_x = padded(xp, x, padding)
        result = xp.empty((*x.shape[:2], *kernel, *counts), x.dtype)
        for position, region in _regions(kernel, stride, dilation, counts):
            result[(slice(None), slice(None), *position)] = padded_x[region]
        return result.reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(counts))

    def vjp_x(self, f, g, out, x, **attrs):
        return f.fold(g, sizes=tuple(x.shape[2:]), **attrs)


class Fold(Primitive):
    """Columns summed into images of ``sizes``."""

    kind = Kind.WINDOW
    grad_name = "Col2ImBackward0"

    def infer(self, x, *, sizes, kernel, stride, padding, dilation):
        """The images' shape."""
        size = math.prod(kernel)
        if x.shape[1] % size:
            raise ShapeError(
                "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got"
                f" input.size(1)={x.shape[1]} and kernel_size={tuple(kernel)}."
            )
        shape = (x.shape[0], x.shape[1] // size, *sizes)
        counts = _counts(shape, kernel, stride, padding, dilation)
        if x.shape[2] != math.prod(counts):
            raise ShapeError(
                f"Given output_size={tuple(sizes)}, kernel_size={tuple(kernel)}, dilation={tuple(dilation)},"
                f" padding={tuple(padding)}, stride={tuple(stride)}, expected size of input's dimension 2 to"
                f" match the calculated number of sliding blocks {' * '.join(map(str, counts))} ="
                f" {math.prod(counts)}, but got input.size(2)={x.shape[2]}."
            )
        return Aval(shape, x.dtype)

    @in_float32
    def forward(self, xp, x, *, sizes, kernel, stride, padding, dilation):
        """One strided addition per position in a patch."""
        attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
        shape = self.infer(x, sizes=sizes, **attrs).shape
        counts = _counts(shape, **attrs)
        parts = x.reshape(*shape[:2], *kernel, *counts)
        result = xp.zeros((*shape[:2], *(s + 2 * p for s, p in zip(sizes, padding, strict=True))), x.dtype)
        for position, region in _regions(kernel, stride, dilation, counts):
            result[region] += parts[(slice(None), slice(None), *position)]
        inner = tuple(slice(p, p + s) for s, p in zip(sizes, padding, strict=True))
        return xp.ascontiguousarray(result[(..., *inner)])

    def vjp_x(self, f, g, out, x, *, sizes, **attrs):
        return f.unfold(g, **attrs)


unfold, fold = Unfold(), Fold()
