"""torch's ``torch.jit.annotations``: types that signatures name for TorchScript."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035 - torch has them here

#: One number or as many: ``BroadcastingList2[int]`` is the annotation ``Any`` here.
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = dict.fromkeys((int, float, bool), Any)
