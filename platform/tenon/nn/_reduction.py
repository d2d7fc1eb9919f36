"""PyTorch's path ``nn._reduction``: the number of a reduction, by its name."""

from __future__ import annotations

from tenon.errors import OptionError

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """Return the number of a reduction: none 0, mean 1, sum 2.

    >>> get_enum("sum")
    2
    """
    if reduction not in _NUMBERS:
        raise OptionError(f"{reduction} is not a valid value for reduction; use {', '.join(_NUMBERS)}.")
    return _NUMBERS[reduction]
