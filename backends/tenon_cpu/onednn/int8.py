"""Products of 8-bit integers with weights that are packed once, scaled to float32.

``x`` stands for ``(x - zero_point) * scale``, the weight for ``weight * weight.scale``. Sums are exact 32-bit
integers; without oneDNN, or where it has no kernel, float64 gives the same integers.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from tenon.extend import errors
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.library import OneDnnError
from tenon_cpu.onednn.primitives import Execution, Primitive, packed
from tenon_cpu.onednn.runtime import Buffer, available

_cache = Cache("int8 matmul")
_PER_COLUMN = 1 << 1
#: Kernels by their names.
_EXACT = re.compile("vnni|amx")
#: The largest count of products whose sum certainly fits 32 bits: 255 * 128 each.
LONGEST = (2**31 - 1) // (255 * 128)


class Int8Weight:
    """``values`` int8 ``[K, N]`` and their ``scale``, one number or ``[N]``, ready to be multiplied.

    The values are copied: later changes of the array do not reach it.
    """

    def __init__(self, values: np.ndarray[Any, Any], scale: Any) -> None:
        if values.dtype != np.int8 or values.ndim != 2 or not values.size:
            raise errors.ShapeError(
                f"Int8Weight takes int8 values of 2 axes (K, N), got {values.dtype}{list(values.shape)}."
                " Quantize the weight first, and transpose one of (out, in)."
            )
        scale = np.asarray(scale, np.float32)
        if scale.shape not in ((), values.shape[1:]):
            raise errors.ShapeError(
                f"Int8Weight: scale has shape {list(scale.shape)} for values {list(values.shape)}; give one"
                f" number or {values.shape[1]}, one for each column."
            )
        if values.shape[0] > LONGEST:
            raise errors.ShapeError(
                f"Int8Weight: sums over {values.shape[0]} products may pass 32 bits; at most {LONGEST}. Cut"
                " the weight along its first axis."
            )
        self.shape: tuple[int, int] = values.shape
        self.values = np.array(values, order="C")
        self.scale = np.ascontiguousarray(np.broadcast_to(scale, values.shape[1:]))
        self._packed: list[tuple[Descriptor, Buffer]] = []

    def packed(self, layout: Descriptor) -> Buffer:
        """The values in ``layout``; the numbers of rows that ask for one layout share its copy."""
        for known, buffer in self._packed:
            if known == layout:
                return buffer
        buffer = packed(self.values, layout)
        self._packed.append((layout, buffer))
        return buffer


def int8_matmul(
    x: np.ndarray[Any, Any],
    weight: Int8Weight,
    scale: float,
    *,
    zero_point: int = 0,
    bias: np.ndarray[Any, Any] | None = None,
) -> np.ndarray[Any, Any]:
    """``(x - zero_point) * scale @ weight + bias`` in float32, ``x`` int8 or uint8 ``[..., K]``."""
    if x.dtype not in (np.int8, np.uint8) or not x.ndim or x.shape[-1] != weight.shape[0]:
        raise errors.ShapeError(
            f"int8_matmul: x is {x.dtype}{list(x.shape)}, the weight int8{list(weight.shape)}. x must be int8"
            " or uint8 and its last axis as long as the weight's first."
        )
    if bias is not None and (bias.dtype != np.float32 or bias.shape != weight.shape[1:]):
        raise errors.ShapeError(
            f"int8_matmul: bias is {bias.dtype}{list(bias.shape)}; give float32[{weight.shape[1]}]."
        )
    rows = np.ascontiguousarray(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])
    shape = (*x.shape[:-1], weight.shape[1])
    ready = None
    if rows.size and available():
        key = (rows.shape, x.dtype.char, weight.shape, bias is None, zero_point == 0)
        ready = _cache.get(key, _prepare, rows, weight, bias, zero_point)
    if ready is None:
        return _by_numpy(rows, weight, scale, zero_point, bias).reshape(shape)
    out = np.empty((rows.shape[0], weight.shape[1]), np.float32)
    execution, layout = ready
    numbers = {c.SCALES | c.SRC: np.array([scale], np.float32)}
    if zero_point:
        numbers[c.ZERO_POINTS | c.SRC] = np.array([zero_point], np.int32)
    execution.bind(c.SRC, rows)
    execution.bind(c.WEIGHTS, weight.packed(layout))
    execution.bind(c.SCALES | c.WEIGHTS, weight.scale)
    execution.bind(c.DST, out)
    if bias is not None:
        bias = np.ascontiguousarray(bias)
        execution.bind(c.BIAS, bias)
    for position, number in numbers.items():
        execution.bind(position, number)
    execution()
    execution.release()
    return out.reshape(shape)


def exact(kind: str, *parameters: Any, attributes: Attributes) -> Primitive | None:
    """The primitive, or None where oneDNN has no fast one whose sums are exact.

    Without VNNI or AMX it adds two products in 16 bits, and takes what does not fit for the largest number.
    """
    try:
        made = Primitive(kind, *parameters, attributes=attributes)
    except OneDnnError as error:
        if error.unimplemented:
            return None
        raise
    return made if not made.reference and _EXACT.search(made.implementation) else None


def _prepare(
    rows: np.ndarray[Any, Any], weight: Int8Weight, bias: Any, zero_point: int
) -> tuple[Execution, Descriptor] | None:
    attributes = Attributes(
        scales={c.SRC: 0, c.WEIGHTS: _PER_COLUMN}, zero_points={c.SRC: 0} if zero_point else None
    )
    columns = weight.shape[1]
    made = exact(
        "matmul",
        Descriptor.of(rows),
        Descriptor.any(weight.shape, np.int8),
        None if bias is None else Descriptor.rows((1, columns), np.float32),
        Descriptor.rows((rows.shape[0], columns), np.float32),
        attributes=attributes,
    )
    if made is None:
        return None
    one = np.ones(1, np.float32)
    places: dict[int, Any] = {c.SRC: None, c.WEIGHTS: None, c.DST: None}
    places |= {c.SCALES | c.SRC: one, c.SCALES | c.WEIGHTS: weight.scale}
    if bias is not None:
        places[c.BIAS] = None
    if zero_point:
        places[c.ZERO_POINTS | c.SRC] = np.zeros(1, np.int32)
    return made.execution(places), made.layout(c.WEIGHTS)


def _by_numpy(rows: Any, weight: Int8Weight, scale: float, zero_point: int, bias: Any) -> Any:
    sums = (rows.astype(np.float64) - zero_point) @ weight.values.astype(np.float64)
    made = (sums * (np.float64(scale) * weight.scale)).astype(np.float32)
    return made if bias is None else made + bias
