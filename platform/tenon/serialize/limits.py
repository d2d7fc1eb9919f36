"""Limits of what reading a file may cost, in terms of the file's size.

A small file can demand much: a container that refers twice to one that refers twice to another has 2^n
members, constructors can copy the same list over and over, a deflated record states any size. Readers
therefore visit every part once, and what they copy or inflate is subtracted from an ``Allowance``.

Files that describe each value once stay far below. Memory for the parts themselves is not limited: an empty
set is one byte in a file, and 216 in memory.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Sized
from typing import IO

from tenon.errors import CheckpointError
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

#: Bytes that reading any file may take beyond its own, and how many more for each of its bytes.
FREE, FACTOR = 1 << 26, 100
#: The most axes of an array, which are NumPy's.
MAX_AXES = 64
_MAX_KEY_ITEMS = 10_000
#: Bytes of an item of a container, to compare with sizes of files.
_ITEM = 64
#: The same for an item of a key, which takes time but no memory.
_HASHED = 8
_SHOWN = 6
#: Characters of another error's text in a message: of its beginning, and of its end.
_QUOTED, _END = 500, 150


class Allowance:
    """The bytes that readers may still copy or inflate for a file of ``size`` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._left = FREE + FACTOR * size

    @classmethod
    def of(cls, file: IO[bytes]) -> Allowance:
        """Return the allowance for what follows the current position of ``file``."""
        position = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(position)
        return cls(max(end - position, 0))

    def take(self, nbytes: int) -> None:
        """Subtract ``nbytes``; ``CheckpointError`` if they are more than is left."""
        self._left -= nbytes
        if self._left < 0:
            raise CheckpointError(
                f"its contents would take more than {FACTOR} times the file's {self.size:,} bytes of memory"
            )

    def take_copy(self, value: object) -> None:
        """Subtract what a copy of ``value``, a string, bytes or a container, takes."""
        if isinstance(value, Sized) and not isinstance(value, Tensor):
            self.take(len(value) * (1 if isinstance(value, (str, bytes, bytearray)) else _ITEM))


def check_key(key: object, allowance: Allowance | None = None) -> None:
    """Raise unless ``key`` is hashable, and quickly: in nested tuples it may have 10,000 items.

    Tuples that several dicts refer to are hashed by each, so that their items are subtracted from
    ``allowance``.
    """
    budget, pending = _MAX_KEY_ITEMS, [key]
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor) or type(value) in (list, dict, set, OrderedDict, Counter, bytearray):
            raise TypeError(f"a {type(value).__name__} as a key")
        if type(value) is tuple or type(value) is Size or type(value) is frozenset:
            budget -= len(value)
            if budget < 0:
                raise ValueError("a key of too many parts")
            pending.extend(value)
    if allowance is not None and budget < _MAX_KEY_ITEMS:
        allowance.take((_MAX_KEY_ITEMS - budget) * _HASHED)


def check_axes(*sizes: tuple[int, ...]) -> None:
    """Raise unless shapes and strides are numbers that arithmetic is quick with: 64 axes of 63 bits each."""
    for numbers in sizes:
        if len(numbers) > MAX_AXES or any(type(n) is not int or not 0 <= n < 1 << 63 for n in numbers):
            raise CheckpointError(f"a tensor has the impossible shape or strides {short(numbers)}")


def short(value: object) -> str:
    """Return ``value`` for a message, in bounded time: containers may have more members than memory.

    >>> short(("storage", [1, 2], 3))
    "('storage', a list, 3)"
    """
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_single(item) for item in value[:_SHOWN])
        more = f", ... {len(value) - _SHOWN:,} more" if len(value) > _SHOWN else ""
        return f"[{inner}{more}]" if isinstance(value, list) else f"({inner}{more})"
    return _single(value)


def cut(error: BaseException | str) -> str:
    """Return the text of ``error`` for a message: it may quote a name of any length from the file.

    The end is kept, as it is what to do next.

    >>> cut("x" * 2000 + " Take another.")[480:520], cut("x" * 2000 + " Take another.")[-20:]
    ('xxxxxxxxxxxxxxxxxxxx ... 1,364 more ... ', 'xxxxxx Take another.')
    """
    text = str(error)
    left_out = len(text) - _QUOTED - _END
    return text if left_out <= 0 else f"{text[:_QUOTED]} ... {left_out:,} more ... {text[-_END:]}"


def _single(value: object) -> str:
    """Return a value that is not a container for a message, or else its type."""
    if isinstance(value, (str, bytes)):
        return repr(value[:80])
    if value is None or isinstance(value, (bool, int, float, complex)):
        return f"{value!r:.80}"
    return f"a {type(value).__name__}"
