"""PyTorch's path ``nn.modules.utils``: arguments that may be one number or one per axis."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.nn.state import StateDict

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(n: int, name: str = "parse") -> Callable[[object], tuple[object, ...]]:
    """Return a function that repeats a single value ``n`` times, and returns an iterable as a tuple."""

    def parse(x: object) -> tuple[object, ...]:
        return tuple(x) if isinstance(x, collections.abc.Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = (_ntuple(n) for n in (1, 2, 3, 4))


def _reverse_repeat_tuple(t: tuple[int, ...], n: int) -> list[int]:
    """Return every entry ``n`` times, last entry first."""
    return [x for x in reversed(t) for _ in range(n)]


def consume_prefix_in_state_dict_if_present(state_dict: StateDict, prefix: str) -> None:
    """Strip ``prefix`` (such as ``"module."``) from the keys of ``state_dict`` and its metadata, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in list(metadata):
            if key and (key == prefix.rstrip(".") or key.startswith(prefix)):
                metadata[key[len(prefix) :]] = metadata.pop(key)
