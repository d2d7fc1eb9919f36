"""Batch norm with oneDNN: in compiled programs, where activations are blocked, and eagerly where that pays.

oneDNN keeps the variance, our ops the reciprocal deviation; the gradient gets the variance back from it, with
an epsilon of 0. On plain arrays oneDNN's kernel is slow and is never asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.chain import Chain
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.layouts import PLAIN, Assigned, Layout
from tenon_cpu.onednn.primitives import Primitive

Thunk = Callable[[], None]
_FLOAT = np.dtype(np.float32)


def forward(shape: tuple[int, ...], layout: Layout, scale: bool, shift: bool, eps: float) -> Primitive | None:
    """``SRC``, ``SCALE``, ``SHIFT`` -> ``DST``, ``MEAN``, ``VARIANCE``."""
    data = layout.descriptor(shape, _FLOAT)
    flags = scale * c.USE_SCALE | shift * c.USE_SHIFT
    made = Primitive("batch_normalization_forward", c.FORWARD_TRAINING, data, data, eps, flags)
    return None if made.reference else made


def backward(shape: tuple[int, ...], layout: Layout, scale: bool, shift: bool) -> Primitive | None:
    """``SRC``, ``DIFF_DST``, ``MEAN``, ``VARIANCE``, ``SCALE`` -> ``DIFF_SRC``, ``DIFF_SCALE``,
    ``DIFF_SHIFT``."""
    hint = forward(shape, layout, scale, shift, 0.0)
    if hint is None:
        return None
    data = layout.descriptor(shape, _FLOAT)
    flags = scale * c.USE_SCALE | shift * c.USE_SHIFT
    made = Primitive("batch_normalization_backward", c.BACKWARD, data, data, data, 0.0, flags, hint)
    return None if made.reference else made


def _vector(array: Any) -> Descriptor:
    return Descriptor.rows((array.size,), _FLOAT)


def _takes(*arrays: Any) -> bool:
    given = [a for a in arrays if a is not None]
    return all(a.dtype == _FLOAT and representable(a) for a in given)


def prepare_batch_norm(
    ins: Sequence[Any], attrs: Mapping[str, Any], outs: Sequence[Any], layouts: Assigned
) -> Thunk | None:
    """``batch_norm``: result, mean, variance, and the mean and reciprocal deviation that the gradient
    needs."""
    x, weight, bias = ins
    out, mean, variance, kept_mean, deviation = outs
    layout = layouts.inputs[0]
    small = [a for a in (weight, bias, *outs[1:]) if a is not None]
    if layout == PLAIN or not _takes(x, *outs, *small) or not all(a.flags.c_contiguous for a in small):
        return None
    eps = attrs.get("eps", 1e-5)
    made = forward(x.shape, layout, weight is not None, bias is not None, eps)
    if made is None:
        return None
    data = layout.descriptor(x.shape, _FLOAT)
    inputs = {c.SRC: data}
    inputs |= {p: _vector(a) for p, a in ((c.SCALE, weight), (c.SHIFT, bias)) if a is not None}
    chain = Chain(made, inputs, {c.DST: data, c.MEAN: _vector(mean), c.VARIANCE: _vector(variance)})
    compute = chain.bound(x, *(a for a in (weight, bias) if a is not None), out, mean, variance)
    flat_mean, flat_deviation, constant = kept_mean.reshape(-1), deviation.reshape(-1), np.float32(eps)

    def run() -> None:
        compute()
        flat_mean[:] = mean
        np.add(variance, constant, out=flat_deviation)
        np.sqrt(flat_deviation, out=flat_deviation)
        np.reciprocal(flat_deviation, out=flat_deviation)

    return run


def prepare_batch_norm_grad(
    ins: Sequence[Any], attrs: Mapping[str, Any], outs: Sequence[Any], layouts: Assigned
) -> Thunk | None:
    """``batch_norm_grad``: the gradients for input, weight and bias."""
    g, x, weight, mean, deviation = ins
    dx, dweight, dbias = outs
    needs = attrs["needs"]
    layout = layouts.inputs[0]
    small = [a for a in (weight, mean, deviation, dweight, dbias) if a is not None]
    if layout == PLAIN or not needs[0] or not _takes(g, x, dx, *small):
        return None
    if not all(a.flags.c_contiguous for a in small) or (needs[1] and weight is None):
        return None
    made = backward(x.shape, layout, weight is not None, bool(needs[2]))
    if made is None:
        return None
    data, vector, variance = layout.descriptor(x.shape, _FLOAT), _vector(mean), np.empty(mean.size, _FLOAT)
    inputs = {c.SRC: data, c.DIFF_DST: data, c.MEAN: vector, c.VARIANCE: vector}
    outputs, arrays, results = {c.DIFF_SRC: data}, [x, g, mean, variance], [dx]
    if weight is not None:
        inputs[c.SCALE], outputs[c.DIFF_SCALE] = vector, vector
        arrays.append(weight)
        results.append(dweight)
    if needs[2]:
        outputs[c.DIFF_SHIFT] = vector
        results.append(dbias)
    compute = Chain(made, inputs, outputs).bound(*arrays, *results)
    flat = deviation.reshape(-1)

    def run() -> None:
        np.multiply(flat, flat, out=variance)
        np.reciprocal(variance, out=variance)
        compute()

    return run


PREPARE = {"batch_norm": prepare_batch_norm, "batch_norm_grad": prepare_batch_norm_grad}
