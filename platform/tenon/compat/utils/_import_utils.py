"""PyTorch's module ``torch.utils._import_utils``: queries for optional modules."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType

__all__ = ["check_module_exists", "dill_available", "import_dill"]


def check_module_exists(name: str) -> bool:
    """Whether a module can be imported, without importing it; its parent packages are imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # a parent package is missing
        return False


_check_module_exists = check_module_exists


@functools.lru_cache
def dill_available() -> bool:
    """Whether ``dill`` is installed."""
    return check_module_exists("dill")


@functools.lru_cache
def import_dill() -> ModuleType | None:
    """Return ``dill``, without its changes to Python's pickle; None if it is not installed."""
    if not dill_available():
        return None
    dill = importlib.import_module("dill")
    dill.extend(use_dill=False)  # undoes the registrations that importing it makes with pickle
    return dill
