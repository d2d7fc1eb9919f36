"""Sizes, layouts and matrix products of ``winograd.py``: how a convolution is divided into pieces."""

from __future__ import annotations

import numpy as np

from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.layouts import blocked
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.problems import Problem
from tenon_cpu.onednn.winograd_code import REACH, STEP, WINDOW

FLOAT = np.dtype(np.float32)
#: Multiplications of a tile, and positions of a window.
POINTS, POSITIONS = REACH * REACH, WINDOW * WINDOW
#: Bounds of a piece, in bytes of its values at the points: it should stay in a core's caches, or, where the
#: weights, which are read for each piece, are larger than that, have three quarters of their size.
_LEAST_PIECE, _MOST_PIECE = 5 << 18, 10 << 20
#: Channels up to which the values of one point are adjacent.
_FEW = 64


def pieces(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[list[tuple[int, int]], int]:
    """Return (first image, count) of each piece of the batch, and the largest number of tiles of a piece."""
    images, down, across = source[0], -(-target[2] // STEP), -(-target[3] // STEP)
    image_bytes = 4 * POINTS * down * across * (source[1] + target[1])
    piece_bytes = max(_LEAST_PIECE, min(_MOST_PIECE, 3 * POINTS * source[1] * target[1]))
    count = max(1, min(images, round(piece_bytes / image_bytes)))
    firsts = range(0, images, count)
    return [(first, min(count, images - first)) for first in firsts], count * down * across


def grid(shape: tuple[int, ...], sizes: tuple[int, ...], padding: tuple[int, ...]) -> dict[str, int]:
    """Return the table's words for patches of an array of ``shape``, one per tile of results of ``sizes``."""
    return {
        "blocks": shape[1] // blocked().block, "height": shape[2], "width": shape[3],
        "down": -(-sizes[0] // STEP), "across": -(-sizes[1] // STEP), "top": padding[0], "left": padding[1],
    }  # fmt: skip


def by_positions(problem: Problem, flipped: bool) -> Descriptor:
    """Return the descriptor of the weight as ``[position, channel, filter]``; ``flipped``:
    ``[position, filter, channel]``."""
    filters, channels = problem.weight[:2]
    inner = (channels, 1) if flipped else (1, filters)
    window_stride = channels * filters
    return Descriptor.strided(problem.weight, (*inner, WINDOW * window_stride, window_stride), FLOAT)


class Points:
    """The layout of the values of ``tiles`` at the points: those of a tile are adjacent, or those of a point.

    The second takes 10 % less time with few channels, and more with many.
    """

    def __init__(self, tiles: int, channels: int, filters: int) -> None:
        self.tiles, self.channels, self.filters = tiles, channels, filters
        self._by_point = max(channels, filters) <= _FEW

    def words(self, width: int) -> dict[str, int]:
        """Return the table's strides of values with ``width`` channels."""
        if self._by_point:
            return {"point": self.tiles * width, "tile": width}
        return {"point": width, "tile": POINTS * width}

    def _values(self, width: int, transposed: bool = False) -> Descriptor:
        point, tile = self.words(width).values()
        if transposed:
            return Descriptor.strided((POINTS, width, self.tiles), (point, 1, tile), FLOAT)
        return Descriptor.strided((POINTS, self.tiles, width), (point, tile, 1), FLOAT)

    def _weight(self) -> Descriptor:
        return Descriptor.rows((POINTS, self.channels, self.filters), FLOAT)

    def products(self) -> Primitive:
        """Return the primitive that multiplies the channels' values by ``[point, channel, filter]``."""
        return Primitive(
            "matmul", self._values(self.channels), self._weight(), None, self._values(self.filters)
        )

    def sums(self, accumulate: bool) -> Primitive:
        """Return the primitive that multiplies the channels' values, transposed, by those of the filters;
        with ``accumulate`` it adds to the output."""
        return Primitive(
            "matmul",
            self._values(self.channels, transposed=True),
            self._values(self.filters),
            None,
            self._weight(),
            attributes=Attributes((("sum",),)) if accumulate else None,
        )
