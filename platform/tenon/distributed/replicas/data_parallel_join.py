"""The collectives of a data-parallel model on a rank that has run out of data, in a ``Join`` block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.joinable import JoinHook
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.replicas.data_parallel import DistributedDataParallel


class DataParallelJoinHook(JoinHook):
    """Contribute zeros to the gradients of ranks that have data, and copy their model at the end."""

    def __init__(self, model: DistributedDataParallel, divide_by_initial_world_size: bool) -> None:
        self.model = model
        self._gradients: list[Tensor | None] | None = None
        model._divides_by_all = divide_by_initial_world_size

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration of the others."""
        model = self.model
        if self._gradients is None:
            self._gradients = [_own_memory(parameter.grad) for _, parameter in model.synchronizer.parameters]
        root, syncs, follows = model._exchange(False, False, False)
        if follows:
            model.broadcast_buffers_now(root)
        if syncs:
            model.synchronizer.synchronize_without_gradients(model._taking_part or 0)

    def post_hook(self, is_last_joiner: bool) -> None:
        """Broadcast the model of a rank that had data longest, and restore this rank's gradients."""
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
        # Optimizers in the block have stepped with the gradients of other ranks.
        for (_, parameter), gradient in zip(
            model.synchronizer.parameters, self._gradients or (), strict=False
        ):
            parameter.grad = gradient


def _own_memory(gradient: Tensor | None) -> Tensor | None:
    """``gradient`` with its memory copied, as it may be a view of a bucket, which will be overwritten."""
    if gradient is not None and isinstance(gradient.raw, np.ndarray):
        gradient.raw = gradient.raw.copy()
    return gradient
