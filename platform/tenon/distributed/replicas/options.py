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
    """UnsupportedError for the first option that was given a value."""
    for name, value in options.items():
        if value is not None:
            raise UnsupportedError(f"DistributedDataParallel: {name} is not supported. Leave it out.")


def is_own_device(given: int | str | Device, module: Module) -> bool:
    """Whether ``given``, a device or the index of a GPU, is where the parameters of ``module`` are."""
    own = next(module.parameters()).device
    return own.index == given if isinstance(given, int) else own == Device(given)


def warn_without_effect(**asked: bool) -> None:
    """Name the options that were asked for and change nothing here, once a process."""
    for name in (name for name, wanted in asked.items() if wanted):
        warn_once(f"DistributedDataParallel: {name} has no effect in tenon. {_INSTEAD[name]}", stacklevel=4)
