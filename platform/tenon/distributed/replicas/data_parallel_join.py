"""What a data-parallel model does on a rank that has run out of data, in a ``Join`` block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.join import JoinHook
from tenon.distributed.replicas.gradients import broadcast_tensors
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.replicas.data_parallel import DistributedDataParallel


class DataParallelJoinHook(JoinHook):
    """A rank without data adds zeros to the gradients of the others, and takes over what they trained."""

    def __init__(self, model: DistributedDataParallel, divide_by_initial_world_size: bool) -> None:
        self.model = model
        self._held: list[Tensor | None] | None = None
        model._divides_by_all = divide_by_initial_world_size

    def main_hook(self) -> None:
        """Answer one iteration of the others."""
        model = self.model
        if self._held is None:
            self._held = [_kept(parameter.grad) for _, parameter in model.synchronizer.parameters]
        root, syncs, follows = model._exchange(False, False, False)
        if follows:
            model.broadcast_buffers_now(root)
        if syncs:
            model.synchronizer.synchronize_without_gradients(model._taking_part or 0)

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over the model of a rank that ran longest."""
        model = self.model
        rank = np.array([model.process_group.rank if is_last_joiner else -1], np.int32)
        root = int(model.process_group.all_reduce(rank, "max", name="last rank with data").wait()[0])
        named = model.module.named_parameters()
        parameters = [p for name, p in named if name not in model.parameters_to_ignore]
        broadcast_tensors(parameters, model.process_group, root=root, name="parameters")
        model.synchronizer.stepped.forget()
        model._authoritative_rank = root
        if model.forward_sync_buffers:
            model.broadcast_buffers_now(root)
        # Optimizers in the block stepped by the gradients of others; this rank's own are as it left them.
        for (_, parameter), gradient in zip(model.synchronizer.parameters, self._held or (), strict=False):
            parameter.grad = gradient


def _kept(gradient: Tensor | None) -> Tensor | None:
    """``gradient`` in memory of its own, as buckets need theirs."""
    if gradient is not None and isinstance(gradient.raw, np.ndarray):
        gradient.raw = gradient.raw.copy()
    return gradient
