"""PyTorch's ``torch.fx.experimental``."""

from __future__ import annotations

from types import ModuleType

from tenon.fx.submodules import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
