"""Formulas by PyTorch's names of operators: floating-point operations from the shapes of arguments.

A multiplication and an addition for each product of two numbers; sums of matrices and biases are not counted.
``flop_counter.py`` counts with them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tenon.engine.types import Nested
from tenon.errors import ArgumentError, GradError
from tenon.ops.aten import Operator
from tenon.tensors.pytree import tree_leaves, tree_map
from tenon.tensors.tensor import Tensor

#: The number of operations, from the shapes of an operator's arguments and of its result.
Formula = Callable[..., int]
Shape = Sequence[int]

#: Formulas by torch's names of operators.
flop_registry: dict[Operator, Formula] = {}
#: The formulas of this file. Counters call ``op.cost`` instead of them.
OWN: set[Formula] = set()


def get_shape(value: Any) -> Any:  # a tensor, or a shape
    """Return the shape of a tensor; anything else unchanged."""
    return value.shape if isinstance(value, Tensor) else value


def shape_wrapper(f: Formula) -> Formula:
    """``f``, which takes shapes and ``out_shape``, as a function of tensors and ``out_val``."""

    @functools.wraps(f)
    def of_tensors(*args: Nested, out_val: Nested = None, **kwargs: Nested) -> int:
        args, kwargs, out_shape = tree_map(get_shape, (args, kwargs, out_val))
        return f(*args, out_shape=out_shape, **kwargs)

    return of_tensors


def register_flop_formula(targets: Nested, get_raw: bool = False) -> Callable[[Formula], Formula]:
    """Decorate a formula for an operator, or several: ``@register_flop_formula(ops.aten.cos)``.

    It gets the shapes of the arguments and ``out_shape``; with ``get_raw`` the tensors and ``out_val``. The
    arguments are those of tenon's op.

    >>> from tenon import ops
    >>> @register_flop_formula(ops.aten.cosh)
    ... def cosh_flop(shape, out_shape=None):
    ...     return 3 * shape.numel()
    """

    def register(formula: Formula) -> Formula:
        formula = formula if get_raw else shape_wrapper(formula)
        for target in tree_leaves(targets):
            if not isinstance(target, Operator):
                raise ArgumentError(
                    "register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e."
                    f" torch.ops.mylib.foo), got {target} which is of type {type(target)}"
                )
            if target in flop_registry:
                raise GradError(f"duplicate registrations for {target}")
            flop_registry[target] = formula
        return formula

    return register


def _own(*names: str) -> Callable[[Formula], Formula]:
    def register(formula: Formula) -> Formula:
        wrapped = register_flop_formula([Operator(n) for n in names])(formula)
        OWN.add(wrapped)
        return wrapped

    return register


@_own("mm")
def mm_flop(a_shape: Shape, b_shape: Shape, *args: Nested, out_shape: object = None, **kwargs: Nested) -> int:
    """Count the operations of a product of two matrices."""
    (m, k), (k2, n) = a_shape, b_shape
    if k != k2:
        raise AssertionError(f"matmul: inner dimensions must match (k == k2), got {k} and {k2}")
    return int(2 * m * n * k)


@_own("addmm")
def addmm_flop(
    self_shape: Shape, a_shape: Shape, b_shape: Shape, out_shape: object = None, **kwargs: Nested
) -> int:
    """Count the operations of the product; the sum is not counted."""
    return mm_flop(a_shape, b_shape)


@_own("bmm")
def bmm_flop(a_shape: Shape, b_shape: Shape, out_shape: object = None, **kwargs: Nested) -> int:
    """Count the operations of the products of two batches of matrices."""
    if a_shape[0] != b_shape[0]:
        raise AssertionError(f"bmm: batch dimensions must match (b == b2), got {a_shape[0]} and {b_shape[0]}")
    return int(a_shape[0]) * mm_flop(a_shape[1:], b_shape[1:])


@_own("baddbmm")
def baddbmm_flop(
    self_shape: Shape, a_shape: Shape, b_shape: Shape, out_shape: object = None, **kwargs: Nested
) -> int:
    """Count the operations of the products; the sum is not counted."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(
    x_shape: Sequence[int], w_shape: Sequence[int], out_shape: Sequence[int], transposed: bool = False
) -> int:
    """Count the operations of a convolution: all weights at each position of the output, or of the input if
    it is transposed."""
    places = (x_shape if transposed else out_shape)[2:]
    return 2 * x_shape[0] * math.prod(places) * math.prod(w_shape)


