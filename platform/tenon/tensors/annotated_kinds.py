"""What the annotation of a parameter allows besides tensors, by its text, and what PyTorch calls that.

``wrong_arguments.py`` asks after a call has failed, so that an argument of the wrong kind is named instead
of the error that it led to. Only values that the annotation rules out count: a number of any library is a
number, a tensor or array of one element may stand for it, and flags may be anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tenon.dtypes import dtype


class Kind(NamedTuple):
    """A test of a value, and its name in PyTorch's errors."""

    allows: Callable[[object], bool]
    words: str


def _is_none(value: object) -> bool:
    return value is None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_single(value: object) -> bool:
    return getattr(value, "ndim", 0) == 0 or getattr(value, "size", None) == 1


def _is_whole(value: object) -> bool:
    return hasattr(type(value), "__index__") and _is_single(value)


def _is_real(value: object) -> bool:
    return _is_whole(value) or (hasattr(type(value), "__float__") and _is_single(value))


def _is_number(value: object) -> bool:
    return _is_real(value) or (hasattr(type(value), "__complex__") and _is_single(value))


def _are_whole(value: object) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return all(map(_is_whole, value))
    return _is_whole(value) or hasattr(value, "ndim")  # a tensor of sizes


def _is_dtype(value: object) -> bool:
    return isinstance(value, (dtype, np.dtype, type, str))


_INTEGERS = Kind(_are_whole, "tuple of ints")
#: Parts of annotations.
_KINDS = {
    "None": Kind(_is_none, "None"),
    "str": Kind(_is_text, "str"),
    "int": Kind(_is_whole, "int"),
    "float": Kind(_is_real, "float"),
    "complex": Kind(_is_number, "Number"),
    "Number": Kind(_is_number, "Number"),
    **dict.fromkeys(("Sequence[int]", "list[int]", "tuple[int, ...]", "PerAxis", "SizeLike"), _INTEGERS),
    **dict.fromkeys(("DTypeLike", "dtype", "dtypes.dtype"), Kind(_is_dtype, "torch.dtype")),
}
#: Names of types -> the parts for which they stand.
_NAMED = {"Axes": "None | Sequence[int]"}


@functools.cache
def kind_of(annotation: str) -> Kind | None:
    """The kind that ``annotation`` states; None if that may be anything, or has parts that are not known."""
    kinds = [_KINDS.get(part) for part in _NAMED.get(annotation, annotation).split(" | ")]
    if None in kinds or not kinds:
        return None
    known = [kind for kind in kinds if kind is not None]
    last = next(kind for kind in reversed(known) if kind.words != "None")
    return Kind(lambda value: any(kind.allows(value) for kind in known), last.words)
