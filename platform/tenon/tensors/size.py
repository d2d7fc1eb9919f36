"""``Size``: a tensor's shape, a tuple with PyTorch's repr and ``numel``."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex


class Size(tuple[int, ...]):
    """The sizes of a tensor's axes: a tuple of integers, printed as ``torch.Size([2, 3])``."""

    __slots__ = ()

    def __new__(cls, sizes: Iterable[SupportsIndex] = (), /) -> Size:
        """Create a Size of integers, NumPy's integers and tensors of one integer."""
        return tuple.__new__(cls, [n if n.__class__ is int else _integer(n, i) for i, n in enumerate(sizes)])

    def numel(self) -> int:
        """Return the number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, key: Any) -> Any:  # an int, or Size for a slice
        item = tuple.__getitem__(self, key)
        return Size(item) if isinstance(key, slice) else item

    def __add__(self, other: object) -> Size:
        if not isinstance(other, tuple):
            raise TypeError(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size")
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: object) -> Size:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, other: SupportsIndex) -> Size:
        return Size(tuple.__mul__(self, other))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[type[Size], tuple[tuple[int, ...]]]:
        return (Size, (tuple(self),))


def _integer(size: SupportsIndex, position: int) -> int:
    """Return ``size`` as an int; TypeError, naming its ``position``, if it is not an integer."""
    try:
        return int(operator.index(size))
    except TypeError:
        name = type(size).__name__
        raise TypeError(f"torch.Size() takes an iterable of 'int' (item {position} is '{name}')") from None
