"""Names for annotations of what Tensor's methods and tenon's functions take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

#: A Python or NumPy number or boolean.
Number: TypeAlias = complex | np.number | np.bool_
#: One size, or all of them: ``zeros(2, 3)`` and ``zeros((2, 3))``. Tensors of one integer are sizes too.
SizeLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
#: One axis, several, or None for all.
Axes: TypeAlias = int | Sequence[int] | None
#: The memo of ``copy.deepcopy``: copies by the ``id`` of the original, and what classes add under other keys.
Memo: TypeAlias = dict[Any, Any]
