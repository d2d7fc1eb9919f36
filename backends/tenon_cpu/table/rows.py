"""Rows of the table: softmax, norms and losses, along rows, channels and classes."""

from __future__ import annotations

import numpy as np

from tenon.extend import Condition, KernelRow, KernelTable, OpNamespace, requires, size_at_least
from tenon.ops import layer_norm as _layer_norm
from tenon.ops import log_softmax as _log_softmax
from tenon.ops import softmax as _softmax
from tenon_cpu.jit.eager_ops import losses as eager_losses
from tenon_cpu.jit.eager_ops import norms as eager_norms
from tenon_cpu.jit.eager_ops import rows as eager_rows
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS
from tenon_cpu.kernels import rowwise
from tenon_cpu.onednn import available as onednn
from tenon_cpu.onednn import norm
from tenon_cpu.table.conditions import LAST_AXIS, contiguous, floats, indices, rank, same_shape

#: Elements from which a kernel on blocks of rows is faster than the composite.
_BLOCKS = 256
#: Elements from which cross entropy is compiled: in NumPy it is some fifteen calls, whatever the size.
_LOSS = 1 << 10
#: Elements of a channel from which a loop over channels is faster than NumPy's broadcasting.
_RUN = 16
#: Elements from which copies to oneDNN's blocked layout and back are worth it.
_BLOCKED = 1 << 12

_COPIED = Condition("not x.flags.c_contiguous", "x is not in C order")
_MATRIX = rank("x", "== 2", "x is a matrix")
_IMAGES = rank("x", ">= 3", "x has 3 axes or more")


def _softmax_of_copy(f: OpNamespace, x: np.ndarray, *, axis: int) -> np.ndarray:
    return _softmax.decompose(f, x.copy(), axis=axis)


def _log_softmax_of_copy(f: OpNamespace, x: np.ndarray, *, axis: int) -> np.ndarray:
    return _log_softmax.decompose(f, x.copy(), axis=axis)


def _layer_norm_of_copy(
    f: OpNamespace,
    x: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    *,
    rank: int,
    eps: float = 1e-5,
) -> tuple[np.ndarray, ...]:
    return _layer_norm.raw_forward(f, x.copy(), weight, bias, rank=rank, eps=eps)


def _affine_fits(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, rank: int) -> bool:
    shape = x.shape[x.ndim - rank :]
    return all(v is None or v.shape == shape for v in (weight, bias))


def _weight_fits(x: np.ndarray, weight: np.ndarray | None, rank: int) -> bool:
    return weight is None or weight.shape == x.shape[x.ndim - rank :]


def _channels(*arrays: str) -> Condition:
    """Require that each array has one element per channel of ``x``, or is None."""
    code = " and ".join(f"({a} is None or {a}.size == x.shape[1])" for a in arrays)
    return Condition(code, f"{', '.join(arrays)} with one element for each channel")


def _blocked(x: np.ndarray) -> bool:
    return norm.blocks(x)


def _blocked_pair(x: np.ndarray, g: np.ndarray) -> bool:
    return norm.blocks(x, g)


def _vectors(x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None) -> bool:
    return norm.vectors(x.shape[1], weight, bias)


def _kept_vectors(x: np.ndarray, weight: np.ndarray | None, mean: np.ndarray, deviation: np.ndarray) -> bool:
    return norm.vectors(x.shape[1], weight, mean, deviation)


def _known_vectors(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, mean: np.ndarray, variance: np.ndarray
) -> bool:
    return norm.vectors(x.shape[1], weight, bias, mean, variance)


