"""Translate calls of ops to PyTorch's operators with other arguments, as ``aten.sum.dim_IntList(x, [1])``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tenon.dtypes import from_numpy_dtype
from tenon.engine.types import Attrs
from tenon.ops.aten import Operator

#: A target, its positional arguments and its keyword arguments.
Call: TypeAlias = tuple[Operator, tuple[Any, ...], dict[str, Any]]  # of any type


def _reduction(name: str) -> Callable[[tuple[Any, ...], Attrs], Call | None]:  # tensors and numbers
    def translate(args: tuple[Any, ...], attrs: Attrs) -> Call | None:  # tensors and numbers
        (x,) = args
        axes, keep = attrs["axes"], attrs.get("keepdims", False)
        if not axes:  # PyTorch takes no axes for all of them
            return None
        if len(axes) == x.ndim and not keep:
            return Operator(name, "default"), (x,), {}
        overload = "dim_IntList" if name == "sum" else "dim"
        return Operator(name, overload), (x, list(axes), *([True] if keep else [])), {}

    return translate


# of any type
def _axis(name: str, overload: str, *keys: str) -> Callable[[tuple[Any, ...], Attrs], Call]:
    """Return the translation for an operator that takes attributes by position after the tensor."""

    def translate(args: tuple[Any, ...], attrs: Attrs) -> Call:  # tensors and numbers
        values = (attrs[key] for key in keys)
        return (
            Operator(name, overload),
            (*args, *(list(v) if isinstance(v, tuple) else v for v in values)),
            {},
        )

    return translate


def _cat(args: tuple[Any, ...], attrs: Attrs) -> Call:  # tensors
    return Operator("cat", "default"), (list(args), *([attrs["axis"]] if attrs["axis"] else [])), {}


def _reshape(args: tuple[Any, ...], attrs: Attrs) -> Call:  # a tensor
    name = "view" if args[0].is_contiguous() else "reshape"
    return Operator(name, "default"), (args[0], list(attrs["shape"])), {}


def _cast(args: tuple[Any, ...], attrs: Attrs) -> Call | None:  # a tensor
    return Operator("to", "dtype"), (args[0], from_numpy_dtype(attrs["dtype"])), {}


def _square(args: tuple[Any, ...], attrs: Attrs) -> Call:  # a tensor
    return Operator("pow", "Tensor_Scalar"), (args[0], 2), {}


def _matmul(args: tuple[Any, ...], attrs: Attrs) -> Call | None:  # two tensors
    name = {(1, 1): "dot", (2, 1): "mv", (2, 2): "mm"}.get(tuple(x.ndim for x in args))
    return None if name is None else (Operator(name, "default"), args, {})


#: Name of an op -> its translation, a function of the op's arguments and attributes.
_TRANSLATIONS: dict[str, Callable[[tuple[Any, ...], Attrs], Call | None]] = {  # tensors and numbers
    "sum": _reduction("sum"),
    "matmul": _matmul,
    "mean": _reduction("mean"),
    "cat": _cat,
    "view": _reshape,
    "reshape": _reshape,
    "squeeze": _reshape,
    "cast": _cast,
    "square": _square,
    "transpose": _axis("transpose", "int", "axis0", "axis1"),
    "permute": _axis("permute", "default", "axes"),
    "expand": _axis("expand", "default", "shape"),
    "split": _axis("split", "sizes", "sizes", "axis"),
    "softmax": _axis("softmax", "int", "axis"),
    "log_softmax": _axis("log_softmax", "int", "axis"),
}


def converted(name: str, args: tuple[Any, ...], attrs: Attrs) -> Call | None:  # tensors and numbers
    """Return the call of PyTorch's operator for the op ``name``; None where it takes the op's own
    arguments, or cannot express this call."""
    row = _TRANSLATIONS.get(name)
    return None if row is None else row(args, attrs)


#: Ops over one to three axes -> the operator that ``torch.export`` writes.
_RANKED = {
    "conv": "conv{}d",
    "convolution": "conv{}d",
    "conv_input_grad": "conv_transpose{}d",
    "max_pool": "max_pool{}d",
    "avg_pool": "avg_pool{}d",
    "adaptive_avg_pool": "adaptive_avg_pool{}d",
    "lp_pool": "lp_pool{}d",
}
#: Other ops whose operator in ``torch.export`` has another name.
_EXPORTED = {
    "attention": "scaled_dot_product_attention",
    "batch_norm_inference": "batch_norm",
    "cast": "to",
    "cross_entropy": "cross_entropy_loss",
    "gru_sequence": "gru",
    "inv": "linalg_inv",
    "lstm_sequence": "lstm",
    "rnn_sequence": "rnn_tanh",
    "slice_axis": "slice",
    "solve": "linalg_solve",
    "sum_to": "sum",
    "take": "index",
    "vector_norm": "linalg_vector_norm",
}


def exported_name(name: str, rank: int, attrs: Attrs) -> str:
    """Return the operator that ``torch.export`` writes for the op ``name`` with a result of ``rank`` axes.

    It is decomposed less than the operator that PyTorch runs: ``linear`` is one operator.

    >>> exported_name("convolution", 4, {}), exported_name("relu", 2, {})
    ('conv2d', 'relu')
    """
    if name in _RANKED:
        return _RANKED[name].format(max(rank - 2, 1))
    return _indexing(attrs["key"]) if name == "index" else _EXPORTED.get(name, name)


def _indexing(key: tuple[Any, ...]) -> str:  # numbers, slices, None and ...
    """Return the first of the operators by which PyTorch computes ``x[key]``."""
    for part in key:
        if isinstance(part, int):
            return "select"
        if part is None:
            return "unsqueeze"
        if isinstance(part, slice) and part != slice(None):
            return "slice"
    return "alias"
