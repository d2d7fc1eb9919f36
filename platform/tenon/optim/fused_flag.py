"""Effects of ``fused=True`` other than speed: checks of the parameters, and unscaling of gradients.

PyTorch's fused steps read two attributes of the optimizer, which mixed-precision loops set: ``grad_scale``
divides the gradients, and a ``found_inf`` other than 0 skips the step. Speed needs no flag here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.engine.aval import Aval
from tenon.errors import UnsupportedError

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer
    from tenon.optim.types import ParamGroup
    from tenon.tensors.tensor import Tensor


def ready(optimizer: Optimizer, group: ParamGroup) -> bool:
    """Check and unscale the gradients of a group with ``fused=True``; return False if the step is skipped."""
    own = optimizer.__dict__
    checked = own.setdefault("_fused_checked", set())
    if id(group) not in checked:
        for p in group["params"]:
            _check(p)
        checked.add(id(group))
    found_inf, scale = own.get("found_inf"), own.get("grad_scale")
    if found_inf is not None and found_inf.item():
        return False
    if scale is not None:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.div_(scale)
    return True


def _check(p: Tensor) -> None:
    if p.grad is not None and (isinstance(p.raw, Aval) or not p.is_floating_point()):
        raise UnsupportedError(
            "`fused=True` requires all the params to be floating point Tensors of a device with memory, but "
            f"one of shape {list(p.shape)} is {p.dtype} on {p.device.type}. Leave out fused=True, which "
            "changes no result, or make the optimizer when model.to_empty(device=...) has given them memory."
        )
