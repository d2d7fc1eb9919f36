"""PyTorch's path ``nn.modules``: ``nn.modules.module``, ``nn.modules.container``, and every layer by name.

Only re-exports: the base class and the containers are imported here, a layer is looked up in ``tenon.nn``.
"""

from __future__ import annotations

import importlib
from typing import Any

from tenon.compat.finder import is_second_name
from tenon.nn.containers import Container, ModuleDict, ModuleList, Sequential
from tenon.nn.modules import module
from tenon.nn.modules.module import Module
from tenon.nn.parameter_containers import ParameterDict, ParameterList

__all__ = [
    "Container",
    "Module",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "ParameterList",
    "Sequential",
    "container",
    "lazy",
    "module",
]


def __getattr__(name: str) -> Any:  # a layer class, or a module of this package
    if is_second_name(f"{__name__}.{name}") or name == "utils":
        return importlib.import_module(f"{__name__}.{name}")
    from tenon import nn  # nn imports this package first

    layer = getattr(nn, name, None)
    if isinstance(layer, type) and issubclass(layer, Module):
        return layer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
