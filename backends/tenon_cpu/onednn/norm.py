"""Batch norm with oneDNN: in compiled programs, where activations are blocked, and eagerly.

oneDNN saves the variance for the gradient, tenon's ops the reciprocal standard deviation ("deviation"); the
gradient recomputes the variance from it, with an epsilon of 0. On plain arrays oneDNN's kernel is slow: eager
kernels reorder them to blocks and back, which takes as long as batch norm itself and still is 2.8 times as
fast as NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.extend import Attrs, Operand, Thunk
from tenon_cpu.jit.eager_ops.calls import MIN_ELEMENTS, fits, share
from tenon_cpu.jit.loops import along_axis
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.chain import Chain
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.layouts import PLAIN, Assigned, Layout, blocked
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.threads import split

_FLOAT = np.dtype(np.float32)


def forward(shape: tuple[int, ...], layout: Layout, scale: bool, shift: bool, eps: float) -> Primitive | None:
    """Return the primitive ``SRC``, ``SCALE``, ``SHIFT`` -> ``DST``, ``MEAN``, ``VARIANCE``."""
    data = layout.descriptor(shape, _FLOAT)
    flags = scale * c.USE_SCALE | shift * c.USE_SHIFT
    primitive = Primitive("batch_normalization_forward", c.FORWARD_TRAINING, data, data, eps, flags)
    return None if primitive.reference else primitive


def backward(shape: tuple[int, ...], layout: Layout, scale: bool, shift: bool) -> Primitive | None:
    """Return the primitive ``SRC``, ``DIFF_DST``, ``MEAN``, ``VARIANCE``, ``SCALE`` -> ``DIFF_SRC``,
    ``DIFF_SCALE``, ``DIFF_SHIFT``."""
    hint = forward(shape, layout, scale, shift, 0.0)
    if hint is None:
        return None
    data = layout.descriptor(shape, _FLOAT)
    flags = scale * c.USE_SCALE | shift * c.USE_SHIFT
    primitive = Primitive("batch_normalization_backward", c.BACKWARD, data, data, data, 0.0, flags, hint)
    return None if primitive.reference else primitive


def _vector(array: np.ndarray) -> Descriptor:
    return Descriptor.rows((array.size,), _FLOAT)


def _takes(*arrays: np.ndarray) -> bool:
    present = [a for a in arrays if a is not None]
    return all(a.dtype == _FLOAT and representable(a) for a in present)


def prepare_batch_norm(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``batch_norm``: result, mean, variance, and the residuals that its gradient reads, if any."""
    x, weight, bias = ins
    out, mean, variance, *residuals = outs
    layout = layouts.inputs[0]
    small = [a for a in (weight, bias, *outs[1:]) if a is not None]
    if layout == PLAIN or not _takes(x, *outs, *small) or not all(a.flags.c_contiguous for a in small):
        return None
    eps = attrs.get("eps", 1e-5)
    primitive = forward(x.shape, layout, weight is not None, bias is not None, eps)
    if primitive is None:
        return None
    data = layout.descriptor(x.shape, _FLOAT)
    inputs = {c.SRC: data}
    inputs |= {p: _vector(a) for p, a in ((c.SCALE, weight), (c.SHIFT, bias)) if a is not None}
    chain = Chain(primitive, inputs, {c.DST: data, c.MEAN: _vector(mean), c.VARIANCE: _vector(variance)})
    compute = chain.bound(x, *(a for a in (weight, bias) if a is not None), out, mean, variance)
    if not residuals:
        return compute
    (flat_mean, flat_deviation), constant = [r.reshape(-1) for r in residuals], np.float32(eps)

    def run() -> None:
        compute()
        flat_mean[:] = mean
        np.add(variance, constant, out=flat_deviation)
        np.sqrt(flat_deviation, out=flat_deviation)
        np.reciprocal(flat_deviation, out=flat_deviation)

    return run


