"""Elementwise steps after a matrix product: as oneDNN's post-ops where it can do them, else by NumPy.

An epilogue is a tuple of steps, applied in order to the float32 sums::

    (("relu",), ("gelu_tanh",), ("tanh",), ("logistic",), ("linear", alpha, beta), ...)
    (("add", operand), ("mul", operand), ("sub", operand), ("div", operand))   # an array, or a number
    (("sum",),)                               # adds the output's previous values; only as the first step

oneDNN has more elementwise functions than ``CURVES``, but those treat NaN or infinity otherwise than NumPy
and PyTorch: its relu, clip, max and min turn NaN into 0 or a bound, its exp turns NaN into infinity, and its
gelu_erf turns infinity into NaN. Therefore NumPy computes a relu after the call, and all steps after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import ml_dtypes
import numpy as np

from tenon_cpu.onednn.attributes import PostOp, post_op_argument
from tenon_cpu.onednn.descriptors import Descriptor, element_strides, representable
from tenon_cpu.onednn.matmul import Product

Step = PostOp


CURVES = frozenset({"tanh", "logistic", "gelu_tanh", "linear", "elu", "abs", "square", "swish"})
OPERATORS = frozenset({"add", "mul", "sub", "div"})


def divisions(epilogue: Sequence[Step]) -> Iterator[tuple[list[Step], list[Step]]]:
    """Yield the ways to divide the steps into oneDNN's and, after those, NumPy's, the best way first."""
    steps = list(epilogue)
    most = next((i for i, step in enumerate(steps) if step[0] == "relu"), len(steps))
    for cut in range(most, -1, -1):
        if not in_numpy(steps[cut:]):
            return
        yield steps[:cut], steps[cut:]


def post_ops_for(
    epilogue: Sequence[Step], product: Product, out: np.ndarray
) -> tuple[list[Step], dict[int, np.ndarray]] | None:
    """Return post-ops and their operands by argument position, for the axes of ``product``; None where oneDNN
    cannot do a step or read its operand."""
    post_ops: list[Step] = []
    operands: dict[int, np.ndarray] = {}
    for name, *parameters in epilogue:
        if name in OPERATORS and len(parameters) == 1:
            if isinstance(parameters[0], (int, float)):
                step = _number(name, float(parameters[0]))
                if step is None:
                    return None
                post_ops.append(step)
                continue
            operand = _operand(parameters[0], product, out)
            if operand is None:
                return None
            operands[post_op_argument(len(post_ops))] = operand
            post_ops.append((name, Descriptor.of(operand)))
        elif (name == "sum" and not post_ops) or name in CURVES:
            post_ops.append((name, *parameters))
        else:
            return None
    return post_ops, operands


def _number(name: str, number: float) -> Step | None:
    if name in ("add", "sub"):
        return ("linear", 1.0, number if name == "add" else -number)
    return ("linear", number, 0.0) if name == "mul" else None


def _operand(x: object, product: Product, out: np.ndarray) -> np.ndarray | None:
    """Return a view of ``x`` in the axes of the product; None where there is no such view."""
    if not isinstance(x, np.ndarray) or x.dtype not in (out.dtype, np.float32) or x.ndim > out.ndim:
        return None
    if np.may_share_memory(x, out):
        return None
    x = x.reshape((1,) * (out.ndim - x.ndim) + x.shape)
    axes, rows_merged = product.out.shape, product.out.shape[-2] != out.shape[-2]
    if x.size == 1:
        view = x.reshape((1,) * len(axes))
    elif x.shape[-1] == x.size:  # one number per column
        view = x.reshape((1,) * (len(axes) - 1) + x.shape[-1:])
    elif x.shape == out.shape and (len(axes) == 2 or element_strides(x) == element_strides(out)):
        view = x.reshape(axes)
    elif x.shape[:-1] == out.shape[:-1]:  # one per row
        view = x.reshape((*axes[:-1], 1))
    elif x.shape[-2:] == (out.shape[-2:]) and x.shape[-2] * x.shape[-1] == x.size and not rows_merged:
        view = x.reshape((1,) * (len(axes) - 2) + x.shape[-2:])
    else:
        return None
    return view if np.may_share_memory(view, x) and representable(view) else None


_ZERO = {t.char: np.zeros((), t) for t in (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16))}
_CURVES: dict[str, Callable[[np.ndarray, Sequence[float]], np.ndarray]] = {
    "relu": lambda x, p: np.maximum(_ZERO[x.dtype.char], x, out=x),
    "tanh": lambda x, p: np.tanh(x, out=x),
    "abs": lambda x, p: np.abs(x, out=x),
    "square": lambda x, p: np.square(x, out=x),
    "linear": lambda x, p: np.add(np.multiply(x, p[0], out=x), p[1], out=x),
}
_UFUNCS = {"add": np.add, "mul": np.multiply, "sub": np.subtract, "div": np.divide}


def in_numpy(epilogue: Sequence[Step]) -> bool:
    """Whether ``apply`` supports every step."""
    return all(
        (name in _CURVES and (name == "linear" or not parameters))
        or (name in _UFUNCS and len(parameters) == 1)
        for name, *parameters in epilogue
    )


def apply(epilogue: Sequence[Step], x: np.ndarray) -> None:
    """Apply the steps to ``x`` in place, with NumPy."""
    for name, *parameters in epilogue:
        ufunc = _UFUNCS.get(name)
        if ufunc is not None:
            ufunc(x, parameters[0], out=x)
        else:
            _CURVES[name](x, parameters)
