"""Sizes, layouts and products of ``winograd.py``: how a convolution is cut, and what is multiplied."""

from __future__ import annotations

import numpy as np

from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.layouts import blocked
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.problems import Problem
from tenon_cpu.onednn.winograd_code import REACH, STEP, WINDOW

FLOAT = np.dtype(np.float32)
#: Multiplications of a tile, and places of a window.
POINTS, PLACES = REACH * REACH, WINDOW * WINDOW
#: Bytes of points that are worked on at a time: what stays in a core's caches.
_PIECE = 5 << 20


def pieces(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[list[tuple[int, int]], int]:
    """First image and count of each piece of the batch, and the most tiles of a piece."""
    images, down, across = source[0], -(-target[2] // STEP), -(-target[3] // STEP)
    each = 4 * POINTS * down * across * (source[1] + target[1])
    count = max(1, min(images, round(_PIECE / each)))
    firsts = range(0, images, count)
    return [(first, min(count, images - first)) for first in firsts], count * down * across


def grid(shape: tuple[int, ...], sizes: tuple[int, ...], padding: tuple[int, ...]) -> dict[str, int]:
    """Words of a table for patches of an array of ``shape``, one for each tile of results of ``sizes``."""
    return {
        "blocks": shape[1] // blocked().block, "height": shape[2], "width": shape[3],
        "down": -(-sizes[0] // STEP), "across": -(-sizes[1] // STEP), "top": padding[0], "left": padding[1],
    }  # fmt: skip


def by_places(problem: Problem, flipped: bool) -> Descriptor:
    """The weight as ``[place, channel, filter]``; ``flipped``: ``[place, filter, channel]``."""
    filters, channels = problem.weight[:2]
    inner = (channels, 1) if flipped else (1, filters)
    each = channels * filters
    return Descriptor.strided(problem.weight, (*inner, WINDOW * each, each), FLOAT)


def products(tiles: int, channels: int, filters: int) -> Primitive:
    """``[tile, point, channel]`` times ``[point, channel, filter]``."""
    return Primitive(
        "matmul",
        Descriptor.strided((POINTS, tiles, channels), (channels, POINTS * channels, 1), FLOAT),
        Descriptor.rows((POINTS, channels, filters), FLOAT),
        None,
        Descriptor.strided((POINTS, tiles, filters), (filters, POINTS * filters, 1), FLOAT),
    )


def sums(tiles: int, channels: int, filters: int, more: bool) -> Primitive:
    """``[tile, point, channel]`` transposed, times ``[tile, point, filter]``; ``more`` adds to what is
    there."""
    return Primitive(
        "matmul",
        Descriptor.strided((POINTS, channels, tiles), (channels, 1, POINTS * channels), FLOAT),
        Descriptor.strided((POINTS, tiles, filters), (filters, POINTS * filters, 1), FLOAT),
        None,
        Descriptor.rows((POINTS, channels, filters), FLOAT),
        attributes=Attributes((("sum",),)) if more else None,
    )
