"""Formulas by torch's names of operators: floating-point operations from the shapes of arguments.

A multiplication and an addition for each product of two numbers; sums of matrices and biases are not counted.
``flop_counter.py`` counts with them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tenon.errors import ArgumentError, GradError
from tenon.ops.aten import Operator
from tenon.tensors.pytree import tree_leaves, tree_map
from tenon.tensors.tensor import Tensor

#: Formulas by torch's names of operators.
flop_registry: dict[Operator, Callable[..., Any]] = {}
#: Those of ours, in whose place a counter asks the op.
OWN: set[Callable[..., Any]] = set()


def get_shape(value: Any) -> Any:
    """A tensor's shape; anything else as it is."""
    return value.shape if isinstance(value, Tensor) else value


def shape_wrapper(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, which takes shapes and ``out_shape``, as a function of tensors and ``out_val``."""

    @functools.wraps(f)
    def of_tensors(*args: Any, out_val: Any = None, **kwargs: Any) -> Any:
        args, kwargs, out_shape = tree_map(get_shape, (args, kwargs, out_val))
        return f(*args, out_shape=out_shape, **kwargs)

    return of_tensors


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a formula for an operator, or several: ``@register_flop_formula(ops.aten.cos)``.

    It gets the shapes of the arguments and ``out_shape``; with ``get_raw`` the tensors and ``out_val``. The
    arguments are those of tenon's op.

    >>> from tenon import ops
    >>> @register_flop_formula(ops.aten.cosh)
    ... def cosh_flop(shape, out_shape=None):
    ...     return 3 * shape.numel()
    """

    def register(formula: Callable[..., Any]) -> Callable[..., Any]:
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


def _own(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    def register(formula: Callable[..., int]) -> Callable[..., int]:
        found: Callable[..., int] = register_flop_formula([Operator(n) for n in names])(formula)
        OWN.add(found)
        return found

    return register


@_own("mm")
def mm_flop(a_shape: Any, b_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of a product of two matrices."""
    (m, k), (k2, n) = a_shape, b_shape
    if k != k2:
        raise AssertionError(f"matmul: inner dimensions must match (k == k2), got {k} and {k2}")
    return int(2 * m * n * k)


@_own("addmm")
def addmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of the product; the sum is not counted."""
    return mm_flop(a_shape, b_shape)


@_own("bmm")
def bmm_flop(a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of products of two stacks of matrices."""
    if a_shape[0] != b_shape[0]:
        raise AssertionError(f"bmm: batch dimensions must match (b == b2), got {a_shape[0]} and {b_shape[0]}")
    return int(a_shape[0]) * mm_flop(a_shape[1:], b_shape[1:])


@_own("baddbmm")
def baddbmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of the products; the sum is not counted."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(
    x_shape: Sequence[int], w_shape: Sequence[int], out_shape: Sequence[int], transposed: bool = False
) -> int:
    """Of a convolution: all weights at each place of the output, or of the input of a transposed one."""
    places = (x_shape if transposed else out_shape)[2:]
    return 2 * x_shape[0] * math.prod(places) * math.prod(w_shape)


@_own("convolution", "cudnn_convolution", "convolution_overrideable", "_slow_conv2d_forward")
def conv_flop(
    x_shape: Any, w_shape: Any, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool,
    *args: Any, out_shape: Any = None, **kwargs: Any,
) -> int:  # fmt: skip
    """Of ``aten.convolution``."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


@_own("convolution_backward")
def conv_backward_flop(
    grad_out_shape: Any, x_shape: Any, w_shape: Any, _bias: Any, _stride: Any, _padding: Any,
    _dilation: Any, transposed: bool, _output_padding: Any, _groups: Any, output_mask: Any, out_shape: Any,
    **kwargs: Any,
) -> int:  # fmt: skip
    """Of the gradients for input and weight that ``output_mask`` wants."""
    count = 0
    if output_mask[0]:
        count += conv_flop_count(grad_out_shape, w_shape, get_shape(out_shape[0]), not transposed)
    if output_mask[1]:
        slid, kernel = (grad_out_shape, x_shape) if transposed else (x_shape, grad_out_shape)
        count += conv_flop_count(_turned(slid), _turned(kernel), _turned(get_shape(out_shape[1])))
    return count


def _turned(shape: Sequence[int]) -> list[int]:
    return [shape[1], shape[0], *shape[2:]]


def sdpa_flop_count(query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """Of attention over ``[batch, heads, length, size]``: queries by keys, weights by values."""
    *batch, heads, asked, size = query_shape
    *batch_k, heads_k, seen, size_k = key_shape
    *batch_v, heads_v, seen_v, out = value_shape
    if not (batch == batch_k == batch_v and heads_k == heads_v and size == size_k and seen == seen_v):
        raise AssertionError(
            "sdpa_flop_count: query/key/value shapes are incompatible:"
            f" q={query_shape}, k={key_shape}, v={value_shape}"
        )
    if heads < heads_k or heads % heads_k:
        raise AssertionError(
            f"sdpa_flop_count: query heads ({heads}) must be a multiple of key/value heads ({heads_k})"
        )
    return int(2 * math.prod(batch) * heads * asked * seen * (size + out))


@_own(
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
def sdpa_flop(query_shape: Any, key_shape: Any, value_shape: Any, *args: Any, **kwargs: Any) -> int:
    """Of ``scaled_dot_product_attention``, whatever its mask hides."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def sdpa_backward_flop_count(grad_out_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """Of its gradients: the scores anew, and two products for each of both that made the result."""
    *batch, heads, asked, size = query_shape
    seen, out = value_shape[-2:]
    if tuple(grad_out_shape) != (*batch, heads, asked, out):
        raise AssertionError(
            f"sdpa_backward_flop_count: gradient {grad_out_shape} does not fit q={query_shape},"
            f" k={key_shape}, v={value_shape}"
        )
    return int(2 * math.prod(batch) * heads * asked * seen * (3 * size + 2 * out))


@_own(
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
)
def sdpa_backward_flop(
    grad_out_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any, *args: Any, **kwargs: Any
) -> int:
    """Of the gradients of ``scaled_dot_product_attention``."""
    return sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape)
