"""Matrix products: the shapes and strides that oneDNN gets for NumPy's arrays, and the primitive.

Operands are not copied: a transposed or sliced matrix only has other strides. Batch axes that are contiguous
to each other are merged, and merged with the rows where the other operand is a single matrix, since one large
product is faster than many small ones. A broadcast axis (stride 0) becomes one of length 1.

Callers: ``eager.py`` caches executions by shape, ``prepared_matmul.py`` binds them to the buffers of a
program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy.typing as npt

from tenon_cpu.onednn.attributes import Attributes, PostOp
from tenon_cpu.onednn.descriptors import Descriptor, contiguous_strides
from tenon_cpu.onednn.primitives import Parameter, Primitive
from tenon_cpu.onednn.signatures import FORWARD_INFERENCE

Ints = tuple[int, ...]


class Strided(NamedTuple):
    """Shape and strides in elements."""

    shape: Ints
    strides: Ints


class Product(NamedTuple):
    """``x @ y`` with as few axes as possible; ``shape`` is the result's before axes were merged."""

    x: Strided
    y: Strided
    out: Strided
    shape: Ints


def arranged(x: Strided, y: Strided, out: Strided | None = None) -> Product | None:
    """Return the product of two operands of 2 or more axes; None where oneDNN cannot read them in place.

    ``out`` has the result's shape and strides; without it the result is contiguous.
    """
    shape = _batch(x.shape[:-2], y.shape[:-2])
    if shape is None or x.shape[-1] != y.shape[-2]:
        return None
    shape = (*shape, x.shape[-2], y.shape[-1])
    if out is None:
        out = Strided(shape, contiguous_strides(shape))
    rank = len(shape)
    axes = [
        (xn, xs if xn > 1 else 0, yn, ys if yn > 1 else 0, n, s)
        for (xn, xs), (yn, ys), n, s in zip(
            _batch_axes(x, rank), _batch_axes(y, rank), shape[:-2], out.strides[:-2], strict=True
        )
        if n != 1
    ]
    # An axis with stride 0 has been broadcast by the caller.
    axes = [(n if xs else 1, xs, n if ys else 1, ys, n, s) for _, xs, _, ys, n, s in axes]
    merged: list[Ints] = []
    for axis in axes:
        if merged and (joined := _merged_axes(merged[-1], axis)):
            merged[-1] = joined
        else:
            merged.append(axis)
    rows, inner, columns = shape[-2], x.shape[-1], shape[-1]
    row_stride, out_row = x.strides[-2], out.strides[-2]
    if len(merged) == 1 and merged[0][2] == 1:
        _, xs, _, _, n, s = merged[0]
        if rows == 1:
            row_stride, out_row = xs, s
        if xs == row_stride * rows and s == out_row * rows:
            rows, merged = rows * n, []
        elif rows == 1:
            rows, merged = n, []
        else:
            row_stride, out_row = x.strides[-2], out.strides[-2]
    product = Product(
        _operand([(a[0], a[1]) for a in merged], (rows, row_stride), (inner, x.strides[-1])),
        _operand([(a[2], a[3]) for a in merged], (inner, y.strides[-2]), (columns, y.strides[-1])),
        _operand([(a[4], a[5]) for a in merged], (rows, out_row), (columns, out.strides[-1])),
        shape,
    )
    return product if all(map(_readable, product[:3])) and product.out.strides[-1] == 1 else None


def _batch(x: Ints, y: Ints) -> Ints | None:
    shape = []
    short, long = sorted((x, y), key=len)
    for a, b in zip((1,) * (len(long) - len(short)) + short, long, strict=True):
        if a != b and 1 not in (a, b):
            return None
        shape.append(b if a == 1 else a)
    return tuple(shape)


def _batch_axes(x: Strided, rank: int) -> list[tuple[int, int]]:
    """Return (size, stride) of the batch axes, padded to the rank of the result."""
    missing = rank - len(x.shape)
    return [(1, 0)] * missing + list(zip(x.shape[:-2], x.strides[:-2], strict=True))