_FLOAT_X = floats("x")[0]
_LONG_CHANNELS = Condition(
    f"x.size >= {_RUN} * x.shape[0] * x.shape[1]", f"channels have {_RUN} elements or more", {}, "x.shape"
)
_ONE_EACH = "one float32 vector in C order for each of the channels"
_CLASSES = (_IMAGES, size_at_least("x", MIN_ELEMENTS), indices("target"), *floats("x", "weight?"))
_SHAPES = requires(eager_losses.shapes_fit, "target and weight have the shapes that x requires")
_TOTALS = Condition(
    "total.shape == (x.shape[0], 1, *x.shape[2:])", "total has one element for each target", {}, "total.shape"
)
_FLOAT_G = Condition(
    "getattr(g, 'dtype', None) is float32", "g of float32", {"float32": FLOAT}, "getattr(g, 'dtype', None)"
)
_NO_PRIMITIVE = "where oneDNN has only a slow kernel for these shapes"


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    last = (size_at_least("x", MIN_ELEMENTS), LAST_AXIS, *floats("x"))
    blocks = (size_at_least("x", _BLOCKS), LAST_AXIS, contiguous("x"))
    last_grad = (
        size_at_least("out", MIN_ELEMENTS),
        Condition("axis == out.ndim - 1", "axis is the last one", {}, "axis"),
        *floats("g", "out"),
        same_shape("g", "out"),
    )
    blocks_grad = (
        size_at_least("out", _BLOCKS),
        Condition("axis == out.ndim - 1", "axis is the last one", {}, "axis"),
        contiguous("g", "out"),
    )
    table.add(
        "softmax",
        KernelRow("compiled, row by row", eager_rows.softmax, last),
        KernelRow("NumPy, blocks of rows", rowwise.softmax, blocks),
        KernelRow("reference, of a copy in C order", _softmax_of_copy, (_COPIED,)),
    )
    table.add(
        "safe_softmax",
        KernelRow(
            "softmax, then a check of each row",
            rowwise.safe_softmax,
            (rank("x", "> 0"), size_at_least("x", 1)),
        ),
    )
    table.add(
        "log_softmax",
        KernelRow("compiled, row by row", eager_rows.log_softmax, last),
        KernelRow("NumPy, blocks of rows", rowwise.log_softmax, blocks),
        KernelRow("reference, of a copy in C order", _log_softmax_of_copy, (_COPIED,)),
    )
    table.add(
        "softmax_grad",
        KernelRow("compiled, row by row", eager_rows.softmax_grad, last_grad),
        KernelRow("NumPy, blocks of rows", rowwise.softmax_grad, blocks_grad),
    )
    table.add(
        "log_softmax_grad",
        KernelRow("compiled, row by row", eager_rows.log_softmax_grad, last_grad),
        KernelRow("NumPy, blocks of rows", rowwise.log_softmax_grad, blocks_grad),
    )
    _add_norms(table)
    _add_losses(table)