@_own("convolution", "cudnn_convolution", "convolution_overrideable", "_slow_conv2d_forward")
def conv_flop(
    x_shape: Shape, w_shape: Shape, _bias: object, _stride: object, _padding: object, _dilation: object,
    transposed: bool, *args: object, out_shape: Shape = (), **kwargs: object,
) -> int:  # fmt: skip
    """Count the operations of ``aten.convolution``."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


@_own("convolution_backward")
def conv_backward_flop(
    grad_out_shape: Shape, x_shape: Shape, w_shape: Shape, _bias: object, _stride: object, _padding: object,
    _dilation: object, transposed: bool, _output_padding: object, _groups: object,
    output_mask: Sequence[bool], out_shape: Sequence[object], **kwargs: object,
) -> int:  # fmt: skip
    """Count the operations of the gradients of input and weight that ``output_mask`` selects."""
    count = 0
    if output_mask[0]:
        count += conv_flop_count(grad_out_shape, w_shape, get_shape(out_shape[0]), not transposed)
    if output_mask[1]:
        image, kernel = (grad_out_shape, x_shape) if transposed else (x_shape, grad_out_shape)
        count += conv_flop_count(_swapped(image), _swapped(kernel), _swapped(get_shape(out_shape[1])))
    return count


def _swapped(shape: Sequence[int]) -> list[int]:
    """``shape`` with its first two axes exchanged."""
    return [shape[1], shape[0], *shape[2:]]


def sdpa_flop_count(query_shape: Shape, key_shape: Shape, value_shape: Shape) -> int:
    """Count the operations of attention over ``[batch, heads, length, size]``: those of the product of
    queries and keys, and of that of weights and values."""
    *batch, heads, queries, size = query_shape
    *batch_k, heads_k, keys, size_k = key_shape
    *batch_v, heads_v, keys_v, out = value_shape
    if not (batch == batch_k == batch_v and heads_k == heads_v and size == size_k and keys == keys_v):
        raise AssertionError(
            "sdpa_flop_count: query/key/value shapes are incompatible:"
            f" q={query_shape}, k={key_shape}, v={value_shape}"
        )
    if heads < heads_k or heads % heads_k:
        raise AssertionError(
            f"sdpa_flop_count: query heads ({heads}) must be a multiple of key/value heads ({heads_k})"
        )
    return int(2 * math.prod(batch) * heads * queries * keys * (size + out))


@_own(
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
def sdpa_flop(
    query_shape: Shape, key_shape: Shape, value_shape: Shape, *args: Nested, **kwargs: Nested
) -> int:
    """Count the operations of ``scaled_dot_product_attention``, masked elements included."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def sdpa_backward_flop_count(
    grad_out_shape: Shape, query_shape: Shape, key_shape: Shape, value_shape: Shape
) -> int:
    """Count the operations of the gradients of attention: the scores are recomputed, and each of the two
    products of the forward pass has two in the backward pass."""
    *batch, heads, queries, size = query_shape
    keys, out = value_shape[-2:]
    if tuple(grad_out_shape) != (*batch, heads, queries, out):
        raise AssertionError(
            f"sdpa_backward_flop_count: gradient {grad_out_shape} does not fit q={query_shape},"
            f" k={key_shape}, v={value_shape}"
        )
    return int(2 * math.prod(batch) * heads * queries * keys * (3 * size + 2 * out))


@_own(
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
)
def sdpa_backward_flop(
    grad_out_shape: Shape,
    query_shape: Shape,
    key_shape: Shape,
    value_shape: Shape,
    *args: Nested,
    **kwargs: Nested,
) -> int:
    """Count the operations of the gradients of ``scaled_dot_product_attention``."""
    return sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape)
