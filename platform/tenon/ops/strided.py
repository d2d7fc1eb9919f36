"""Views by strides: any window into the memory behind a tensor, and its gradient.

``window`` is ``(shape, steps, offset)`` and ``base`` the shape and steps of the tensor it looks from, all in
elements, the offset counted from that tensor's first one.
"""

from __future__ import annotations

import numpy as np

from tenon.compat.saved_readers import part_of
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace
from tenon.tensors.storage.untyped import memory_of, strided


def reach(shape: tuple[int, ...], steps: tuple[int, ...], offset: int = 0) -> tuple[int, int]:
    """The first place in memory that a window shows, and the one after the last."""
    if 0 in shape:
        return offset, offset
    return offset, offset + sum((s - 1) * step for s, step in zip(shape, steps, strict=True)) + 1


#: Shape, strides and offset of a view, in elements.
Window = tuple[tuple[int, ...], tuple[int, ...], int]


def _span(window: Window, base: Window) -> tuple[int, int]:
    (low, high), (first, last) = reach(*window), reach(*base)
    return min(low, first), max(high, last)


def _places(xp: ArrayNamespace, shape: tuple[int, ...], steps: tuple[int, ...], offset: int) -> Array:
    """Where in memory each element lies."""
    places = xp.full((), offset, np.int64)
    for size, step in zip(shape, steps, strict=True):
        places = places[..., None] + xp.arange(size) * step
    return places


def _evenly(xp: ArrayNamespace, values: Array, places: Array, size: int) -> Array:
    """``values`` divided by how many of them share each place in memory."""
    shared = xp.zeros(size, np.int64)
    xp.add.at(shared, places, 1)
    return values if (shared <= 1).all() else (values / shared[places]).astype(values.dtype)


class AsStrided(Primitive):
    """The elements of the memory behind ``x`` that the window shows: a view."""

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
        """A view; of a copy, if ``x`` does not lie in memory as the base did."""
        shape, steps, offset = window
        size = x.dtype.itemsize
        if tuple(x.strides) != tuple(step * size for step in base[1]):
            return strided_read.forward(xp, x, window=window, base=base)
        memory, start = memory_of(x)
        return strided(xp, memory[start + offset :], shape, tuple(step * size for step in steps))

    def vjp_x(self, f, g, out, x, *, window, base):
        return f.strided_sum(g, window=window, base=base)


class StridedRead(AsStrided):
    """As ``as_strided``, but a copy, of memory that holds ``x`` alone and else zeros."""

    copying_form = False
    view = False
    saved_names = {}

    def forward(self, xp, x, *, window, base):
        """``x`` in memory of its own, then the window."""
        low, high = _span(window, base)
        memory = xp.zeros(high - low, x.dtype)
        places = _places(xp, base[0], base[1], -low)
        xp.add.at(memory, places, _evenly(xp, x, places, high - low))
        shape, steps, offset = window
        return memory[_places(xp, shape, steps, offset - low)]


class StridedSum(Primitive):
    """The gradient of a base from that of the window: summed where elements of the window share a place, cut
    in equal parts where those of the base do."""

    kind = Kind.MOVE

    def infer(self, x, *, window, base):
        """The base's shape."""
        return Aval(tuple(base[0]), x.dtype)

    def forward(self, xp, x, *, window, base):
        """Added up in memory, then read."""
        low, high = _span(window, base)
        memory = xp.zeros(high - low, x.dtype)
        shape, steps, offset = window
        xp.add.at(memory, _places(xp, shape, steps, offset - low), x)
        places = _places(xp, base[0], base[1], -low)
        return _evenly(xp, memory[places], places, high - low)

    def vjp_x(self, f, g, out, x, *, window, base):
        return f.strided_read(g, window=window, base=base)


as_strided, strided_read, strided_sum = AsStrided(), StridedRead(), StridedSum()
