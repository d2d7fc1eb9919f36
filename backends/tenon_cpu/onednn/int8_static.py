"""``int8_linear`` and ``int8_conv`` on oneDNN's int8 kernels: uint8 in and uint8 or float32 out.

Images are channels-last, the layout of these kernels: a uint8 result is a view ``[N, C, *S]`` of
channels-last memory, which the next convolution reads without a copy. A float32 result is contiguous. Scales,
zero points, bias and relu are part of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tenon.extend import Attrs, Availability, Kernel
from tenon.ops import int8_conv as _conv
from tenon_cpu.jit import integer
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.int8 import LONGEST, Shapes, Steps, exact, has_exact_kernel
from tenon_cpu.onednn.int8_packed import PackedWeight, PackedWeights
from tenon_cpu.onednn.int8_words import ConvolutionWords, LinearWords
from tenon_cpu.onednn.int8_words import is_supported as words_are_supported
from tenon_cpu.onednn.primitives import Memory, Primitive, address_of
from tenon_cpu.onednn.problems import Geometry, Problem
from tenon_cpu.onednn.runtime import Buffer

Array = np.ndarray
Sizes = tuple[int, ...]
#: Scale and zero point of the input, those of the result (or None and 0), number of outputs, whether there is
#: a bias.
Numbers = tuple[float, int, float | None, int, int, bool]
_cache = Cache("static int8")
_weights = PackedWeights()
#: The attributes of an op that make up its ``Steps``.
STEPS = ("x_step", "x_zero", "out_step", "out_zero", "relu")
_FLOAT, _BYTE, _INT8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)


class Static:
    """A primitive, with a reorder of its input or result where their layouts are not the primitive's.

    ``source`` and ``target`` describe the input and the result; with ``quantizes`` the input is float32 and
    is quantized. The weight, packed once if it is read-only, the scales and the bias are arguments of each
    call.
    """

    def __init__(
        self,
        primitive: Primitive,
        source: Descriptor,
        target: Descriptor,
        quantizes: bool,
        numbers: Numbers,
        window: Descriptor,
    ) -> None:
        x_step, x_zero, out_step, out_zero, columns, biased = numbers
        self.layout, self.window = primitive.layout(c.WEIGHTS), window
        input_layout, output_layout = primitive.layout(c.SRC), primitive.layout(c.DST)
        self.before = self.after = None
        arguments: dict[int, Memory | None] = {c.SRC: None, c.WEIGHTS: None, c.DST: None}
        if source != input_layout:
            scales, zeros = ({c.DST: 0}, {c.DST: 0} if x_zero else {}) if quantizes else ({}, {})
            step = Primitive(
                "reorder", source, input_layout, attributes=Attributes(scales=scales, zero_points=zeros)
            )
            arguments[c.SRC] = input_layout.buffer()
            self.before = step.execution(
                {c.SRC: None, c.DST: arguments[c.SRC], **_constants(c.DST, scales, x_step, x_zero, zeros)}
            )
        arguments |= _constants(c.SRC, True, x_step, x_zero, x_zero)
        arguments[c.SCALES | c.WEIGHTS] = np.ones(columns, np.float32)
        if out_step is not None:
            arguments |= _constants(c.DST, True, out_step, out_zero, out_zero)
        if biased:
            arguments[c.BIAS] = None
        if target != output_layout:
            arguments[c.DST] = output_layout.buffer()
            self.after = Primitive("reorder", output_layout, target).execution(
                {c.SRC: arguments[c.DST], c.DST: None}
            )
        self.main = main = primitive.execution(arguments)
        self._point = main.set_handle
        self._in = main.memory(c.SRC) if self.before is None else self.before.memory(c.SRC)
        self._out = main.memory(c.DST) if self.after is None else self.after.memory(c.DST)
        self._weight, self._scale = main.memory(c.WEIGHTS), main.memory(c.SCALES | c.WEIGHTS)
        self._bias = main.memory(c.BIAS) if biased else None
        self._packed_weight: PackedWeight | None = None
        self._packed: Buffer | None = None

    def __call__(self, x: Array, weight: Array, scale: Array, bias: Array | None, out: Array) -> None:
        """Compute ``out``; the arrays have the described layouts."""
        point = self._point
        packed_weight = _weights.get(weight, scale)
        if packed_weight is not self._packed_weight:
            self._packed, self._packed_weight = (
                packed_weight.packed(weight, self.layout, self.window),
                packed_weight,
            )
            point(self._weight, self._packed.address)
        point(self._scale, address_of(scale))
        if bias is not None:
            point(self._bias, address_of(bias))
        point(self._in, address_of(x))
        point(self._out, address_of(out))
        if self.before is not None:
            self.before()
        self.main()
        if self.after is not None:
            self.after()


def _constants(
    position: int, scaled: object, step: float, zero: int, shifted: object
) -> dict[int, Memory | None]:
    constants: dict[int, Memory | None] = (
        {c.SCALES | position: np.array([step], np.float32)} if scaled else {}
    )
    if shifted:
        constants[c.ZERO_POINTS | position] = np.array([zero], np.int32)
    return constants


def _attributes(
    per_output: int, x_zero: int, out_step: float | None, out_zero: int, relu: bool
) -> Attributes:
    scales = {c.SRC: 0, c.WEIGHTS: per_output, **({} if out_step is None else {c.DST: 0})}
    zeros = {c.SRC: 0} if x_zero else {}
    zeros |= {c.DST: 0} if out_zero and out_step is not None else {}
    # Without a zero point, saturation to uint8 is the relu.
    rectified = relu and (out_step is None or out_zero)
    return Attributes((("relu",),) if rectified else (), scales=scales, zero_points=zeros or None)


def channels_last(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Descriptor:
    """Return the descriptor of a channels-last array of ``shape`` ``[N, C, *S]``."""
    strides: list[int] = []
    step = shape[1]
    for size in reversed(shape[2:]):
        strides.insert(0, step)
        step *= size
    return Descriptor.strided(shape, (step, 1, *strides), dtype)


def _takes(x: Array, weight: Array, scale: Array, bias: Array | None) -> bool:
    """Whether the kernels support these dtypes, strides and sizes; the reference raises for invalid ones."""
    rows = scale.shape == weight.shape[:1] and (bias is None or bias.shape == weight.shape[:1])
    floats = all(a is None or (a.dtype is _FLOAT and a.flags.c_contiguous) for a in (scale, bias))
    return bool(rows and floats and weight.dtype == _INT8 and weight.size and x.size) and (
        math.prod(weight.shape[1:]) <= LONGEST and x.dtype in (_BYTE, _FLOAT) and representable(x)
    )


def takes_rows(x: Array, weight: Array, scale: Array, bias: Array | None) -> bool:
    """Whether the kernels of ``int8_linear`` support the arrays."""
    fits = weight.ndim == 2 and x.ndim > 1 and x.shape[-1] == weight.shape[1]
    return fits and _takes(x, weight, scale, bias)


def takes_images(x: Array, weight: Array, scale: Array, bias: Array | None) -> bool:
    """Whether the kernels of ``int8_conv`` support the arrays."""
    return x.ndim > 2 and _takes(x, weight, scale, bias)


def linear(rows: Array, weight: Array, biased: bool, steps: Steps) -> Static | LinearWords | None:
    """Return the product for a matrix ``rows``; None where there is no exact kernel."""
    if weight.shape[1] > LONGEST:
        return None
    product = _linear_by_onednn(rows, weight, biased, steps)
    return _linear_by_words(rows, weight, biased, steps) if product is None and integer.usable() else product


def _linear_by_onednn(rows: Array, weight: Array, biased: bool, steps: Steps) -> Static | None:
    x_step, x_zero, out_step, out_zero, relu = steps
    columns, inner = weight.shape
    target = Descriptor.rows((rows.shape[0], columns), _FLOAT if out_step is None else _BYTE)
    primitive = exact(
        "matmul",
        Descriptor.rows(rows.shape, _BYTE),
        Descriptor.any((inner, columns), _INT8),
        Descriptor.rows((1, columns), _FLOAT) if biased else None,
        target,
        attributes=_attributes(1 << 1, x_zero, out_step, out_zero, relu),
    )
    if primitive is None:
        return None
    window = Descriptor.strided((inner, columns), (1, inner), _INT8)
    numbers = (x_step, x_zero, out_step, out_zero, columns, biased)
    return Static(primitive, Descriptor.of(rows), target, rows.dtype != _BYTE, numbers, window)


def _linear_by_words(rows: Array, weight: Array, biased: bool, steps: Steps) -> LinearWords:
    del biased  # the code adds zeros where there is no bias
    return LinearWords(rows.shape[0], weight.shape[1], weight.shape[0], steps)


def _linear_kernel(make: Callable[[Array, Array, bool, Steps], Static | LinearWords | None]) -> Kernel:
    """The kernel that computes by the products that ``make`` returns; it declines where that is None."""

    def int8_linear(
        x: Array, weight: Array, scale: Array, bias: Array | None, *, x_step: float, x_zero: int,
        out_step: float | None, out_zero: int, relu: bool,
    ) -> Array:  # fmt: skip
        steps = (x_step, x_zero, out_step, out_zero, relu)
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        key = (make, rows.shape, x.dtype, weight.shape, bias is None, steps)
        ready = _cache.get(key, make, rows, weight, bias is not None, steps)
        if ready is None:
            return NotImplemented
        out = np.empty((rows.shape[0], weight.shape[0]), _FLOAT if out_step is None else _BYTE)
        ready(rows, weight, scale, bias, out)
        return out if x.ndim == 2 else out.reshape(*x.shape[:-1], weight.shape[0])

    return int8_linear


linear_by_onednn, linear_by_generated = _linear_kernel(_linear_by_onednn), _linear_kernel(_linear_by_words)


def linear_available() -> Availability:
    """Whether oneDNN has an exact product here."""
    rows, weight = np.zeros((16, 64), np.uint8), np.zeros((32, 64), np.int8)
    return has_exact_kernel(lambda: _linear_by_onednn(rows, weight, True, (1.0, 0, None, 0, False)))


def convolution(shapes: Shapes, biased: bool, steps: Steps, geometry: Geometry) -> Primitive | None:
    """Return the primitive for the shapes of input, weight and result; None where oneDNN has no exact one."""
    x, weight, out = shapes
    if math.prod(weight[1:]) > LONGEST:
        return None
    _, x_zero, out_step, out_zero, relu = steps
    stride, padding, dilation, groups = geometry
    problem = Problem(x, weight, out, _INT8, stride, padding, dilation, groups)
    return exact(
        "convolution_forward", c.FORWARD_INFERENCE, c.ALGORITHMS["convolution_direct"],
        channels_last(x, _BYTE), problem.any_weight(), Descriptor.rows((out[1],), _FLOAT) if biased else None,
        channels_last(out, _FLOAT if out_step is None else _BYTE), *problem.geometry,
        # The axis of the filters, and that of the groups.
        attributes=_attributes(1 if problem.groups == 1 else 3, x_zero, out_step, out_zero, relu),
    )  # fmt: skip


def bound_convolution(
    source: Descriptor, target: Descriptor, quantizes: bool, shapes: Shapes, biased: bool, steps: Steps,
    geometry: Geometry,
) -> Static | ConvolutionWords | None:  # fmt: skip
    """Return the convolution between arrays with these descriptors; None where there is no exact kernel."""
    compute = _convolution_by_onednn(source, target, quantizes, shapes, biased, steps, geometry)
    if compute is None and _words_support(shapes, geometry):
        return _convolution_by_words(source, target, quantizes, shapes, biased, steps, geometry)
    return compute


def _convolution_by_onednn(
    source: Descriptor, target: Descriptor, quantizes: bool, shapes: Shapes, biased: bool, steps: Steps,
    geometry: Geometry,
) -> Static | None:  # fmt: skip
    primitive = convolution(shapes, biased, steps, geometry)
    if primitive is None:
        return None
    (outputs, *filters), groups = shapes[1], geometry[3]
    window = Descriptor.rows(shapes[1] if groups == 1 else (groups, outputs // groups, *filters), _INT8)
    return Static(primitive, source, target, quantizes, (*steps[:4], shapes[2][1], biased), window)


def _convolution_by_words(
    source: Descriptor, target: Descriptor, quantizes: bool, shapes: Shapes, biased: bool, steps: Steps,
    geometry: Geometry,
) -> ConvolutionWords:  # fmt: skip
    del biased  # the code adds zeros where there is no bias
    last = source == channels_last(shapes[0], _FLOAT if quantizes else _BYTE)
    plain = target != channels_last(shapes[2], _FLOAT if steps[2] is None else _BYTE)
    return ConvolutionWords(shapes, steps, geometry, last, plain)


def is_supported(shapes: Shapes, biased: bool, steps: Steps, geometry: Geometry) -> bool:
    """Whether there is an exact kernel, of oneDNN or generated."""
    return convolution(shapes, biased, steps, geometry) is not None or _words_support(shapes, geometry)


def _words_support(shapes: Shapes, geometry: Geometry) -> bool:
    return math.prod(shapes[1][1:]) <= LONGEST and words_are_supported(shapes[1], geometry[3])


def words_support(weight: Array, groups: int) -> bool:
    """Whether generated code is worth using for the filters of a convolution."""
    return words_are_supported(weight.shape, groups)


class _Ready(NamedTuple):
    """A convolution, shape and dtype of the array that it writes, and the transposition to the result's axes,
    or None."""

    compute: Static | ConvolutionWords
    shape: tuple[int, ...]
    dtype: np.dtype
    axes: tuple[int, ...] | None


def _conv_kernel(make: Callable[..., Static | ConvolutionWords | None]) -> Kernel:
    """Return the kernel that computes by the convolution that ``make`` returns, and declines where that is
    None. ``make`` has the signature of ``bound_convolution``."""

    def prepare(
        x: Array, weight: Array, scale: Array, bias: Array | None, attrs: Attrs, geometry: Geometry
    ) -> _Ready | None:
        shape = _conv.infer(x, weight, scale, bias, **attrs).shape
        if not math.prod(shape):
            return None
        steps: Steps = tuple(attrs[name] for name in STEPS)
        quantized = steps[2] is not None
        target = channels_last(shape, _BYTE) if quantized else Descriptor.rows(shape, _FLOAT)
        shapes, quantizes = (x.shape, weight.shape, shape), x.dtype != _BYTE
        ready = make(Descriptor.of(x), target, quantizes, shapes, bias is not None, steps, geometry)
        if ready is None:
            return None
        if not quantized:
            return _Ready(ready, shape, _FLOAT, None)
        return _Ready(ready, (shape[0], *shape[2:], shape[1]), _BYTE, (0, x.ndim - 1, *range(1, x.ndim - 1)))

    def int8_conv(
        x: Array, weight: Array, scale: Array, bias: Array | None, *, x_step: float, x_zero: int,
        out_step: float | None, out_zero: int, relu: bool, stride: Sizes, padding: Sizes, dilation: Sizes,
        groups: int,
    ) -> Array:  # fmt: skip
        steps, geometry = (x_step, x_zero, out_step, out_zero, relu), (stride, padding, dilation, groups)
        key = (make, x.shape, x.strides, x.dtype, weight.shape, bias is None, steps, geometry)
        attrs = {
            "x_step": x_step, "x_zero": x_zero, "out_step": out_step, "out_zero": out_zero, "relu": relu,
            "stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
        }  # fmt: skip
        prepared = _cache.get(key, prepare, x, weight, scale, bias, attrs, geometry)
        if prepared is None:
            return NotImplemented
        ready, shape, dtype, axes = prepared
        out = np.empty(shape, dtype)
        ready(x, weight, scale, bias, out)
        return out if axes is None else out.transpose(axes)

    return int8_conv


conv_by_onednn, conv_by_generated = _conv_kernel(_convolution_by_onednn), _conv_kernel(_convolution_by_words)


def conv_available() -> Availability:
    """Whether oneDNN has an exact convolution here."""
    shapes = ((1, 32, 8, 8), (32, 32, 3, 3), (1, 32, 6, 6))
    geometry = ((1, 1), (0, 0), (1, 1), 1)
    return has_exact_kernel(lambda: convolution(shapes, True, (1.0, 0, None, 0, False), geometry))


__all__ = [
    "STEPS",
    "bound_convolution",
    "channels_last",
    "conv_available",
    "conv_by_generated",
    "conv_by_onednn",
    "is_supported",
    "linear",
    "linear_available",
    "linear_by_generated",
    "linear_by_onednn",
    "takes_images",
    "takes_rows",
    "words_support",
]  # fmt: skip
