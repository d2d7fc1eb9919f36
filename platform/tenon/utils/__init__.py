"""``torch.utils``: tools for training. Submodules are imported at their first use (``tenon.utils.data``)."""

import importlib
import pkgutil
from types import ModuleType

from tenon.compat.finder import is_second_name
from tenon.tensors.swapping import swap_tensors

__all__ = ["swap_tensors"]


def __getattr__(name: str) -> ModuleType:
    if is_second_name(f"{__name__}.{name}") or name in {
        module.name for module in pkgutil.iter_modules(__path__)
    }:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'tenon.utils' has no attribute {name!r}")
