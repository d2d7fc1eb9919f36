"""Initialize a model that was built on the meta device: each rank the parts that it has.

All ranks draw the numbers of all modules, one module at a time, in the order of ``model.modules()``. So
weights do not depend on the mesh, and they are those of a model that was built as a whole if its modules
create their parameters in that order.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

from tenon.device import Device
from tenon.distributed.tensor import DTensor
from tenon.errors import ConfigError
from tenon.nn.module import Module
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

#: Methods that set a module's own parameters and buffers, in PyTorch's layers and in tenon's.
METHODS = ("reset_parameters", "_reset_parameters")


def initialize(model: Module, module: Module, device: Device) -> None:
    """Give memory on ``device`` to ``module``, this rank's part of ``model``, and set its parameters.

    ConfigError if a module has parameters or buffers that no ``reset_parameters`` sets.
    """
    resets = {path: _reset_of(path, each) for path, each in model.named_modules() if _own(each)}
    module.to_empty(device=device)
    with no_grad():
        for _, local in _locals(module):
            if local.is_floating_point():
                local.fill_(math.nan)
        here = {id(each) for each in module.modules()}
        for path, each in model.named_modules():
            if path in resets:
                getattr(each if id(each) in here else _alone(each, device), resets[path])()
        for name, local in _locals(module):
            if local.is_floating_point() and local.numel() and bool(local.isnan().all().item()):
                raise ConfigError(
                    f"parallel.meta: {name!r} has no value, as the reset_parameters() of its module does not"
                    " set it. Set it there, or leave parallel.meta out."
                )


def _reset_of(path: str, module: Module) -> str:
    """The name of the method that initializes what ``module`` has besides its children."""
    found = next((name for name in METHODS if callable(getattr(module, name, None))), None)
    if found is None:
        raise ConfigError(
            f"parallel.meta: {path or 'the model'} ({type(module).__name__}) has"
            f" {', '.join(name for name, _ in _own(module))}, and no reset_parameters() that sets them."
            " Define it, or leave parallel.meta out."
        )
    return found


def _own(module: Module) -> list[tuple[str, Tensor]]:
    """The parameters and buffers of ``module`` without those of its children."""
    return [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]


def _locals(module: Module) -> Iterator[tuple[str, Tensor]]:
    """What this rank has of the parameters and buffers, by their names."""
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        yield name, value.detach().to_local() if isinstance(value, DTensor) else value.detach()


def _alone(module: Module, device: Device) -> Module:
    """A copy of ``module`` with memory of its own, which only draws its random numbers."""
    return copy.deepcopy(module).to_empty(device=device, recurse=False)
