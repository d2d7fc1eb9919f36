"""``ShardedGradScaler``: loss scaling where each rank has a part of the gradients."""

from __future__ import annotations

import numpy as np

from tenon.amp.grad_scaler import GradScaler, ScaledOptimizer
from tenon.device import Device
from tenon.distributed.messages.process_group import Group, member
from tenon.distributed.tensor.dtensor import DTensor
from tenon.dtypes import float32
from tenon.tensors.creation.factories import full
from tenon.tensors.tensor import Tensor

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """A ``GradScaler`` for sharded models: a gradient that overflows on any rank of ``process_group`` skips
    the step on all of them.

    ``unscale_`` and ``step`` are collective. The group has to include all ranks with parts of the model; by
    default it has all ranks of the job.

    Source: torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler.

    >>> import tenon
    >>> weight = tenon.ones(2, requires_grad=True)
    >>> optimizer = tenon.optim.SGD([weight], lr=0.5)
    >>> scaler = ShardedGradScaler("cpu", init_scale=4.0)
    >>> scaler.scale(weight.sum()).backward()
    >>> scaler.step(optimizer)
    >>> weight.detach()
    tensor([0.5000, 0.5000])
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, backoff_factor: float = 0.5,
        growth_factor: float = 2.0, growth_interval: int = 2000, enabled: bool = True,
        process_group: Group = None,
    ) -> None:  # fmt: skip
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.process_group = member(process_group)

    def _gradients(self, optimizer: ScaledOptimizer) -> list[Tensor]:
        return [g.to_local() if isinstance(g, DTensor) else g for g in super()._gradients(optimizer)]

    def _unscale_grads_(
        self,
        optimizer: ScaledOptimizer,
        inverse: Tensor,
        found_inf: object = None,
        allow_fp16: bool = True,
    ) -> dict[Device, Tensor]:
        found = super()._unscale_grads_(optimizer, inverse, found_inf, allow_fp16)
        own = np.array([any(value.item() for value in found.values())], np.float32)
        overflowed = self.process_group.all_reduce(own, "max", name="gradients that overflow").wait()
        device = next(iter(found), inverse.device)
        found[device] = full((), float(overflowed[0]), dtype=float32, device=device)
        return found
