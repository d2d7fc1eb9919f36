"""Prepared matrix products for compiled programs: all decisions are made once, a call is one ``execute``.

``PREPARE[op name](ins, attrs, outs)`` returns a function without arguments that computes ``outs`` from the
current values of ``ins``, or None where the eager kernel is as fast. Beyond the op's attributes ``attrs`` may
hold

``epilogue``: steps applied before the result is written, see ``epilogue.py``;
``constant``: indices of operands that never change, whose weights are packed once;
``counters``: index of an operand -> its version counter; the weight is packed again after a change.

A call may run on any thread, but not on two at once. Outputs must not share memory with inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tenon.extend import Attrs, Operand, Thunk
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.descriptors import Descriptor, element_strides, representable
from tenon_cpu.onednn.epilogue import Step, apply, divisions, in_numpy, post_ops_for
from tenon_cpu.onednn.matmul import Product, Strided, arranged, few_rows, primitive
from tenon_cpu.onednn.primitives import Memory, Primitive, packing
from tenon_cpu.onednn.runtime import available
from tenon_cpu.onednn.weight_packing import Counter, Packed, PackedOnReuse
from tenon_cpu.threads import alone

Prepare = Callable[[Sequence[Operand], Attrs, Sequence[np.ndarray]], "Thunk | None"]

_FLOAT, _BFLOAT = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
#: Multiplications from which a bare float32 product is faster than ``np.matmul(out=)``.
_LEAST = 1 << 16
#: Rows below which BLAS's product of a vector and a matrix is faster than oneDNN's matmul, unless weights are
#: packed.
_ROWS = 3


def matmul(ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray]) -> Thunk | None:
    """Prepare ``x @ y``."""
    x, y = ins
    return _product(x, y, None, attrs.get("epilogue", ()), _constness(attrs, 1), outs[0])


def linear(ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray]) -> Thunk | None:
    """Prepare ``x @ weight.T + bias``."""
    x, weight, bias = ins
    if not isinstance(weight, np.ndarray) or weight.ndim != 2:
        return None
    return _product(x, weight.T, bias, attrs.get("epilogue", ()), _constness(attrs, 1), outs[0])


def addmm(ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray]) -> Thunk | None:
    """Prepare ``beta * x + alpha * (a @ b)``, for ``beta`` of 0 or 1."""
    x, a, b = ins
    alpha, beta = attrs.get("alpha", 1), attrs.get("beta", 1)
    if beta not in (0, 1):
        return None
    steps: list[Step] = [("mul", alpha)] if alpha != 1 else []
    steps += [("add", x)] if beta else []
    return _product(a, b, None, (*steps, *attrs.get("epilogue", ())), _constness(attrs, 2), outs[0])


def with_bias(ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray]) -> Thunk | None:
    """Prepare ``x @ y + bias``, an op that the graph pass ``epilogue`` creates."""
    x, y, bias = ins
    return _product(x, y, bias, (), _constness(attrs, 1), outs[0])


PREPARE: dict[str, Prepare] = {"matmul": matmul, "linear": linear, "addmm": addmm}


def _constness(attrs: Attrs, index: int) -> Counter | bool:
    """Return True if operand ``index`` is constant, its version counter if it has one, else False."""
    counter: Counter | None = attrs.get("counters", {}).get(index)
    return index in attrs.get("constant", ()) or counter or False


def _product(
    x: Operand, y: Operand, bias: Operand, epilogue: Sequence[Step], counter: Counter | bool, out: np.ndarray
) -> Thunk | None:
    if not available() or not all(isinstance(a, np.ndarray) for a in (x, y, out)):
        return None
    if x.dtype != y.dtype or x.dtype not in (_FLOAT, _BFLOAT) or out.dtype not in (x.dtype, _FLOAT):
        return None
    if any(np.may_share_memory(out, a) for a in (x, y, bias) if a is not None):
        return None
    if x.ndim == 1:
        x, out = x[None], out[..., None, :] if y.ndim > 1 else out[..., None]
    if y.ndim == 1:
        y, out = y[:, None], out[..., None]
    if not (x.ndim and y.ndim and x.size and y.size and out.size):
        return None
    if not _strides_divide(x, y, out) or (bias is not None and not _fits(bias, out, x.dtype)):
        return None
    product = arranged(*(Strided(a.shape, element_strides(a)) for a in (x, y, out)))
    if product is None or product.shape != out.shape:
        return None
    if counter is True:
        return _with_packed(product, x, y, bias, epilogue, out)
    on_plain = _on_plain(product, x, y, bias, epilogue, out)
    if on_plain is None or not callable(counter):
        return on_plain
    return PackedOnReuse(counter, on_plain, lambda: _on_packed(product, x, y, bias, epilogue, out))


def _on_plain(
    product: Product,
    x: np.ndarray,
    y: np.ndarray,
    bias: np.ndarray | None,
    epilogue: Sequence[Step],
    out: np.ndarray,
) -> Thunk | None:
    if x.dtype == _FLOAT:
        faster = _is_faster(product, bias is not None or bool(epilogue))
        if faster is None:
            return None
        if not faster and in_numpy(epilogue):
            return _by_numpy(x, y, bias, epilogue, out)
    fused = _with_post_ops(product, x.dtype, bias, epilogue, out, None)
    return None if fused is None else _by_onednn(*fused, x, y, bias, out)


def _with_packed(
    product: Product,
    x: np.ndarray,
    y: np.ndarray,
    bias: np.ndarray | None,
    epilogue: Sequence[Step],
    out: np.ndarray,
) -> Thunk | None:
    """Prepare a product whose weight is packed immediately, once."""
    packable = _on_packed(product, x, y, bias, epilogue, out)
    if packable is None:
        return _on_plain(product, x, y, bias, epilogue, out)
    compute, pack = packable
    pack()
    return compute


def _on_packed(
    product: Product,
    x: np.ndarray,
    y: np.ndarray,
    bias: np.ndarray | None,
    epilogue: Sequence[Step],
    out: np.ndarray,
) -> Packed | None:
    """Return the computation on a packed weight, and the function that packs it. None where the plain layout
    is the best one, or where the best one has no blocks (AVX2): with 32 to 128 rows a row-major copy was up
    to a third slower than the weight itself, and never much faster."""
    any_layout = Descriptor.any(product.y.shape, x.dtype)
    fused = _with_post_ops(product, x.dtype, bias, epilogue, out, any_layout)
    if fused is None:
        return None
    best_layout, plain_layout = fused[0].layout(c.WEIGHTS), Descriptor.strided(*product.y, x.dtype)
    if best_layout in (plain_layout, Descriptor.rows(product.y.shape, x.dtype)):
        return None
    weights, pack = packing(y, best_layout, plain_layout)
    return _by_onednn(*fused, x, weights, bias, out), pack


def _strides_divide(*arrays: np.ndarray) -> bool:
    return all(s % a.itemsize == 0 for a in arrays for s in a.strides)


def _fits(bias: object, out: np.ndarray, dtype: npt.DTypeLike) -> bool:
    return (
        isinstance(bias, np.ndarray)
        and bias.dtype == dtype
        and bias.shape == out.shape[-1:]
        and representable(bias)
        and bias.strides == (bias.itemsize,)
    )


def _is_faster(product: Product, fused: bool) -> bool | None:
    """Whether oneDNN is faster than NumPy; None for a bare product that it is not faster for."""
    rows, columns = product.out.shape[-2:]
    size = math.prod(product.out.shape) * product.x.shape[-1]
    thin = (rows < _ROWS or columns < _ROWS) and size >= 1 << 12 and not few_rows(product)
    if fused:
        return not thin
    return True if size >= _LEAST and not thin else None


def _with_post_ops(
    product: Product,
    dtype: npt.DTypeLike,
    bias: np.ndarray | None,
    epilogue: Sequence[Step],
    out: np.ndarray,
    layout: Descriptor | None,
) -> tuple[Primitive, dict[int, np.ndarray], list[Step]] | None:
    """Return a primitive, the operands of its post-ops, and the steps that remain for NumPy; None if there is
    none."""
    for in_primitive, after in divisions(epilogue):
        fused = post_ops_for(in_primitive, product, out)
        if fused is None:
            continue
        created = primitive(product, dtype, bias is not None, fused[0], layout, out.dtype)
        if created is not None:
            return created, fused[1], after
        # There is no fast kernel for operands of some shapes: leave more steps to NumPy.
    return None


def _by_onednn(
    compiled: Primitive,
    operands: dict[int, np.ndarray],
    remaining: list[Step],
    x: np.ndarray,
    weights: Memory,
    bias: np.ndarray | None,
    out: np.ndarray,
) -> Thunk:
    arguments = {c.SRC: x, c.WEIGHTS: weights, c.DST: out, **operands}
    if bias is not None:
        arguments[c.BIAS] = bias
    call = compiled.execution(arguments).call()
    if not remaining:
        return call

    def with_rest() -> None:
        call()
        apply(remaining, out)

    return with_rest


def _by_numpy(
    x: np.ndarray, y: np.ndarray, bias: np.ndarray | None, epilogue: Sequence[Step], out: np.ndarray
) -> Thunk | None:
    """Return a product of few rows by NumPy, as BLAS reads the matrix only once.

    It runs on one thread: BLAS's workers would spin on the cores of the OpenMP threads of the other steps.
    """
    multiply, add = np.matmul, np.add

    def call() -> None:
        alone(multiply, x, y, out)
        if bias is not None:
            add(out, bias, out=out)
        apply(epilogue, out)

    return call


__all__ = ["PREPARE"]
