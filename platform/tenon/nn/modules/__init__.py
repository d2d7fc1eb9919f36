"""PyTorch's path ``nn.modules``: ``nn.modules.module``, ``nn.modules.container``, and every layer by name.

A face only. The base class and the containers are imported here; a layer is found through ``tenon.nn``.
"""

from __future__ import annotations

import importlib
from typing import Any

from tenon.nn.modules import container, lazy, module
from tenon.nn.modules.container import (
    Container,
    ModuleDict,
    ModuleList,
    ParameterDict,
    ParameterList,
    Sequential,
)
from tenon.nn.modules.module import Module

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


_FACES = frozenset(
    [
        "activation",
        "adaptive",
        "batchnorm",
        "channelshuffle",
        "conv",
        "distance",
        "dropout",
        "flatten",
        "fold",
        "instancenorm",
        "linear",
        "loss",
        "normalization",
        "padding",
        "pixelshuffle",
        "pooling",
        "rnn",
        "sparse",
        "transformer",
        "upsampling",
        "utils",
    ]
)


def __getattr__(name: str) -> Any:
    if name in _FACES:
        return importlib.import_module(f"{__name__}.{name}")
    from tenon import nn  # nn imports this package first

    found = getattr(nn, name, None)
    if isinstance(found, type) and issubclass(found, Module):
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
