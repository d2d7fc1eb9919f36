"""``as_strided``: views of a tensor's storage with any strides, and their gradients.

``window`` is ``(shape, strides, offset)`` and ``base`` those of the viewed tensor, all in elements; the
offset is relative to the first element of that tensor.
"""

from __future__ import annotations

import numpy as np

from tenon.compat.saved_readers import part_of
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace
from tenon.ops.dtype_queries import in_float32
from tenon.tensors.storage.untyped import memory_of, strided


def reach(shape: tuple[int, ...], steps: tuple[int, ...], offset: int = 0) -> tuple[int, int]:
    """Return the first address in a window and the one after the last, in elements."""
    if 0 in shape:
        return offset, offset
    return offset, offset + sum((s - 1) * step for s, step in zip(shape, steps, strict=True)) + 1


#: Shape, strides and offset of a view, in elements.
Window = tuple[tuple[int, ...], tuple[int, ...], int]


def _span(window: Window, base: Window) -> tuple[int, int]:
    """Return the range of addresses that covers both."""
    (low, high), (first, last) = reach(*window), reach(*base)
    return min(low, first), max(high, last)


def _addresses(xp: ArrayNamespace, shape: tuple[int, ...], steps: tuple[int, ...], offset: int) -> Array:
    """Return the address of each element, in elements."""
    addresses = xp.full((), offset, np.int64)
    for size, step in zip(shape, steps, strict=True):
        addresses = addresses[..., None] + xp.arange(size) * step
    return addresses


def _shared_evenly(xp: ArrayNamespace, values: Array, addresses: Array, size: int) -> Array:
    """Divide ``values`` by the number of elements that share their address."""
    shared = xp.zeros(size, np.int64)
    xp.add.at(shared, addresses, 1)
    return values if (shared <= 1).all() else (values / shared[addresses]).astype(values.dtype)


class AsStrided(Primitive):
    """The elements of the memory behind ``x`` in the window: a view."""

    kind = Kind.MOVE
    view = True
    saved_names = {
        "size": part_of("window", 0),
        "stride": part_of("window", 1),
        "storage_offset": part_of("window", 2),
    }
    copying_form = True

    def infer(self, x, *, window, base):
        """The window's shape."""
        return Aval(tuple(window[0]), x.dtype)

    def forward(self, xp, x, *, window, base):
        """A view; a copy by ``strided_read`` if the strides of ``x`` are not those of ``base``."""
        shape, steps, offset = window
        size = x.dtype.itemsize
        if tuple(x.strides) != tuple(step * size for step in base[1]):
            return strided_read.forward(xp, x, window=window, base=base)
        memory, start = memory_of(x)
        return strided(xp, memory[start + offset :], shape, tuple(step * size for step in steps))

    def vjp_x(self, f, g, out, x, *, window, base):
        return f.strided_sum(g, window=window, base=base)


class StridedRead(AsStrided):
    """``as_strided`` as a copy, from memory that holds the elements of ``x`` and zeros elsewhere."""

    copying_form = False
    view = False
    saved_names = {}

    @in_float32
    def forward(self, xp, x, *, window, base):
        """Write ``x`` to new memory, then read the window."""
        low, high = _span(window, base)
        memory = xp.zeros(high - low, x.dtype)
        addresses = _addresses(xp, base[0], base[1], -low)
        xp.add.at(memory, addresses, _shared_evenly(xp, x, addresses, high - low))
        shape, steps, offset = window
        return memory[_addresses(xp, shape, steps, offset - low)]


class StridedSum(Primitive):
    """The gradient of the base from that of the window: summed where elements of the window share an address,
    divided equally where elements of the base do."""

    kind = Kind.MOVE

    def infer(self, x, *, window, base):
        """The base's shape."""
        return Aval(tuple(base[0]), x.dtype)

    @in_float32
    def forward(self, xp, x, *, window, base):
        """Add to zeroed memory, then read the base."""
        low, high = _span(window, base)
        memory = xp.zeros(high - low, x.dtype)
        shape, steps, offset = window
        xp.add.at(memory, _addresses(xp, shape, steps, offset - low), x)
        addresses = _addresses(xp, base[0], base[1], -low)
        return _shared_evenly(xp, memory[addresses], addresses, high - low)

    def vjp_x(self, f, g, out, x, *, window, base):
        return f.strided_read(g, window=window, base=base)


as_strided, strided_read, strided_sum = AsStrided(), StridedRead(), StridedSum()
