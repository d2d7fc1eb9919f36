"""Results in the memory format of their input: ``channels_last`` through ops that know one order only.

Kernels of convolutions, pools and their kin write plain C order. Where the strides of an input say that its
channels lie last, the result is laid out anew (a walk more, which plain inputs do not pay), as torch's
users read it off ``stride()`` and ``is_contiguous(memory_format=...)``.
"""

from __future__ import annotations

from typing import Any

#: Axes in the order in which ``channels_last`` lays them, by rank, and how they come back.
LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
BACK = {4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}


def channels_lie_last(x: Any) -> bool:
    """Whether the strides of an array of four or five axes grow from channels over columns to images.

    Gaps do not matter. Axes of one element have strides too, and only those tell ``[N, 1, H, W]`` in one
    format from the same in the other; where they do not, it is plain.
    """
    rank = x.ndim
    if rank != 4 and rank != 5:
        return False
    strides = x.strides
    least = strides[1]
    if least > strides[-1] or least == 0:
        return False
    shape = x.shape
    for axis in (1, *range(rank - 1, 1, -1), 0):
        size, stride = shape[axis], strides[axis]
        if size == 0 or stride < least or (axis == 0 and least == strides[1]):
            return False
        least = stride * size if size > 1 else stride
    return True


def laid_last(xp: Any, x: Any) -> Any:
    """A copy of ``x`` whose channels lie last, without gaps; ``x`` itself where they do, or it has none."""
    axes = LAST.get(x.ndim)
    if axes is None:
        return x
    seen = x.transpose(axes)
    if seen.flags.c_contiguous and channels_lie_last(x):
        return x
    result = xp.empty(seen.shape, x.dtype)
    result[...] = seen
    return result.transpose(BACK[x.ndim])


def in_c_order(xp: Any, x: Any) -> Any:
    """``x``, which NumPy's loops may have left in the order of their input, in C order."""
    return x if x.flags.c_contiguous else xp.ascontiguousarray(x)


def plain(kernel: Any, xp: Any) -> Any:
    """``kernel`` with outputs in C order."""

    def laid(x: Any, *rest: Any, **attrs: Any) -> Any:
        out = kernel(x, *rest, **attrs)
        return tuple(in_c_order(xp, o) for o in out) if out.__class__ is tuple else in_c_order(xp, out)

    return laid


def following(kernel: Any, op: Any, xp: Any) -> Any:
    """``kernel`` with outputs in the memory format of the first ``op.follows`` inputs."""
    visible, both = op.outputs, op.follows > 1

    def followed(x: Any, *rest: Any, **attrs: Any) -> Any:
        out = kernel(x, *rest, **attrs)
        if not (channels_lie_last(x) or (both and channels_lie_last(rest[0]))):
            return out
        if out.__class__ is tuple:
            return (*(laid_last(xp, o) for o in out[:visible]), *out[visible:])
        return laid_last(xp, out)

    return followed
