"""Join, split and broadcast tensors: ``cat``, ``stack``, ``split``, ``meshgrid``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import ops
from tenon.compat.node_names import titled
from tenon.engine.value import Value
from tenon.errors import ArgumentError, ShapeError
from tenon.functions.derived import write_into
from tenon.functions.predicates import is_tensor
from tenon.kernels.promotion import result_type
from tenon.kernels.shapes import broadcast_shapes as common_shape
from tenon.kernels.shapes import normalize_axis
from tenon.kernels.whole_arrays import beside
from tenon.tensors.creation import create, triangle_indices
from tenon.tensors.creation.factories import zeros
from tenon.tensors.memory_overlap import refuse_overlap
from tenon.tensors.size import Size
from tenon.tensors.wrong_arguments import need_tensors

if TYPE_CHECKING:
    from tenon.engine.types import Arguments
    from tenon.tensors.tensor import Tensor

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
    "cartesian_prod", "cat", "column_stack", "combinations", "concat", "concatenate", "constant_pad_nd",
    "dstack", "hstack", "meshgrid", "repeat_interleave", "row_stack", "split", "stack", "vstack",
]  # fmt: skip


def _checked(name: str, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return ``tensors`` as a tuple; an error unless it is a sequence of tensors, and not empty."""
    if isinstance(tensors, Value) or not isinstance(tensors, Sequence):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not "
            f"{type(tensors).__name__}"
        )
    for position, t in enumerate(tensors):
        if not isinstance(t, Value):
            raise TypeError(
                f"expected Tensor as element {position} in argument 0, but got {type(t).__name__}"
            )
    if not tensors:
        raise ArgumentError(f"{name}(): expected a non-empty list of Tensors")
    return tuple(tensors)


