"""PyTorch's ``torch.jit.annotations``: types in signatures for TorchScript."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035 - PyTorch defines them here

#: One number or several: ``BroadcastingList2[int]`` is the annotation ``Any`` here.
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = dict.fromkeys((int, float, bool), Any)
