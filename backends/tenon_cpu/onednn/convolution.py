"""Convolution and its gradients with oneDNN, in one to three spatial axes: eager kernels.

All groups, strides, dilations; transposed convolution is the input's gradient. What oneDNN has no kernel for
(float64, integers, empty arrays) goes to ``kernels/convolution.py``; 16-bit floats that the processor cannot
multiply are float32 between two conversions, rounded once.

oneDNN's kernels work on blocked layouts, so arrays are reordered on the way in and out, as torch does. Where
the copies cost more than blocks gain, the primitive is asked for plain arrays instead (``plain_is_better``).
``winograd.py`` does large convolutions of 3 by 3 windows in less than half the time.

Next: ``problems.py`` makes the primitives, for compiled programs too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.extend import errors
from tenon.ops import conv as _conv
from tenon.ops import conv_input_grad as _conv_input_grad
from tenon.ops import conv_weight_grad as _conv_weight_grad
from tenon.ops.convolution import check_bias, output_sizes
from tenon_cpu.jit.short_floats.ops import converted
from tenon_cpu.kernels import convolution as numpy_kernels
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.layouts import PLAIN
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.problems import Problem
from tenon_cpu.onednn.winograd import chain

Compute = Callable[..., None]

_cache = Cache("convolution")
#: dtypes that oneDNN computes with, on some processors after a conversion.
FLOATS = frozenset({"float32", "bfloat16", "float16"})
_SHORT = FLOATS - {"float32"}


def _key(kind: str, a: Any, b: Any, *rest: Any) -> tuple[Any, ...]:
    return kind, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, *rest


def _mendable(*arrays: Any) -> bool:
    """Whether a copy would make the arrays such as oneDNN reads."""
    return all(a.size and str(a.dtype) in FLOATS for a in arrays) and not all(map(representable, arrays))


def _whole(*arrays: Any) -> Any:
    return [a if representable(a) else np.ascontiguousarray(a) for a in arrays]


def _wide(*arrays: Any) -> Any:
    """Arrays of one 16-bit dtype as float32, in which oneDNN computes on every processor; else None."""
    dtype = arrays[0].dtype
    if str(dtype) not in _SHORT or not all(a.size and a.dtype == dtype for a in arrays):
        return None
    return [converted(a, np.dtype(np.float32)) for a in arrays]


def conv(x: Any, weight: Any, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """``conv``."""
    return convolution(x, weight, None, stride=stride, padding=padding, dilation=dilation, groups=groups)


def convolution(
    x: Any, weight: Any, bias: Any, *, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """``conv`` and its bias."""
    own = None if bias is None else (bias.shape, bias.strides, bias.dtype)
    geometry = (tuple(stride), tuple(padding), tuple(dilation), groups)
    ready = _cache.get(
        _key("forward", x, weight, own, geometry), lambda: _prepare_forward(x, weight, bias, geometry)
    )
    if ready is None:
        attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        given = [x, weight] if bias is None else [x, weight, bias]
        none = [] if len(given) == 3 else [None]
        if _mendable(*given):
            return convolution(*_whole(*given), *none, **attrs)
        if (wide := _wide(*given)) is not None:
            return converted(convolution(*wide, *none, **attrs), x.dtype)
        return numpy_kernels.convolution(x, weight, bias, **attrs)
    compute, shape = ready
    out = np.empty(shape, x.dtype)
    if bias is None:
        compute(x, weight, out)
    else:
        compute(x, weight, bias, out)
    return out


def problem_of(arrays: Any, x: Any, weight: Any, y: Any, geometry: Any) -> Problem | None:
    """The problem, if oneDNN can read all of the arrays."""
    dtype = arrays[0].dtype
    if str(dtype) not in FLOATS or not all(a.dtype == dtype and representable(a) for a in arrays):
        return None
    return Problem(tuple(x), tuple(weight), tuple(y), dtype, *geometry)


def chosen(kind: str, problem: Problem | None, make: Any) -> Primitive | None:
    """``make(layouts)`` with the best layouts that it takes."""
    if problem is None:
        return None
    if problem.plain_is_better(kind):
        tries = [(PLAIN, PLAIN), (None, None)]
    else:
        tries = [(None, None), (PLAIN, PLAIN)]
        if (blocks := problem.blocks()) is not None:
            tries.insert(0, blocks)
    made = (make(problem, layouts) for layouts in tries)
    return next((m for m in made if m is not None), None)


def _prepare_forward(x: Any, weight: Any, bias: Any, geometry: Any) -> tuple[Compute, tuple[int, ...]] | None:
    stride, padding, dilation, groups = geometry
    shape = _conv.infer(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups).shape
    arrays = [x, weight]
    if bias is not None:
        check_bias(weight, bias, weight.shape[0])
        arrays.append(bias)
    problem = problem_of(arrays, x.shape, weight.shape, shape, geometry)
    made = chosen("forward", problem, lambda p, layouts: p.forward(layouts, bias is not None))
    if problem is None or made is None:
        return None
    inputs = {c.SRC: Descriptor.of(x), c.WEIGHTS: problem.weight_like(weight)}
    if bias is not None:
        inputs[c.BIAS] = Descriptor.of(bias)
    return chain("forward", problem, made, inputs, {c.DST: Descriptor.rows(shape, x.dtype)}), shape


def conv_input_grad(
    g: Any, weight: Any, *, sizes: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """``conv_input_grad``."""
    geometry = (tuple(stride), tuple(padding), tuple(dilation), groups)
    ready = _cache.get(
        _key("input", g, weight, tuple(sizes), geometry),
        lambda: _prepare_input_grad(g, weight, tuple(sizes), geometry),
    )
    if ready is None:
        attrs = {
            "sizes": sizes,
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
        }
        if _mendable(g, weight):
            return conv_input_grad(*_whole(g, weight), **attrs)
        if (wide := _wide(g, weight)) is not None:
            return converted(conv_input_grad(*wide, **attrs), g.dtype)
        return numpy_kernels.conv_input_grad(g, weight, **attrs)
    compute, shape = ready
    out = np.empty(shape, g.dtype)
    compute(g, weight, out)
    return out


def _prepare_input_grad(
    g: Any, weight: Any, sizes: Any, geometry: Any
) -> tuple[Compute, tuple[int, ...]] | None:
    stride, padding, dilation, groups = geometry
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = _conv_input_grad.infer(g, weight, sizes=sizes, **attrs).shape
    problem = problem_of([g, weight], shape, weight.shape, g.shape, geometry)
    made = chosen("input", problem, Problem.input_grad)
    if problem is None or made is None:
        return None
    inputs = {c.DIFF_DST: Descriptor.of(g), c.WEIGHTS: problem.weight_like(weight)}
    return chain("input", problem, made, inputs, {c.DIFF_SRC: Descriptor.rows(shape, g.dtype)}), shape


def conv_weight_grad(
    x: Any, g: Any, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """``conv_weight_grad``."""
    geometry = (tuple(stride), tuple(padding), tuple(dilation), groups)
    ready = _cache.get(
        _key("weight", x, g, tuple(kernel), geometry),
        lambda: _prepare_weight_grad(x, g, tuple(kernel), geometry),
    )
    if ready is None:
        attrs = {
            "kernel": kernel,
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
        }
        if _mendable(x, g):
            return conv_weight_grad(*_whole(x, g), **attrs)
        if (wide := _wide(x, g)) is not None:
            return converted(conv_weight_grad(*wide, **attrs), x.dtype)
        return numpy_kernels.conv_weight_grad(x, g, **attrs)
    compute, shape = ready
    out = np.empty(shape, x.dtype)
    compute(x, g, out)
    return out


def _prepare_weight_grad(
    x: Any, g: Any, kernel: Any, geometry: Any
) -> tuple[Compute, tuple[int, ...]] | None:
    stride, padding, dilation, groups = geometry
    reach = output_sizes(x.shape[2:], kernel, stride, padding, dilation)
    if tuple(g.shape[2:]) != reach:
        raise errors.ShapeError(f"conv_weight_grad: g has sizes {list(g.shape[2:])}, expected {list(reach)}.")
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = _conv_weight_grad.infer(x, g, kernel=kernel, **attrs).shape
    problem = problem_of([x, g], x.shape, shape, g.shape, geometry)
    made = chosen("weight", problem, Problem.weight_grad)
    if problem is None or made is None:
        return None
    target = problem.weight_like(np.empty(shape, x.dtype))
    inputs = {c.SRC: Descriptor.of(x), c.DIFF_DST: Descriptor.of(g)}
    return chain("weight", problem, made, inputs, {c.DIFF_WEIGHTS: target}), shape


__all__ = ["conv", "conv_input_grad", "conv_weight_grad", "convolution"]
