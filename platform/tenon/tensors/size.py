"""``Size``: a tensor's shape, a tuple with torch's repr and ``numel``."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any


class Size(tuple[int, ...]):
    """``torch.Size([2, 3])``."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = (), /) -> Size:
        """Integers, and what can be an index, as NumPy's and tensors of one."""
        return tuple.__new__(cls, [n if n.__class__ is int else _whole(n, i) for i, n in enumerate(sizes)])

    def numel(self) -> int:
        """Number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, key: Any) -> Any:
        item = tuple.__getitem__(self, key)
        return Size(item) if isinstance(key, slice) else item

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, tuple):
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Any:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return Size(tuple.__mul__(self, other))

    __rmul__ = __mul__

    def __reduce__(self) -> Any:
        return (Size, (tuple(self),))


def _whole(size: Any, place: int) -> int:
    try:
        return int(operator.index(size))
    except TypeError:
        name = type(size).__name__
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {place} is '{name}')") from None
