"""Modules that may be there or not: PyTorch's path ``torch.utils._import_utils``."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType

__all__ = ["check_module_exists", "dill_available", "import_dill"]


def check_module_exists(name: str) -> bool:
    """Whether a module could be imported; it is not, though a package around it is."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # the package around it is not there
        return False


_check_module_exists = check_module_exists


@functools.lru_cache
def dill_available() -> bool:
    """Whether ``dill`` could be imported."""
    return check_module_exists("dill")


@functools.lru_cache
def import_dill() -> ModuleType | None:
    """``dill``, which leaves Python's own pickle as it is; None if it is not installed."""
    if not dill_available():
        return None
    dill = importlib.import_module("dill")
    dill.extend(use_dill=False)  # importing it changes what the pickle module can do
    return dill
