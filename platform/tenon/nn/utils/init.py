"""``skip_init``: create a module without its default initialisation."""

from __future__ import annotations

import inspect

from tenon.engine.types import Forwarded
from tenon.errors import ModuleError
from tenon.nn.module import Module, ModuleT


def skip_init(module_cls: type[ModuleT], *args: Forwarded, **kwargs: Forwarded) -> ModuleT:
    """Return ``module_cls(*args, **kwargs)`` with uninitialised parameters and buffers.

    The class must accept ``device``, and its constructor may only initialise parameters, not read them.

    >>> from tenon import nn
    >>> nn.utils.skip_init(nn.Linear, 5, 1).weight.shape
    torch.Size([1, 5])
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise ModuleError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise ModuleError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device="cpu" if device is None else device)