def cat(
    tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """Return the tensors concatenated along ``dim``; their other sizes must agree. Empty vectors are left
    out, as in PyTorch."""
    parts = _checked("cat", tensors)
    for position, t in enumerate(parts):
        if t.raw.ndim == 0:
            raise ArgumentError(f"zero-dimensional tensor (at position {position}) cannot be concatenated")
    mixed = any(t.raw.ndim != 1 for t in parts)  # only then empty vectors have to be left out
    joined = [t for t in parts if not mixed or tuple(t.raw.shape) != (0,)]
    if len(joined) != len(parts):
        common = result_type(*(t.raw.flat[:0] if t.raw.ndim == 0 else t for t in parts))
        joined = [t.to(common) for t in joined]
    empty = all(tuple(t.raw.shape) == (0,) for t in joined)  # vectors that can be joined along any axis
    position = 0 if empty else normalize_axis(dim if axis is None else axis, joined[0].raw.ndim)
    ranks = {t.raw.ndim for t in joined}
    if len(ranks) > 1:
        first, other = (
            joined[0].raw.ndim,
            next(t.raw.ndim for t in joined if t.raw.ndim != joined[0].raw.ndim),
        )
        raise ShapeError(f"Tensors must have same number of dimensions: got {first} and {other}")
    if out is not None:
        refuse_overlap(out, *parts)
    result = ops.cat(*joined, axis=position)
    return write_into(out, result)


def concat(
    tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """Return the tensors concatenated along ``dim``: another name of ``cat``."""
    return cat(tensors, dim, out=out, axis=axis)


def concatenate(
    tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """Return the tensors concatenated along ``dim``: another name of ``cat``."""
    return cat(tensors, dim, out=out, axis=axis)


def stack(
    tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """Return the tensors joined along a new axis ``dim``; ShapeError unless their shapes are equal."""
    parts = _checked("stack", tensors)
    position = normalize_axis(dim if axis is None else axis, parts[0].raw.ndim, extra=1)
    result = ops.stack(*parts, axis=position)
    return write_into(out, result)


def _each(tensors: Arguments, function: Callable[[Tensor], Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Apply ``function`` to one tensor; to several, or to those of one sequence, and return a tuple."""
    if len(tensors) == 1 and is_tensor(tensors[0]):
        return function(tensors[0])
    return tuple(function(t) for t in (tensors[0] if len(tensors) == 1 else tensors))


def _to_1d(t: Tensor) -> Tensor:
    return t if t.raw.ndim else t.reshape(1)


def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Return views of the tensors with at least one axis: one view for one tensor, else a tuple."""
    return _each(tensors, _to_1d)


def _to_2d(t: Tensor) -> Tensor:
    return t.reshape(1, 1) if not t.raw.ndim else t.unsqueeze(0) if t.raw.ndim == 1 else t


def _to_3d(t: Tensor) -> Tensor:
    return _to_2d(t).unsqueeze(2) if 0 < t.raw.ndim < 3 else t if t.raw.ndim else t.reshape(1, 1, 1)


def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Return views of the tensors with at least two axes: vectors become rows."""
    return _each(tensors, _to_2d)


def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Return views of the tensors with at least three axes: matrices get a last axis of size 1."""
    return _each(tensors, _to_3d)


def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Return the tensors concatenated along axis 1; vectors along axis 0."""
    parts = [_to_1d(t) for t in _checked("hstack", tensors)]
    return cat(parts, 0 if parts[0].raw.ndim == 1 else 1, out=out)


def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Return the tensors concatenated along axis 0; vectors become rows."""
    return cat([_to_2d(t) for t in _checked("vstack", tensors)], 0, out=out)


def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Return the tensors concatenated along axis 0: another name of ``vstack``."""
    return vstack(tensors, out=out)


def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Return the tensors concatenated along axis 2, after ``atleast_3d``."""
    return cat([_to_3d(t) for t in _checked("dstack", tensors)], 2, out=out)


def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Return the tensors concatenated along axis 1; vectors become columns."""
    parts = [t.reshape(-1, 1) if t.raw.ndim < 2 else t for t in _checked("column_stack", tensors)]
    return cat(parts, 1, out=out)


def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of consecutive parts along ``dim``, of one size (the last may be smaller) or of the listed
    sizes; see ``Tensor.split``."""
    return tensor.split(split_size_or_sections, dim)


def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """Return the shape to which all of ``shapes`` broadcast; an integer is the shape of a vector.

    ShapeError if they do not broadcast.
    """
    for s in shapes:
        if not isinstance(s, (int, tuple, list)) or (not isinstance(s, int) and not all(map(_is_size, s))):
            raise ArgumentError(
                f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {s!r}"
            )
    tuples = tuple((s,) if isinstance(s, int) else tuple(s) for s in shapes)
    for size in itertools.chain(*tuples):
        if size < 0:
            raise ShapeError(f"Trying to create tensor with negative dimension ({size}): ({size})")
    try:
        return Size(common_shape(*tuples) if tuples else ())
    except ShapeError as error:
        raise ShapeError(f"Shape mismatch: objects cannot be broadcast to a single shape: {error}") from None


def _is_size(value: object) -> bool:
    return hasattr(value, "__index__")


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return views of the tensors expanded to the shape to which they broadcast."""
    if len(tensors) == 1 and not isinstance(tensors[0], Value):
        tensors = tuple(tensors[0])
    shape = common_shape(*(tuple(t.raw.shape) for t in tensors)) if tensors else ()
    return tuple(t.expand(shape) for t in tensors)


def meshgrid(
    *tensors: Tensor | Any,  # tensors, or one sequence of them
    indexing: str = "ij",
) -> tuple[Tensor, ...]:
    """Return grids of coordinates: for vectors of sizes ``n, m, ...`` each is a tensor ``[n, m, ...]``.

    ``indexing="xy"`` exchanges the first two axes, as NumPy does. Unlike PyTorch there is no warning without
    ``indexing``, whose default is "ij".
    """
    if len(tensors) == 1 and not isinstance(tensors[0], Value):
        tensors = tuple(tensors[0])
    need_tensors(tensors)
    if not tensors:
        raise ArgumentError("meshgrid expects a non-empty TensorList, got no tensor")
    for name in ("dtype", "device"):
        values = [getattr(t, name) for t in tensors]
        if any(each != values[0] for each in values):
            raise ArgumentError(
                f"meshgrid expects all tensors to have the same {name}, got {', '.join(map(str, values))}"
            )
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    vectors = [t.reshape(-1) for t in tensors]
    for t in tensors:
        if t.raw.ndim > 1:
            raise ShapeError(
                f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(t.raw.shape)}"
            )
    swap = indexing == "xy" and len(vectors) > 1
    if swap:
        vectors[:2] = vectors[1::-1]
    shape = tuple(v.raw.shape[0] for v in vectors)
    rank = len(shape)
    grids = [v.reshape((1,) * i + (-1,) + (1,) * (rank - i - 1)).expand(shape) for i, v in enumerate(vectors)]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


def repeat_interleave(
    input: Tensor,
    repeats: Tensor | int | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Return a copy with each element repeated ``repeats`` times along ``dim``; see
    ``Tensor.repeat_interleave``. Without ``repeats``, each index ``i`` is repeated ``input[i]`` times."""
    if repeats is None:
        if input.raw.ndim != 1:
            raise ShapeError(
                f"repeat_interleave only accept 1D vector as repeat, got {list(input.raw.shape)}"
            )
        indices = ops.cast(ops.cumsum(input.new_ones(input.raw.shape), axis=0), dtype=input.raw.dtype) - 1
        return indices.repeat_interleave(input, 0)
    return input.repeat_interleave(repeats, dim, output_size=output_size)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return all combinations of one element of each vector, as the rows of a matrix."""
    for t in tensors:
        if t.raw.ndim != 1:
            raise ShapeError(f"Expect a 1D vector, but got shape {list(t.raw.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.reshape(-1) for g in meshgrid(*tensors)], 1)


@titled("Stack0")
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all selections of ``r`` elements of a vector, as the rows of a matrix.

    With ``with_replacement``, an element may be selected several times.
    """
    if input.raw.ndim != 1:
        raise ShapeError(f"Expect a 1D vector, but got shape {list(input.raw.shape)}")
    count = input.raw.shape[0]
    if not r:
        return input.new_empty(0)
    if r == 2:
        rows = triangle_indices.upper(count, count, 0 if with_replacement else 1, np.int64).T
    else:
        choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
        rows = np.fromiter(itertools.chain.from_iterable(choose(range(count), r)), np.int64).reshape(-1, r)
    if not rows.size:
        return input[:0].reshape(0, 1).expand(0, r)
    indices = beside(input, create.wrap(rows.reshape(-1), input.device))
    return input.gather(0, indices).reshape(rows.shape)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: complex = 0) -> Tensor:
    """Return ``input`` padded with ``value``; ``pad`` has two widths for each axis, the last axis first."""
    pad = tuple(pad)
    rank = input.raw.ndim
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise ShapeError(
            f"constant_pad_nd: pad must have two widths for each of at most {rank} dimensions, got"
            f" {list(pad)}"
        )
    widths = ((0, 0),) * (rank - len(pad) // 2) + tuple(zip(pad[-2::-2], pad[::-2], strict=True))
    return ops.pad(input, widths=widths, value=value)


@titled("BlockDiag0")
def block_diag(*tensors: Tensor) -> Tensor:
    """Return a matrix with the given matrices along its diagonal and zeros elsewhere."""
    for position, t in enumerate(tensors):
        if t.raw.ndim > 2:
            raise ShapeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                f"{position} has {t.raw.ndim} dimensions"
            )
    if not tensors:
        return zeros(1, 0)
    kind = result_type(*tensors)  # by the ranks that they come with
    blocks = [_to_2d(t.to(kind)) for t in tensors]
    columns = sum(b.raw.shape[1] for b in blocks)
    rows, start = [], 0
    for block in blocks:
        width = block.raw.shape[1]
        rows.append(ops.pad(block, widths=((0, 0), (start, columns - start - width)), value=0))
        start += width
    return cat(rows, 0)
