"""Buffers of a model whose batch is computed in logical shards, such as running statistics of batch norm.

Every shard starts with the buffers of the beginning of the step. At the end of the step, a buffer that a
shard has changed becomes, on every rank, the mean over the shards that had samples; integers and bools
(``num_batches_tracked``) become those of the last shard.
"""

from __future__ import annotations

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.distributed.replicas.shard_order import ShardOrder
from tenon.errors import UnsupportedError
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor


class ShardBuffers:
    """The buffers of ``model``, whose names and shapes must not change."""

    def __init__(self, model: Module, order: ShardOrder) -> None:
        self._model, self._order = model, order
        self._before: dict[str, np.ndarray] = {}
        self._after: list[dict[str, np.ndarray]] = []
        """For each shard of this rank, the values of the buffers that it has changed."""

    def restart(self) -> None:
        """Save the buffers at the beginning of a step."""
        self._before = {name: staging.to_host(b).copy() for name, b in self._model.named_buffers()}
        self._after = []

    def add(self) -> None:
        """Save the buffers that the last computed shard has changed, and restore their values before it."""
        changed: dict[str, np.ndarray] = {}
        for name, buffer in self._buffers().items():
            now, before = staging.to_host(buffer), self._before[name]
            if now.shape != before.shape:
                raise UnsupportedError(
                    f'deterministic="world": buffer {name!r} went from {list(before.shape)} to'
                    f" {list(now.shape)} in a shard. Keep the shapes of buffers while training."
                )
            if now.tobytes() != before.tobytes():
                changed[name] = now.copy()
                staging.write(buffer, before)
        self._after.append(changed)

    def changed(self) -> list[list[bool]]:
        """For each shard of this rank, and each buffer, whether the shard has changed it."""
        return [[name in shard for name in self._before] for shard in self._after]

    def finish(self, changed: np.ndarray, active: list[bool], shards: int) -> None:
        """Set the changed buffers from the shards of all ranks.

        ``changed`` is the number of shards that have changed each buffer, ``active`` whether each shard of
        this rank had samples, ``shards`` the number of shards of all ranks that had samples.
        """
        names = [name for name, times in zip(self._before, changed, strict=True) if times]
        if not names:
            return
        buffers = self._buffers()
        averaged = [name for name in names if self._before[name].dtype.kind not in "biu"]
        if averaged:
            self._average(averaged, buffers, active, shards)
        others = [name for name in names if name not in averaged]
        for name in others:
            staging.write(buffers[name], self._after[-1].get(name, self._before[name]))
        for group in self._order.groups if others else []:
            broadcast_tensors(
                [buffers[name] for name in others],
                group,
                root=group.size - 1,
                name="buffers of the last shard",
            )

    def _average(self, names: list[str], buffers: dict[str, Tensor], active: list[bool], shards: int) -> None:
        """Set the named buffers to their means over the active shards of all ranks, in float64 or wider."""
        parts = []
        for after, used in zip(self._after, active, strict=True):
            values = [after.get(name, self._before[name]).reshape(-1) for name in names]
            wide = np.concatenate(values, dtype=np.result_type(np.float64, *values), casting="unsafe")
            parts.append(wide if used else np.zeros_like(wide))
        mean = self._order.total(parts, "buffers of all shards") / shards
        start = 0
        for name in names:
            before = self._before[name]
            part = mean[start : start + before.size].reshape(before.shape)
            staging.write(buffers[name], part.astype(before.dtype))
            start += before.size

    def _buffers(self) -> dict[str, Tensor]:
        return dict(self._model.named_buffers()) if self._before else {}
