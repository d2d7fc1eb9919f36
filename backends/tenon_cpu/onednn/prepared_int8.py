"""int8 products, convolutions and pooling in compiled programs, written to the program's arrays.

Images keep the layout ``LAST`` from layer to layer, uint8 and float32 ones alike, so that the sum of two
branches and its relu need no transposition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.extend import Attrs, Aval, Operand, Thunk
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.descriptors import Descriptor, representable
from tenon_cpu.onednn.int8 import Steps
from tenon_cpu.onednn.int8_dynamic import product
from tenon_cpu.onednn.int8_pooling import pool
from tenon_cpu.onednn.int8_static import STEPS, bound_convolution, is_supported, linear
from tenon_cpu.onednn.layouts import LAST, PLAIN, Assigned, Layout
from tenon_cpu.onednn.problems import Geometry

_GEOMETRY = ("stride", "padding", "dilation", "groups")


def _split(attrs: Attrs) -> tuple[Steps, Geometry]:
    return tuple(attrs[n] for n in STEPS), tuple(attrs[n] for n in _GEOMETRY)


def preferred_convolution_layouts(
    ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs
) -> Assigned | None:
    """Channels last on both sides, where there is a kernel."""
    shapes = (tuple(ins[0].shape), tuple(ins[1].shape), tuple(outs[0].shape))
    if len(shapes[0]) < 3 or not all(np.prod(s) for s in shapes):
        return None
    if not is_supported(shapes, ins[3] is not None, *_split(attrs)):
        return None
    return Assigned((LAST, *(PLAIN,) * (len(ins) - 1)), (LAST,))


def preferred_pool_layouts(ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs) -> Assigned | None:
    """Channels last on both sides, where there is a kernel."""
    shapes = tuple(ins[0].shape), tuple(outs[0].shape)
    usable = np.prod(shapes[0]) and pool(*shapes, **attrs) is not None
    return Assigned((LAST,), (LAST,)) if usable else None


def _described(array: np.ndarray, layout: Layout) -> Descriptor:
    return Descriptor.of(array) if layout == PLAIN else layout.descriptor(array.shape, array.dtype)


def _are_readable(ins: Sequence[Operand], out: np.ndarray) -> bool:
    """Whether all operands are arrays that oneDNN can read, scale and bias contiguous float32."""
    x, weight, scale, bias = ins
    if not all(isinstance(a, np.ndarray) for a in (x, weight, scale)) or not representable(x):
        return False
    fits = all(a is None or (str(a.dtype) == "float32" and a.flags.c_contiguous) for a in (scale, bias))
    return fits and str(weight.dtype) == "int8" and representable(out)


def prepare_convolution(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``int8_conv``."""
    (x, weight, scale, bias), out = ins, outs[0]
    if not _are_readable(ins, out):
        return None
    steps, geometry = _split(attrs)
    ready = bound_convolution(
        _described(x, layouts.inputs[0]), _described(out, layouts.outputs[0]), str(x.dtype) != "uint8",
        (x.shape, weight.shape, out.shape), bias is not None, steps, geometry,
    )  # fmt: skip
    return None if ready is None else lambda: ready(x, weight, scale, bias, out)


def prepare_linear(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``int8_linear``."""
    (x, weight, scale, bias), out = ins, outs[0]
    if not _are_readable(ins, out) or not (x.flags.c_contiguous and out.flags.c_contiguous):
        return None
    rows = x.reshape(-1, x.shape[-1])
    ready = linear(rows, weight, bias is not None, tuple(attrs[n] for n in STEPS))
    return None if ready is None else lambda: ready(rows, weight, scale, bias, out)


def prepare_dynamic(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``int8_dynamic_linear``."""
    (x, weight, scale, bias), out = ins, outs[0]
    if (
        not _are_readable(ins, out)
        or not x.flags.carray
        or not out.flags.c_contiguous
        or str(x.dtype) != "float32"
    ):
        return None
    rows = x.reshape(-1, x.shape[-1])
    ready = product(rows.shape[0], rows.shape[1], weight.shape[0], bias is not None)
    return None if ready is None else lambda: ready(rows, weight, scale, bias, out)


def prepare_pool(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``int8_max_pool`` of channels-last images."""
    if layouts.all_plain:
        return None
    ready = pool(ins[0].shape, outs[0].shape, **attrs)
    if ready is None:
        return None
    ready.bind(c.SRC, ins[0])
    ready.bind(c.DST, outs[0])
    return ready.call()


PREPARE = {
    "int8_conv": prepare_convolution,
    "int8_linear": prepare_linear,
    "int8_dynamic_linear": prepare_dynamic,
    "int8_max_pool": prepare_pool,
}

__all__ = ["PREPARE", "preferred_convolution_layouts", "preferred_pool_layouts"]
