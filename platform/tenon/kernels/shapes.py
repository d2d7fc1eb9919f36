"""Shape arithmetic of ops: broadcasting, axes, reductions, products, reshapes; with PyTorch's errors."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from tenon.engine.aval import Shape
from tenon.errors import ShapeError


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the common shape after broadcasting; ShapeError with PyTorch's message if there is none.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    rank = max(len(s) for s in shapes)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size == 1 or size == result[axis]:
                continue
            if result[axis] != 1:
                raise ShapeError(
                    f"The size of tensor a ({result[axis]}) must match the size of tensor b ({size}) at"
                    f" non-singleton dimension {axis}: shapes {' and '.join(str(list(s)) for s in shapes)} do"
                    " not broadcast. Reshape or expand one of them."
                )
            result[axis] = size
    return tuple(result)


def normalize_axis(axis: int, rank: int, *, extra: int = 0) -> int:
    """Convert ``axis`` to a non-negative index into ``rank + extra`` axes; AxisError if it is out of range.

    A 0-d tensor counts as rank 1, as in PyTorch.
    """
    bound = max(rank + extra, 1)
    if not -bound <= axis < bound:
        raise AxisError(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {axis})"
        )
    return axis + bound if axis < 0 else axis


class AxisError(ShapeError, IndexError):
    """An axis outside the tensor's rank."""


def normalize_axes(axes: int | Sequence[int] | None, rank: int) -> Shape:
    """Convert ``axes`` to a sorted tuple of non-negative axes; None or an empty sequence means all."""
    if axes is None:
        return tuple(range(rank))
    if isinstance(axes, int):
        axes = (axes,)
    elif isinstance(axes, (dict, set, str, bytes)):
        raise TypeError(f"axes are an int or a sequence of ints, not {type(axes).__name__}")
    elif not hasattr(axes, "__len__") or getattr(axes, "ndim", 1) == 0:
        axes = (operator.index(axes),)  # type: ignore[arg-type]  # a tensor with one element
    if len(axes) == 0:
        return tuple(range(rank))
    normalized = [normalize_axis(int(a), rank) for a in axes]
    if len(set(normalized)) != len(normalized):
        repeated = next(a for a in normalized if normalized.count(a) > 1)
        raise ShapeError(f"dim {repeated} appears multiple times in the list of dims")
    return () if rank == 0 else tuple(sorted(normalized))


def reduced_shape(shape: Shape, axes: Shape, keepdims: bool) -> Shape:
    """Return ``shape`` after reducing ``axes``, which are removed, or with ``keepdims`` have size 1."""
    if keepdims:
        return tuple(1 if i in axes else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in axes)


def matmul_shape(x: Shape, y: Shape) -> Shape:
    """Return the shape of ``x @ y``, where a vector is a row on the left and a column on the right.

    ShapeError for 0-d operands and if the inner sizes differ.
    """
    if not x or not y:
        raise ShapeError(
            f"both arguments to matmul need to be at least 1D, but they are {len(x)}D and {len(y)}D. "
            "Use * for scalars."
        )
    a = x if len(x) > 1 else (1, *x)
    b = y if len(y) > 1 else (*y, 1)
    if a[-1] != b[-2]:
        raise ShapeError(
            f"mat1 and mat2 shapes cannot be multiplied ({_matrix(a)} and {_matrix(b)}): matmul of {list(x)}"
            f" @ {list(y)}, inner sizes {a[-1]} != {b[-2]}. Transpose the second operand or check"
            " in_features."
        )
    batch = broadcast_shapes(a[:-2], b[:-2]) if len(a) > 2 or len(b) > 2 else ()
    tail = (() if len(x) == 1 else (a[-2],)) + (() if len(y) == 1 else (b[-1],))
    return batch + tail


def _matrix(shape: Shape) -> str:
    return f"{math.prod(shape[:-1])}x{shape[-1]}"


def infer_reshape(shape: Shape, target: Sequence[int]) -> Shape:
    """Return ``target`` with its -1, if any, replaced by the size that keeps the number of elements.

    ShapeError with PyTorch's message if the number of elements differs or there are several -1.
    """
    size = math.prod(shape)
    known = math.prod(target)
    if known.__class__ is int and known and target.__class__ is tuple:  # 0.3 us where the rest takes 2
        if known == size and min(target, default=1) > 0:
            return target
        if known < 0 and not size % known and target.count(-1) == 1 and min(target) == -1:
            return tuple([s if s > 0 else size // -known for s in target])
    target = tuple(int(s) for s in target)
    if any(s < -1 for s in target):
        raise ShapeError(f"invalid shape dimension {min(target)} in {list(target)}")
    unknown = [i for i, s in enumerate(target) if s == -1]
    if len(unknown) > 1:
        raise ShapeError(f"only one dimension can be inferred, got {list(target)}")
    known = math.prod(s for s in target if s != -1)
    if unknown:
        if known == 0:
            raise ShapeError(
                f"cannot reshape tensor of 0 elements into shape {list(target)} because the unspecified"
                " dimension size -1 can be any value and is ambiguous"
            )
        if size % known:
            raise ShapeError(f"shape '{list(target)}' is invalid for input of size {size}")
        return tuple(size // known if s == -1 else s for s in target)
    if known != size:
        raise ShapeError(f"shape '{list(target)}' is invalid for input of size {size}")
    return target