def _merged_axes(a: Ints, b: Ints) -> Ints | None:
    """Merge two adjacent axes; None unless the strides of all three operands allow it."""
    if (a[0] == 1) != (b[0] == 1) or (a[2] == 1) != (b[2] == 1):
        return None
    if a[1] != b[1] * b[0] * (a[0] > 1) or a[3] != b[3] * b[2] * (a[2] > 1) or a[5] != b[5] * b[4]:
        return None
    return (a[0] * b[0], b[1], a[2] * b[2], b[3], a[4] * b[4], b[5])


def _operand(batch: Sequence[tuple[int, int]], rows: tuple[int, int], columns: tuple[int, int]) -> Strided:
    """Return shape and strides; an axis of length 1 gets a contiguous stride, as oneDNN's choice of kernel
    depends on it."""
    shape, strides, contiguous = [], [], 1
    for size, stride in reversed((*batch, rows, columns)):
        elements = contiguous if size == 1 else stride
        shape.append(size)
        strides.append(elements)
        contiguous = max(contiguous, elements * size)
    return Strided(tuple(reversed(shape)), tuple(reversed(strides)))


def _readable(x: Strided) -> bool:
    """Whether the matrices are in row-major or column-major order and no axis is empty, reversed or
    broadcast."""
    return min(x.shape) > 0 and min(x.strides) > 0 and 1 in x.strides[-2:]


#: Rows up to which a product with a column-major matrix, as a layer's weight is, uses the inner product
#: primitive: that reads the matrix in place, while matmul copies it first (1 to 8 rows, 784 x 512, in us: 21
#: to 72 against 54 to 95; BLAS 20 to 257, with its own threads, which contend with oneDNN's).
FEW_ROWS = 8


def few_rows(product: Product) -> bool:
    """Whether the inner product primitive is faster for this product."""
    x, y, out = product[:3]
    return (
        len(out.shape) == 2
        and out.shape[0] <= FEW_ROWS
        and (x.strides[1], y.strides[0]) == (1, 1)
        and out.strides == contiguous_strides(out.shape)
    )


def primitive(
    product: Product,
    dtype: npt.DTypeLike,
    bias: bool = False,
    post_ops: Sequence[PostOp] = (),
    weights: Descriptor | None = None,
    out_dtype: npt.DTypeLike | None = None,
) -> Primitive | None:
    """Return the primitive of a product; None where oneDNN has no fast kernel.

    ``bias``: whether one number per column, of the same dtype, is added. ``weights`` is another layout of
    ``y``. The result has ``out_dtype``, by default that of the operands.
    """
    if weights is None and few_rows(product):
        created = _inner_product(product, dtype, bias, post_ops, out_dtype)
        if created is not None:
            return created
    rank = len(product.out.shape)
    row = Descriptor.rows((1,) * (rank - 1) + product.out.shape[-1:], dtype) if bias else None
    return _create(
        "matmul",
        Descriptor.strided(*product.x, dtype),
        weights or Descriptor.strided(*product.y, dtype),
        row,
        Descriptor.strided(*product.out, out_dtype or dtype),
        post_ops=post_ops,
    )


def _inner_product(
    product: Product,
    dtype: npt.DTypeLike,
    bias: bool,
    post_ops: Sequence[PostOp],
    out_dtype: npt.DTypeLike | None,
) -> Primitive | None:
    (inner, columns), (_, step) = product.y
    return _create(
        "inner_product_forward",
        FORWARD_INFERENCE,
        Descriptor.strided(*product.x, dtype),
        Descriptor.strided((columns, inner), (step, 1), dtype),
        Descriptor.rows((columns,), dtype) if bias else None,
        Descriptor.strided(*product.out, out_dtype or dtype),
        post_ops=post_ops,
    )


def _create(kind: str, *parameters: Parameter, post_ops: Sequence[PostOp]) -> Primitive | None:
    created = Primitive.if_implemented(kind, *parameters, attributes=Attributes(post_ops))
    return None if created is None or created.reference else created
