"""Collectives with gradients, under torch's module names."""

from __future__ import annotations

import importlib
from typing import Any

_FUNCTIONS = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
)


def __getattr__(name: str) -> Any:  # a function of ``functional``, which this module has too in torch
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f"{__name__}.functional"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
