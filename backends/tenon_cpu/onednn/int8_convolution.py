"""Convolutions of 8-bit integers with weights that are packed once, scaled to float32: see ``int8.py``.

What lies beyond the edge stands for 0, so for ``zero_point`` in ``x``. Sums are exact 32-bit integers;
without oneDNN, or where it has no kernel, float64 gives the same integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import errors
from tenon.ops import conv
from tenon_cpu.kernels import convolution as numpy_kernels
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.int8 import LONGEST
from tenon_cpu.onednn.library import OneDnnError
from tenon_cpu.onednn.primitives import Execution, Primitive, packed, reorder
from tenon_cpu.onednn.problems import Problem
from tenon_cpu.onednn.runtime import Buffer, available

Array = np.ndarray[Any, Any]
_cache = Cache("int8 convolution")
_INT = np.dtype(np.int8)


class Int8Filter:
    """``values`` int8 ``[O, C / groups, *K]`` and their ``scale``, one number or ``[O]``, ready for use.

    The values are copied: later changes of the array do not reach it.
    """

    def __init__(self, values: Array, scale: Any) -> None:
        if values.dtype != np.int8 or not 3 <= values.ndim <= 5 or not values.size:
            raise errors.ShapeError(
                "Int8Filter takes int8 values of 3 to 5 axes (O, C / groups, *K), got"
                f" {values.dtype}{list(values.shape)}. Quantize the weight first."
            )
        scale = np.asarray(scale, np.float32)
        if scale.shape not in ((), values.shape[:1]):
            raise errors.ShapeError(
                f"Int8Filter: scale has shape {list(scale.shape)} for values {list(values.shape)}; give one"
                f" number or {values.shape[0]}, one for each filter."
            )
        if math.prod(values.shape[1:]) > LONGEST:
            raise errors.ShapeError(
                f"Int8Filter: sums over {math.prod(values.shape[1:])} products may pass 32 bits; at most"
                f" {LONGEST}. Cut the weight along its second axis."
            )
        self.values = np.array(values, order="C")
        self.scale = np.ascontiguousarray(np.broadcast_to(scale, values.shape[:1]))
        self._packed: list[tuple[Descriptor, Buffer]] = []

    def packed(self, layout: Descriptor, window: Descriptor) -> Buffer:
        """The values in ``layout``; ``window`` describes them with the groups as an axis."""
        for known, buffer in self._packed:
            if known == layout:
                return buffer
        buffer = packed(self.values, layout, window)
        self._packed.append((layout, buffer))
        return buffer


def int8_convolution(
    x: Array,
    weight: Int8Filter,
    scale: float,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int = 1,
    zero_point: int = 0,
    bias: Array | None = None,
) -> Array:
    """The convolution of ``(x - zero_point) * scale`` in float32, ``x`` int8 or uint8 ``[N, C, *S]``."""
    filters = weight.values.shape[0]
    if x.dtype not in (np.int8, np.uint8):
        raise errors.ShapeError(f"int8_convolution: x is {x.dtype}{list(x.shape)}; give int8 or uint8.")
    if bias is not None and (bias.dtype != np.float32 or bias.shape != (filters,)):
        raise errors.ShapeError(
            f"int8_convolution: bias is {bias.dtype}{list(bias.shape)}; give float32[{filters}]."
        )
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    shape: tuple[int, ...] = conv.infer(x.view(np.int8), weight.values, **attrs).shape
    ready = None
    if x.size and math.prod(shape) and available():
        key = (x.shape, x.dtype.char, weight.values.shape, stride, padding, dilation, groups)
        ready = _cache.get(
            (*key, bias is None, zero_point == 0), _Ready.of, x, weight, shape, bias, zero_point, attrs
        )
    if ready is None:
        return _by_numpy(x, weight, scale, zero_point, bias, attrs)
    made: Array = ready(np.ascontiguousarray(x), weight, scale, zero_point, bias)
    return made


class _Ready:
    """The primitive with the reorders around it, which point to the arrays of each call."""

    def __init__(self, made: Primitive, problem: Problem, x: Descriptor, biased: bool, shifted: bool) -> None:
        self.problem, self.layout = problem, made.layout(c.WEIGHTS)
        self.window = Descriptor.rows(problem.window, _INT)
        self.inner, self.made = made.layout(c.SRC).buffer(), made.layout(c.DST).buffer()
        out = Descriptor.rows(problem.y, np.float32)
        self.into = reorder(x, made.layout(c.SRC)).execution({c.SRC: None, c.DST: self.inner})
        self.back = reorder(made.layout(c.DST), out).execution({c.SRC: self.made, c.DST: None})
        one, filters = np.ones(1, np.float32), np.ones(problem.y[1], np.float32)
        places: dict[int, Any] = {c.SRC: self.inner, c.WEIGHTS: None, c.DST: self.made}
        places |= {c.SCALES | c.SRC: one, c.SCALES | c.WEIGHTS: filters}
        if biased:
            places[c.BIAS] = None
        if shifted:
            places[c.ZERO_POINTS | c.SRC] = np.zeros(1, np.int32)
        self.main: Execution = made.execution(places)

    @classmethod
    def of(
        cls, x: Array, weight: Int8Filter, shape: Any, bias: Any, zero_point: int, attrs: dict[str, Any]
    ) -> _Ready | None:
        """For arrays of these shapes; None where oneDNN has no kernel."""
        geometry = (attrs["stride"], attrs["padding"], attrs["dilation"], attrs["groups"])
        problem = Problem(x.shape, weight.values.shape, shape, _INT, *geometry)
        each = 1 if problem.groups == 1 else 3  # the axis of the filters, and that of the groups
        attributes = Attributes(
            scales={c.SRC: 0, c.WEIGHTS: each}, zero_points={c.SRC: 0} if zero_point else None
        )
        try:
            made = Primitive(
                "convolution_forward", c.FORWARD_INFERENCE, c.ALGORITHMS["convolution_direct"],
                Descriptor.any(x.shape, x.dtype), problem.any_weight(),
                None if bias is None else Descriptor.rows(bias.shape, np.float32),
                Descriptor.any(shape, np.float32), *problem.geometry, attributes=attributes,
            )  # fmt: skip
        except OneDnnError as error:
            if error.unimplemented:
                return None
            raise
        rows = Descriptor.rows(x.shape, x.dtype)
        return None if made.reference else cls(made, problem, rows, bias is not None, zero_point != 0)

    def __call__(self, x: Array, weight: Int8Filter, scale: float, zero_point: int, bias: Any) -> Array:
        out = np.empty(self.problem.y, np.float32)
        self.into.bind(c.SRC, x)
        self.back.bind(c.DST, out)
        main = self.main
        main.bind(c.WEIGHTS, weight.packed(self.layout, self.window))
        main.bind(c.SCALES | c.WEIGHTS, weight.scale)
        main.bind(c.SCALES | c.SRC, np.array([scale], np.float32))
        if zero_point:
            main.bind(c.ZERO_POINTS | c.SRC, np.array([zero_point], np.int32))
        if bias is not None:
            main.bind(c.BIAS, np.ascontiguousarray(bias))
        for execution in (self.into, main, self.back):
            execution()
        self.into.bind(c.SRC, self.inner)
        self.back.bind(c.DST, self.made)
        return out


def _by_numpy(
    x: Array, weight: Int8Filter, scale: float, zero_point: int, bias: Any, attrs: dict[str, Any]
) -> Array:
    sums = numpy_kernels.conv(x.astype(np.float64) - zero_point, weight.values.astype(np.float64), **attrs)
    each = (1, weight.values.shape[0], *(1,) * (x.ndim - 2))
    made: Array = (sums * (np.float64(scale) * weight.scale).reshape(each)).astype(np.float32)
    return made if bias is None else made + bias.reshape(each)


__all__ = ["Int8Filter", "int8_convolution"]
