"""PyTorch's options of ``DistributedDataParallel`` that tenon refuses, or that change nothing."""

from __future__ import annotations

from tenon.device import Device
from tenon.errors import UnsupportedError
from tenon.nn.module import Module
from tenon.tensors.alerts import warn_once

#: What to do in place of options that have no effect.
_INSTEAD = {
    "device_ids": "Move the module with .to(device) before it is wrapped, and inputs before the call.",
    "output_device": "Outputs stay on the module's device; move them with .to(device).",
    "dim": "Each rank runs its own batch whole; leave it out.",
    "check_reduction": "Ranks always check that they reduce the same gradients; leave it out.",
    "skip_all_reduce_unused_params": "Unused parameters are reduced within their bucket; leave it out.",
    "batched_grad_copy": "Gradients are views of their buckets, so that nothing is copied; leave it out.",
}


def refuse_unsupported(**options: object) -> None:
    """Raise ``UnsupportedError`` for the first option whose value is not None."""
    for name, value in options.items():
        if value is not None:
            raise UnsupportedError(f"DistributedDataParallel: {name} is not supported. Leave it out.")


def is_own_device(device: int | str | Device, module: Module) -> bool:
    """Whether the parameters of ``module`` are on ``device``, which may be the index of a GPU."""
    own = next(module.parameters()).device
    return own.index == device if isinstance(device, int) else own == Device(device)


def warn_without_effect(**requested: bool) -> None:
    """Warn, once per process, of each requested option, as it has no effect here."""
    for name in (name for name, value in requested.items() if value):
        warn_once(f"DistributedDataParallel: {name} has no effect in tenon. {_INSTEAD[name]}", stacklevel=4)
