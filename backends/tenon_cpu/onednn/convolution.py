"""Convolution and its gradients with oneDNN, in one to three spatial axes: eager kernels.

They support all groups, strides and dilations; a transposed convolution is the gradient of the input. They
decline arrays that oneDNN cannot read and cases that it has no fast kernel for. The next rows of
``table/spatial.py`` are the same kernels on contiguous copies (``of_copies``), and in float32 for 16-bit
floats that the processor cannot multiply (``in_float32``).

oneDNN's kernels work on blocked layouts, so arrays are reordered on the way in and out, as in PyTorch. Where
the copies cost more than blocks save, the primitive is created for plain arrays (``plain_is_better``).
``winograd.py`` computes large convolutions of 3 by 3 windows in less than half the time.

Next: ``problems.py`` creates the primitives, for compiled programs too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from tenon.extend import Kernel, errors
from tenon.ops import conv as _conv
from tenon.ops import conv_input_grad as _conv_input_grad
from tenon.ops import conv_weight_grad as _conv_weight_grad
from tenon.ops.convolution_checks import check_bias, output_sizes
from tenon_cpu.jit.short_floats.ops import converted
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.layouts import PLAIN
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.problems import Geometry, Layouts, Problem
from tenon_cpu.onednn.winograd import chain

Compute = Callable[..., None]

_cache = Cache("convolution")
#: Supported dtypes; some processors compute in 16 bits only after a conversion to float32.
FLOATS = frozenset({"float32", "bfloat16", "float16"})
_SHORT = FLOATS - {"float32"}
_FLOAT = np.dtype(np.float32)
Sizes = tuple[int, ...]


def _key(kind: str, a: np.ndarray, b: np.ndarray, *others: Hashable) -> tuple[Hashable, ...]:
    return kind, a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, *others


def readable_as_copies(*arrays: np.ndarray | None) -> bool:
    """Whether oneDNN can read contiguous copies of the arrays, of which some may be None, but not all of the
    arrays themselves."""
    present = [a for a in arrays if a is not None]
    return all(a.size and str(a.dtype) in FLOATS for a in present) and not all(map(representable, present))


def one_short_dtype(*arrays: np.ndarray | None) -> bool:
    """Whether the arrays, of which some may be None, hold 16-bit floats of one dtype and are not empty."""
    present = [a for a in arrays if a is not None]
    dtype = present[0].dtype
    return str(dtype) in _SHORT and all(a.size and a.dtype == dtype for a in present)


def of_copies(kernel: Kernel) -> Kernel:
    """Return ``kernel`` applied to contiguous copies of those arrays that oneDNN cannot read."""

    def call(*arrays: np.ndarray | None, **attrs: object) -> np.ndarray:
        return kernel(
            *(a if a is None or representable(a) else np.ascontiguousarray(a) for a in arrays), **attrs
        )

    return call


def in_float32(kernel: Kernel) -> Kernel:
    """Return ``kernel`` applied to the arrays as float32, with its result rounded to their dtype."""

    def call(*arrays: np.ndarray | None, **attrs: object) -> np.ndarray:
        first = arrays[0]
        assert first is not None
        result = kernel(
            *(a if a is None else converted(np.ascontiguousarray(a), _FLOAT) for a in arrays), **attrs
        )
        return result if result is NotImplemented else converted(result, first.dtype)

    return call


def conv(
    x: np.ndarray, weight: np.ndarray, *, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> np.ndarray:
    """Compute the op ``conv``."""
    return convolution(x, weight, None, stride=stride, padding=padding, dilation=dilation, groups=groups)


def convolution(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, *, stride: Sizes, padding: Sizes,
    dilation: Sizes, groups: int,
) -> np.ndarray:  # fmt: skip
    """Compute the op ``convolution``: ``conv`` plus a bias for each channel."""
    bias_key = None if bias is None else (bias.shape, bias.strides, bias.dtype)
    geometry = (tuple(stride), tuple(padding), tuple(dilation), groups)
    ready = _cache.get(
        _key("forward", x, weight, bias_key, geometry), lambda: _prepare_forward(x, weight, bias, geometry)
    )
    if ready is None:
        return NotImplemented
    compute, shape = ready
    out = np.empty(shape, x.dtype)
    if bias is None:
        compute(x, weight, out)
    else:
        compute(x, weight, bias, out)
    return out


def problem_of(
    arrays: Sequence[np.ndarray], x: Sizes, weight: Sizes, y: Sizes, geometry: Geometry
) -> Problem | None:
    """Return the problem with these shapes; None if oneDNN cannot read all of the arrays."""
    dtype = arrays[0].dtype
    if str(dtype) not in FLOATS or not all(a.dtype == dtype and representable(a) for a in arrays):
        return None
    return Problem(tuple(x), tuple(weight), tuple(y), dtype, *geometry)


def with_best_layouts(
    kind: str, problem: Problem | None, make: Callable[[Problem, Layouts], Primitive | None]
) -> Primitive | None:
    """Return the first primitive that ``make(problem, layouts)`` creates, with the best layouts first."""
    if problem is None:
        return None
    if problem.plain_is_better(kind):
        candidates = [(PLAIN, PLAIN), (None, None)]
    else:
        candidates = [(None, None), (PLAIN, PLAIN)]
        if (blocks := problem.blocks()) is not None:
            candidates.insert(0, blocks)
    primitives = (make(problem, layouts) for layouts in candidates)
    return next((primitive for primitive in primitives if primitive is not None), None)


def _prepare_forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, geometry: Geometry
) -> tuple[Compute, Sizes] | None:
    stride, padding, dilation, groups = geometry
    shape = _conv.infer(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups).shape
    arrays = [x, weight]
    if bias is not None:
        check_bias(weight, bias, weight.shape[0])
        arrays.append(bias)
    problem = problem_of(arrays, x.shape, weight.shape, shape, geometry)
    primitive = with_best_layouts("forward", problem, lambda p, layouts: p.forward(layouts, bias is not None))
    if problem is None or primitive is None:
        return None
    inputs = {c.SRC: Descriptor.of(x), c.WEIGHTS: problem.weight_like(weight)}
    if bias is not None:
        inputs[c.BIAS] = Descriptor.of(bias)
    return chain("forward", problem, primitive, inputs, {c.DST: Descriptor.rows(shape, x.dtype)}), shape


def conv_input_grad(
    g: np.ndarray, weight: np.ndarray, *, sizes: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
    groups: int,
) -> np.ndarray:  # fmt: skip
    """Compute the op ``conv_input_grad``."""
    geometry = (tuple(stride), tuple(padding), tuple(dilation), groups)
    ready = _cache.get(
        _key("input", g, weight, tuple(sizes), geometry),
        lambda: _prepare_input_grad(g, weight, tuple(sizes), geometry),
    )
    if ready is None:
        return NotImplemented
    compute, shape = ready
    out = np.empty(shape, g.dtype)
    compute(g, weight, out)
    return out


def _prepare_input_grad(
    g: np.ndarray, weight: np.ndarray, sizes: Sizes, geometry: Geometry
) -> tuple[Compute, Sizes] | None:
    stride, padding, dilation, groups = geometry
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = _conv_input_grad.infer(g, weight, sizes=sizes, **attrs).shape
    problem = problem_of([g, weight], shape, weight.shape, g.shape, geometry)
    primitive = with_best_layouts("input", problem, Problem.input_grad)
    if problem is None or primitive is None:
        return None
    inputs = {c.DIFF_DST: Descriptor.of(g), c.WEIGHTS: problem.weight_like(weight)}
    return chain("input", problem, primitive, inputs, {c.DIFF_SRC: Descriptor.rows(shape, g.dtype)}), shape


def conv_weight_grad(
    x: np.ndarray, g: np.ndarray, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
    groups: int,
) -> np.ndarray:  # fmt: skip
    """Compute the op ``conv_weight_grad``."""
    geometry = (tuple(stride), tuple(padding), tuple(dilation), groups)
    ready = _cache.get(
        _key("weight", x, g, tuple(kernel), geometry),
        lambda: _prepare_weight_grad(x, g, tuple(kernel), geometry),
    )
    if ready is None:
        return NotImplemented
    compute, shape = ready
    out = np.empty(shape, x.dtype)
    compute(x, g, out)
    return out


def _prepare_weight_grad(
    x: np.ndarray, g: np.ndarray, kernel: Sizes, geometry: Geometry
) -> tuple[Compute, Sizes] | None:
    stride, padding, dilation, groups = geometry
    expected = output_sizes(x.shape[2:], kernel, stride, padding, dilation)
    if tuple(g.shape[2:]) != expected:
        raise errors.ShapeError(
            f"conv_weight_grad: g has sizes {list(g.shape[2:])}, expected {list(expected)}."
        )
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape = _conv_weight_grad.infer(x, g, kernel=kernel, **attrs).shape
    problem = problem_of([x, g], x.shape, shape, g.shape, geometry)
    primitive = with_best_layouts("weight", problem, Problem.weight_grad)
    if problem is None or primitive is None:
        return None
    descriptor = problem.weight_like(np.empty(shape, x.dtype))
    inputs = {c.SRC: Descriptor.of(x), c.DIFF_DST: Descriptor.of(g)}
    return chain("weight", problem, primitive, inputs, {c.DIFF_WEIGHTS: descriptor}), shape


__all__ = [
    "conv", "conv_input_grad", "conv_weight_grad", "convolution", "in_float32", "of_copies",
    "one_short_dtype", "readable_as_copies",
]  # fmt: skip