def prepare_batch_norm_grad(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``batch_norm_grad``: the gradients of input, weight and bias."""
    g, x, weight, mean, deviation = ins
    dx, dweight, dbias = outs
    needs = attrs["needs"]
    layout = layouts.inputs[0]
    small = [a for a in (weight, mean, deviation, dweight, dbias) if a is not None]
    if layout == PLAIN or not needs[0] or not _takes(g, x, dx, *small):
        return None
    if not all(a.flags.c_contiguous for a in small) or (needs[1] and weight is None):
        return None
    primitive = backward(x.shape, layout, weight is not None, bool(needs[2]))
    if primitive is None:
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
    compute = Chain(primitive, inputs, outputs).bound(*arrays, *results)
    flat = deviation.reshape(-1)

    def run() -> None:
        np.multiply(flat, flat, out=variance)
        np.reciprocal(variance, out=variance)
        compute()

    return run


_cache = Cache("batch norm")
#: Elements up to which all images are computed in one NumPy call.
_ALONE = 1 << 15


def blocks(*arrays: np.ndarray) -> bool:
    """Whether the arrays can be reordered to the blocked layout."""
    x = arrays[0]
    layout = blocked()
    divides = layout != PLAIN and layout.fits(x.shape)
    return bool(divides and _takes(*arrays) and all(a.shape == x.shape for a in arrays))


def vectors(channels: int, *arrays: np.ndarray | None) -> bool:
    """Whether all arrays but None are contiguous float32 with one element per channel."""
    return all(
        v.dtype == _FLOAT and v.size == channels and v.flags.c_contiguous for v in arrays if v is not None
    )


def batch_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, *, eps: float = 1e-5
) -> tuple[np.ndarray, ...]:
    """Return result, mean, variance, and the mean and deviation for the gradient; with its copies 2.8 times
    as fast as NumPy."""
    key = ("forward", x.shape, x.strides, weight is None, bias is None, eps)
    chain = _cache.get(key, _forward_chain, x, weight is not None, bias is not None, eps)
    if chain is None:
        return NotImplemented
    channels = x.shape[1]
    out, mean, variance = np.empty(x.shape, _FLOAT), np.empty(channels, _FLOAT), np.empty(channels, _FLOAT)
    chain(x, *(v for v in (weight, bias) if v is not None), out, mean, variance)
    broadcast = (1, channels, *(1,) * (x.ndim - 2))
    deviation = np.add(variance, np.float32(eps))
    np.sqrt(deviation, out=deviation)
    np.reciprocal(deviation, out=deviation)
    return out, mean, variance, mean.copy().reshape(broadcast), deviation.reshape(broadcast)


def _forward_chain(x: np.ndarray, scale: bool, shift: bool, eps: float) -> Chain | None:
    primitive = forward(x.shape, blocked(), scale, shift, eps)
    if primitive is None:
        return None
    vector = Descriptor.rows((x.shape[1],), _FLOAT)
    inputs = {c.SRC: Descriptor.of(x)}
    inputs |= {p: vector for p, used in ((c.SCALE, scale), (c.SHIFT, shift)) if used}
    outputs = {c.DST: Descriptor.rows(x.shape, _FLOAT), c.MEAN: vector, c.VARIANCE: vector}
    return Chain(primitive, inputs, outputs)


def batch_norm_grad(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray, mean: np.ndarray, deviation: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the gradients of input, weight and bias; 2.9 times as fast as NumPy."""
    channels = x.shape[1]
    chain = _cache.get(("backward", x.shape, x.strides, g.strides), _backward_chain, x, g)
    if chain is None:
        return NotImplemented
    flat = deviation.reshape(-1)
    variance = np.reciprocal(np.multiply(flat, flat))
    dx, dweight, dbias = np.empty(x.shape, _FLOAT), np.empty(channels, _FLOAT), np.empty(channels, _FLOAT)
    chain(x, g, mean, variance, weight, dx, dweight, dbias)
    return dx, dweight, dbias


def _backward_chain(x: np.ndarray, g: np.ndarray) -> Chain | None:
    primitive = backward(x.shape, blocked(), True, True)
    if primitive is None:
        return None
    vector = Descriptor.rows((x.shape[1],), _FLOAT)
    inputs = {c.SRC: Descriptor.of(x), c.DIFF_DST: Descriptor.of(g)}
    inputs |= dict.fromkeys((c.MEAN, c.VARIANCE, c.SCALE), vector)
    outputs = {c.DIFF_SRC: Descriptor.rows(x.shape, _FLOAT), c.DIFF_SCALE: vector, c.DIFF_SHIFT: vector}
    return Chain(primitive, inputs, outputs)


def batch_norm_inference(
    x: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    mean: np.ndarray,
    variance: np.ndarray,
    *,
    eps: float = 1e-5,
) -> np.ndarray:
    """Normalize with given statistics: one multiplication and one addition, image by image to stay in the
    cache. It uses NumPy, as no oneDNN kernel is faster."""
    deviation = np.sqrt(np.add(variance, np.float32(eps)))
    scale = np.reciprocal(deviation) if weight is None else np.divide(weight, deviation)
    shift = np.multiply(mean, scale)
    shift = np.negative(shift) if bias is None else np.subtract(bias, shift)
    images, out = x.reshape(x.shape[0], x.shape[1], -1), np.empty_like(x)
    flat_out = out.reshape(images.shape)
    if x.size >= MIN_ELEMENTS and fits(x):
        share(along_axis.scale_and_shift, (images, scale, shift, flat_out), x.shape[0], 2 * x.size)
        return out
    scale, shift = scale[:, None], shift[:, None]
    if x.size <= _ALONE:
        np.multiply(images, scale, out=flat_out)
        np.add(flat_out, shift, out=flat_out)
        return out

    def work(a: int, b: int) -> None:
        for i in range(a, b):
            part = np.multiply(images[i], scale, out=flat_out[i])
            np.add(part, shift, out=part)

    split(work, x.shape[0], max(1, _ALONE // images[0].size))
    return out


PREPARE = {"batch_norm": prepare_batch_norm, "batch_norm_grad": prepare_batch_norm_grad}