def _add_norms(table: KernelTable) -> None:
    affine = requires(_affine_fits, "weight and bias have the shape of the normalised axes")
    table.add(
        "layer_norm",
        KernelRow(
            "compiled, row by row",
            eager_rows.layer_norm,
            (size_at_least("x", MIN_ELEMENTS), *floats("x", "weight?", "bias?"), affine),
        ),
        KernelRow(
            "NumPy, blocks of rows",
            rowwise.layer_norm,
            (size_at_least("x", _BLOCKS), contiguous("x", "weight?", "bias?")),
        ),
        KernelRow("reference, of a copy in C order", _layer_norm_of_copy, (_COPIED,)),
    )
    table.add(
        "layer_norm_grad",
        KernelRow(
            "compiled, row by row",
            eager_rows.layer_norm_grad,
            (
                size_at_least("x", MIN_ELEMENTS),
                Condition("needs[0]", "the gradient of x is needed", {}, "needs"),
                *floats("x", "g", "mean", "deviation", "weight?"),
                same_shape("g", "x"),
                requires(_weight_fits, "weight has the shape of the normalised axes"),
            ),
        ),
        KernelRow(
            "NumPy, blocks of rows",
            rowwise.layer_norm_grad,
            (
                size_at_least("x", _BLOCKS),
                Condition("all(needs[1:])", "all gradients of parameters are needed", {}, "needs"),
                Condition("weight is not None", "there is a weight"),
                contiguous("g", "x", "weight", "mean", "deviation"),
            ),
        ),
    )
    blocked = (
        _FLOAT_X,
        size_at_least("x", _BLOCKED),
        _IMAGES,
        requires(_blocked, "x can be brought into oneDNN's blocks"),
        requires(_vectors, f"weight and bias: {_ONE_EACH}"),
    )
    table.add(
        "batch_norm",
        KernelRow("oneDNN, in blocks of channels", norm.batch_norm, blocked, _NO_PRIMITIVE, onednn),
        KernelRow(
            "compiled, column by column",
            eager_norms.batch_norm,
            (
                _MATRIX,
                size_at_least("x", MIN_ELEMENTS),
                *floats("x", "weight?", "bias?"),
                _channels("weight", "bias"),
            ),
        ),
    )
    table.add(
        "batch_norm_grad",
        KernelRow(
            "oneDNN, in blocks of channels",
            norm.batch_norm_grad,
            (
                _FLOAT_X,
                Condition("needs[0]", "the gradient of x is needed", {}, "needs"),
                Condition("weight is not None", "there is a weight"),
                size_at_least("x", _BLOCKED),
                _IMAGES,
                requires(_blocked_pair, "x and g can be brought into oneDNN's blocks"),
                requires(_kept_vectors, f"weight, mean and deviation: {_ONE_EACH}"),
            ),
            _NO_PRIMITIVE,
            onednn,
        ),
        KernelRow(
            "compiled, column by column",
            eager_norms.batch_norm_grad,
            (
                _MATRIX,
                same_shape("g", "x"),
                size_at_least("x", MIN_ELEMENTS),
                *floats("x", "weight?", "mean", "deviation", "g"),
                _channels("weight", "mean", "deviation"),
            ),
        ),
    )
    table.add(
        "batch_norm_inference",
        KernelRow(
            "one factor and one offset for each channel",
            norm.batch_norm_inference,
            (
                _FLOAT_X,
                _IMAGES,
                contiguous("x"),
                requires(_known_vectors, f"weight, bias, mean and variance: {_ONE_EACH}"),
            ),
            installed=onednn,
        ),
    )
    table.add(
        "channel_affine",
        KernelRow(
            "compiled, channel by channel",
            eager_norms.channel_affine,
            (
                size_at_least("x", MIN_ELEMENTS),
                *floats("x", "weight?", "bias?"),
                _channels("weight", "bias"),
                _LONG_CHANNELS,
            ),
        ),
    )
    table.add(
        "channel_affine_grad",
        KernelRow(
            "compiled, channel by channel",
            eager_norms.channel_affine_grad,
            (
                same_shape("g", "x"),
                size_at_least("x", MIN_ELEMENTS),
                *floats("x", "weight?", "g"),
                _channels("weight"),
                _LONG_CHANNELS,
            ),
        ),
    )


def _add_losses(table: KernelTable) -> None:
    table.add(
        "nll_loss",
        KernelRow(
            "compiled, target by target",
            eager_losses.nll_loss,
            (rank("x", "> 1"), *_CLASSES[1:], _SHAPES),
        ),
    )
    table.add(
        "cross_entropy",
        KernelRow("compiled, of images", eager_losses.cross_entropy, (*_CLASSES, _SHAPES)),
        KernelRow(
            "compiled, row by row",
            eager_rows.cross_entropy,
            (size_at_least("x", _LOSS), _MATRIX, indices("target"), *floats("x", "weight?")),
        ),
        KernelRow("NumPy, blocks of rows", rowwise.cross_entropy, (_MATRIX, contiguous("x"))),
    )
    table.add(
        "cross_entropy_grad",
        KernelRow(
            "compiled, of images",
            eager_losses.cross_entropy_grad,
            (*_CLASSES[:3], *floats("x", "weight?", "total"), _SHAPES, _TOTALS, _FLOAT_G),
        ),
        KernelRow(
            "compiled, row by row",
            eager_rows.cross_entropy_grad,
            (
                size_at_least("x", _LOSS),
                _MATRIX,
                indices("target"),
                Condition("target.shape == x.shape[:1]", "one target for each row", {}, "target.shape"),
                _TOTALS,
                _FLOAT_G,
                *floats("x", "total"),
            ),
        ),
        KernelRow("NumPy, blocks of rows", rowwise.cross_entropy_grad, (_MATRIX, contiguous("x"))),
    )


__all__ = ["add_to"]
