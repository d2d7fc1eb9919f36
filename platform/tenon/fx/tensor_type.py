"""Types of tensors that state their sizes, with ``Dyn`` for unknown ones."""

from __future__ import annotations

from typing import Any

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class TensorType:
    """The type of tensors with given sizes: ``TensorType((1, 2, Dyn))``."""

    def __init__(self, dim: Any) -> None:  # sizes: integers, Dyn, variables
        self.__origin__ = TensorType
        self.__args__ = dim

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and list(self.__args__) == list(other.__args__)

    __hash__ = object.__hash__

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:  # sizes
        if len(args) == 1 and isinstance(args[0], tuple):
            args = args[0]
        return TensorType(tuple(args))


class _DynType:
    """The unknown type."""

    def __init__(self) -> None:
        self.__name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DynType)

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return "Dyn"

    __repr__ = __str__


Dyn = _DynType()


def _both_lists(first: Any, second: Any) -> bool:  # types
    return isinstance(first, TensorType) and isinstance(second, TensorType)


def is_consistent(t1: Any, t2: Any) -> bool:  # types
    """Whether two types are equal wherever both are known.

    >>> is_consistent(TensorType((1, Dyn)), TensorType((1, 5)))
    True
    """
    if t1 == t2 or Dyn in (t1, t2):
        return True
    if not _both_lists(t1, t2) or len(t1.__args__) != len(t2.__args__):
        return False
    return all(map(is_consistent, t1.__args__, t2.__args__))


def is_more_precise(t1: Any, t2: Any) -> bool:  # types
    """Whether ``t1`` is at least as precise as ``t2``."""
    if t1 == t2 or t2 == Dyn:
        return True
    if not _both_lists(t1, t2) or len(t1.__args__) != len(t2.__args__):
        return False
    return all(map(is_more_precise, t1.__args__, t2.__args__))
