"""``int8_linear`` and ``int8_conv`` on oneDNN's int8 kernels: uint8 in and uint8 or float32 out.

Images lie with their channels last, as these kernels want them: a result of uint8 is the view of such memory
whose axes are in the usual order, and the next convolution takes it where it lies. A result of float32 is
contiguous. Scales, zero points, bias and rectifier are part of the kernel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import int8_conv as _conv
from tenon.ops import int8_linear as _linear
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.int8 import LONGEST, exact
from tenon_cpu.onednn.int8_packed import PackedWeight, PackedWeights
from tenon_cpu.onednn.primitives import Execution, Primitive, address_of
from tenon_cpu.onednn.problems import Problem

Array = np.ndarray[Any, Any]
_cache = Cache("static int8")
_weights = PackedWeights()
_FLOAT, _BYTE, _INT8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)


class _Ready:
    """A primitive, the reorder before it where it needs one, and after it where float32 images come out."""

    def __init__(self, made: Primitive, x: Array, numbers: Any, window: Any, out: tuple[int, ...]) -> None:
        x_step, x_zero, out_step, out_zero, biased = numbers
        self.layout, self.window = made.layout(c.WEIGHTS), window
        given, wanted = Descriptor.of(x), made.layout(c.SRC)
        self.before: Execution | None = None
        inner: Any = None
        if given != wanted:
            inner = wanted.buffer()
            scales, zeros = ({}, {}) if x.dtype == _BYTE else ({c.DST: 0}, {c.DST: 0} if x_zero else {})
            step = Primitive(
                "reorder", given, wanted, attributes=Attributes(scales=scales, zero_points=zeros)
            )
            self.before = step.execution(
                {c.SRC: None, c.DST: inner, **_constants(c.DST, scales, x_step, x_zero, zeros)}
            )
        self.shape, self.dtype = out, _FLOAT if out_step is None else _BYTE
        self.last = len(out) > 2
        places: dict[int, Any] = {c.SRC: inner, c.WEIGHTS: None, c.DST: None}
        places |= _constants(c.SRC, True, x_step, x_zero, x_zero)
        places[c.SCALES | c.WEIGHTS] = np.ones(out[1], np.float32)
        if out_step is not None:
            places |= _constants(c.DST, True, out_step, out_zero, out_zero)
        if biased:
            places[c.BIAS] = None
        self.after: Execution | None = None
        if self.last and out_step is None:
            buffer = made.layout(c.DST).buffer()
            places[c.DST] = buffer
            plain = Descriptor.rows(out, _FLOAT)
            self.after = Primitive("reorder", made.layout(c.DST), plain).execution(
                {c.SRC: buffer, c.DST: None}
            )
        self.main = made.execution(places)
        self._of: PackedWeight | None = None
        self._packed: Any = None

    def __call__(self, x: Array, weight: Array, scale: Array, bias: Array | None) -> Any:
        """The result of arrays of these shapes."""
        main = self.main
        point = main.set_handle
        if self.before is None:
            point(main.memory(c.SRC), address_of(x))
        else:
            point(self.before.memory(c.SRC), address_of(x))
            self.before()
        found = _weights.get(weight, scale)
        if found is not self._of:
            self._packed, self._of = found.packed(weight, self.layout, self.window), found
            point(main.memory(c.WEIGHTS), self._packed.address)
        point(main.memory(c.SCALES | c.WEIGHTS), address_of(scale))
        if bias is not None:
            point(main.memory(c.BIAS), address_of(bias))
        n, channels, *sizes = self.shape
        out = np.empty((n, *sizes, channels) if self.last and self.after is None else self.shape, self.dtype)
        if self.after is None:
            point(main.memory(c.DST), address_of(out))
            main()
            return np.moveaxis(out, -1, 1) if self.last else out
        main()
        point(self.after.memory(c.DST), address_of(out))
        self.after()
        return out


def _constants(place: int, scaled: Any, step: float, zero: int, shifted: Any) -> dict[int, Any]:
    made: dict[int, Any] = {c.SCALES | place: np.array([step], np.float32)} if scaled else {}
    if shifted:
        made[c.ZERO_POINTS | place] = np.array([zero], np.int32)
    return made


def _attributes(
    per_output: int, x_zero: int, out_step: float | None, out_zero: int, relu: bool
) -> Attributes:
    scales = {c.SRC: 0, c.WEIGHTS: per_output, **({} if out_step is None else {c.DST: 0})}
    zeros = {c.SRC: 0} if x_zero else {}
    zeros |= {c.DST: 0} if out_zero and out_step is not None else {}
    # Without a zero point saturation to uint8 is the rectifier.
    rectified = relu and (out_step is None or out_zero)
    return Attributes((("relu",),) if rectified else (), scales=scales, zero_points=zeros or None)


def channels_last(shape: tuple[int, ...], dtype: Any) -> Descriptor:
    """An array of ``shape`` ``[N, C, *S]`` whose second axis is fastest."""
    strides: list[int] = []
    step = shape[1]
    for size in reversed(shape[2:]):
        strides.insert(0, step)
        step *= size
    return Descriptor.strided(shape, (step, 1, *strides), dtype)


def _plain(x: Array, weight: Array, scale: Array, bias: Array | None) -> bool:
    """Whether the arrays are as kernels take them; wrong ones are for the reference to refuse."""
    rows = scale.shape == weight.shape[:1] and (bias is None or bias.shape == weight.shape[:1])
    floats = all(a is None or (a.dtype is _FLOAT and a.flags.c_contiguous) for a in (scale, bias))
    return bool(rows and floats and weight.dtype == _INT8 and weight.size and x.size) and (
        math.prod(weight.shape[1:]) <= LONGEST and x.dtype in (_BYTE, _FLOAT) and representable(x)
    )


def _linear_ready(x: Array, weight: Array, biased: bool, numbers: Any) -> _Ready | None:
    x_step, x_zero, out_step, out_zero, relu = numbers
    (rows, inner), columns = x.shape, weight.shape[0]
    made = exact(
        "matmul",
        Descriptor.rows((rows, inner), _BYTE),
        Descriptor.any((inner, columns), _INT8),
        Descriptor.rows((1, columns), _FLOAT) if biased else None,
        Descriptor.rows((rows, columns), _FLOAT if out_step is None else _BYTE),
        attributes=_attributes(1 << 1, x_zero, out_step, out_zero, relu),
    )
    window = Descriptor.strided((inner, columns), (1, inner), _INT8)
    shape = (rows, columns)
    return (
        None if made is None else _Ready(made, x, (x_step, x_zero, out_step, out_zero, biased), window, shape)
    )


def int8_linear(
    x: Array, weight: Array, scale: Array, bias: Array | None, *, x_step: float, x_zero: int,
    out_step: float | None, out_zero: int, relu: bool,
) -> Any:  # fmt: skip
    """oneDNN for plain arrays, else the reference."""
    numbers = (x_step, x_zero, out_step, out_zero, relu)
    fits = weight.ndim == 2 and x.ndim > 1 and x.shape[-1] == weight.shape[1]
    if fits and _plain(x, weight, scale, bias):
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        key = (rows.shape, x.dtype, weight.shape, bias is None, numbers)
        ready = _cache.get(key, _linear_ready, rows, weight, bias is not None, numbers)
        if ready is not None:
            return ready(rows, weight, scale, bias).reshape(*x.shape[:-1], weight.shape[0])
    return _linear.forward(
        np,
        x,
        weight,
        scale,
        bias,
        x_step=x_step,
        x_zero=x_zero,
        out_step=out_step,
        out_zero=out_zero,
        relu=relu,
    )


def _conv_ready(
    x: Array, weight: Array, shape: Any, biased: bool, numbers: Any, geometry: Any
) -> _Ready | None:
    x_step, x_zero, out_step, out_zero, relu = numbers
    problem = Problem(x.shape, weight.shape, shape, _INT8, *geometry)
    made = exact(
        "convolution_forward", c.FORWARD_INFERENCE, c.ALGORITHMS["convolution_direct"],
        channels_last(x.shape, _BYTE), problem.any_weight(),
        Descriptor.rows((shape[1],), _FLOAT) if biased else None,
        channels_last(shape, _FLOAT if out_step is None else _BYTE), *problem.geometry,
        # The axis of the filters, and that of the groups.
        attributes=_attributes(1 if problem.groups == 1 else 3, x_zero, out_step, out_zero, relu),
    )  # fmt: skip
    window = Descriptor.rows(problem.window, _INT8)
    return (
        None if made is None else _Ready(made, x, (x_step, x_zero, out_step, out_zero, biased), window, shape)
    )


def int8_conv(
    x: Array, weight: Array, scale: Array, bias: Array | None, *, x_step: float, x_zero: int,
    out_step: float | None, out_zero: int, relu: bool, stride: Any, padding: Any, dilation: Any, groups: int,
) -> Any:  # fmt: skip
    """oneDNN for plain arrays, else the reference."""
    numbers, geometry = (x_step, x_zero, out_step, out_zero, relu), (stride, padding, dilation, groups)
    named = {
        "x_step": x_step, "x_zero": x_zero, "out_step": out_step, "out_zero": out_zero, "relu": relu,
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
    }  # fmt: skip
    shape = _conv.infer(x, weight, scale, bias, **named).shape
    if x.ndim > 2 and math.prod(shape) and _plain(x, weight, scale, bias):
        key = (x.shape, x.strides, x.dtype, weight.shape, bias is None, numbers, geometry)
        ready = _cache.get(key, _conv_ready, x, weight, shape, bias is not None, numbers, geometry)
        if ready is not None:
            return ready(x, weight, scale, bias)
    return _conv.forward(np, x, weight, scale, bias, **named)


KERNELS: dict[str, Kernel] = {"int8_linear": int8_linear, "int8_conv": int8_conv}

__all__ = ["KERNELS"]
