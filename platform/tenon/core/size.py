"""``Size``: a tensor's shape, a tuple with torch's repr and ``numel``."""

from __future__ import annotations

import math
from typing import Any


class Size(tuple[int, ...]):
    """``torch.Size([2, 3])``."""

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, key: Any) -> Any:
        item = tuple.__getitem__(self, key)
        return Size(item) if isinstance(key, slice) else item

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other: Any) -> Any:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, other: Any) -> Any:
        return Size(tuple.__mul__(self, other))

    __rmul__ = __mul__

    def __reduce__(self) -> Any:
        return (Size, (tuple(self),))
