"""Reductions over axes: sums, means, products, extrema, logic; positions of extrema; cumulative sums."""

from __future__ import annotations

import numpy as np

from tenon.extend import Node
from tenon_target_onnx.builder import BOOL, Builder
from tenon_target_onnx.families.elementwise import wide
from tenon_target_onnx.forms import form
from tenon_target_onnx.sizes import are_numbers, is_number

_INT32 = np.dtype(np.int32)


def reduced(b: Builder, operator: str, name: str, axes: tuple[int, ...], keep: bool) -> str:
    """Return a value reduced over ``axes``; without axes, the value itself."""
    if not axes:
        return name
    if operator == "ReduceSum" or b.opset >= 18:
        return b.call(operator, name, b.ints(axes), keepdims=int(keep))
    return b.call(operator, name, axes=list(axes), keepdims=int(keep))


_OPERATORS = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "prod": "ReduceProd",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
}


@form(*_OPERATORS)
def write_reduction(b: Builder, node: Node) -> str:
    """Write the operator; in the dtype of the result, or a wider one."""
    own, input_dtype = node.avals[0].dtype, node.args[0].aval.dtype
    dtype = wide(own) if own != BOOL else _INT32
    if input_dtype.kind in "iu" and own.kind not in "fV":
        dtype = np.result_type(dtype, wide(input_dtype))
    axes = tuple(sorted(a % max(len(node.args[0].aval.shape), 1) for a in node.attrs["axes"]))
    keep, value = bool(node.attrs.get("keepdims")), b.value(node.args[0], dtype)
    if node.name == "mean" and any(b.may_be_zero(node.args[0].aval.shape[a]) for a in axes):
        # ReduceMean of no elements is 0 in onnxruntime.
        count = b.call("ReduceProd", b.shape([node.args[0].aval.shape[a] for a in axes]), keepdims=0)
        name = b.call("Div", reduced(b, "ReduceSum", value, axes, keep), b.cast(count, dtype))
    else:
        name = reduced(b, _OPERATORS[node.name], value, axes, keep)
    return name if dtype == own else b.cast(name, own)


@form("any", "all")
def write_logic(b: Builder, node: Node) -> str:
    """Reduce the truth of the elements as integers."""
    booleans = b.value(node.args[0], BOOL)
    axes = tuple(sorted(node.attrs["axes"]))
    operator = "ReduceMax" if node.name == "any" else "ReduceMin"
    if node.name == "any" and any(b.may_be_zero(node.args[0].aval.shape[a]) for a in axes):
        operator = "ReduceSum"  # the largest of no elements is the least number, which is true
    name = reduced(b, operator, b.cast(booleans, _INT32), axes, bool(node.attrs.get("keepdims")))
    return b.cast(name, node.avals[0].dtype)


@form("sum_to")
def write_sum_to(b: Builder, node: Node) -> str:
    """Sum the axes that were broadcast."""
    x, shape = node.args[0].aval, node.avals[0].shape
    lead = len(x.shape) - len(shape)
    inner = [
        a for a in range(lead, len(x.shape))
        if is_number(shape[a - lead]) and shape[a - lead] == 1 and x.shape[a] != 1
    ]  # fmt: skip
    name = reduced(b, "ReduceSum", b.value(node.args[0]), tuple(inner), True)
    return reduced(b, "ReduceSum", name, tuple(range(lead)), False)


@form("argmax", "argmin")
def write_position(b: Builder, node: Node) -> str:
    """Write ``ArgMax`` or ``ArgMin``; of all elements if no axis is given."""
    x, axis = node.args[0], node.attrs["axis"]
    dtype = x.aval.dtype
    name = b.value(
        x,
        dtype if dtype.name in ("float32", "float64", "int64") else wide(dtype) if dtype != BOOL else _INT32,
    )
    keep = bool(node.attrs.get("keepdims"))
    operator = "ArgMax" if node.name == "argmax" else "ArgMin"
    if axis is None or not x.aval.shape:
        position = b.call(operator, b.reshape(name, (-1,)), axis=0, keepdims=0)
        return b.reshape(position, node.avals[0].shape) if node.avals[0].shape else position
    return b.call(operator, name, axis=axis, keepdims=int(keep))


@form("cumsum")
def write_cumsum(b: Builder, node: Node) -> str:
    """Write ``CumSum``."""
    own = node.avals[0].dtype
    dtype = wide(own)
    if not node.args[0].aval.shape:
        return b.value(node.args[0], own)
    axis = b.constant(node.attrs["axis"], np.dtype(np.int64))
    name = b.call("CumSum", b.value(node.args[0], dtype), axis)
    return name if dtype == own else b.cast(name, own)


def _is_short(node: Node) -> bool:
    shape = node.avals[0].shape
    return bool(shape) and are_numbers(shape) and shape[node.attrs["axis"]] <= 1024


@form("cumprod", when=_is_short)
def write_cumprod(b: Builder, node: Node) -> str:
    """Multiply the elements up to each position, as ONNX has no cumulative product."""
    own = node.avals[0].dtype
    dtype, axis, rank = wide(own), node.attrs["axis"], len(node.avals[0].shape)
    count = int(node.avals[0].shape[axis])
    behind = b.unsqueezed(b.value(node.args[0], dtype), [axis])
    before = np.tril(np.ones((count, count), np.bool_)).reshape(count, count, *(1,) * (rank - axis - 1))
    parts = b.call("Where", b.constant(before, BOOL), behind, b.constant(1, dtype))
    name = reduced(b, "ReduceProd", parts, (axis + 1,), False)
    return name if dtype == own else b.cast(name, own)
