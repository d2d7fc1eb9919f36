"""Sums of a module group's gradients over logical shards, as one tree, on each rank for its part of them.

The ranks that shard a model compute neighbouring logical shards at the same time. The sum of their gradients,
a branch of the tree, is what a reduce-scatter gives to each rank for its part. Here these branches are summed
in turn: those of 1, 2, 4, ... wait for their sibling, like carries in binary addition. Replicas continue the
tree once at the end of a step. ``deterministic="world"`` uses this in place of means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.communication.reduction import ReduceOp
from tenon.errors import CommunicatorError, UnsupportedError

if TYPE_CHECKING:
    from tenon.distributed.fsdp.parameter_group import ParameterGroup
    from tenon.distributed.fsdp.sharded_parameter import ShardedParameter

#: Flat gradients of the shards of a group's parameters; None if no rank had any, which counts as zeros.
Gradients = list[np.ndarray] | None


class GroupSums:
    """The sums of the gradients of ``group`` in one step."""

    def __init__(self, group: ParameterGroup) -> None:
        self._group = group
        self._parameters: list[ShardedParameter] = []
        """The trained parameters, as they are in ``Gradients``."""
        self._arrived: Gradients = None
        """The gradients of the shards that are being computed."""
        self._waiting: list[tuple[int, Gradients]] = []
        """How many times shards were computed, and the sums of them, the oldest and largest first."""
        self._used = np.zeros(0, bool)

    def restart(self) -> None:
        """Reset the sums and the gradients before the first shard of a step."""
        self._group.zero_gradients(set_to_none=True)
        self._parameters, self._arrived, self._waiting = [], None, []

    def receive(
        self, parameters: Sequence[ShardedParameter], arrays: list[np.ndarray], counts: np.ndarray
    ) -> None:
        """Take the reduced ``arrays`` of a shard, to be changed here, and on how many ranks each exists."""
        if self._arrived is not None:
            raise CommunicatorError(
                f'deterministic="world": the gradients of {self._group.name} were complete, and more followed'
                " in the same shard. Add up the losses of a shard, and call model.backward(loss, count) once;"
                " use parameters in the forward of their own module only."
            )
        if not self._parameters:
            self._parameters, self._used = list(parameters), np.zeros(len(parameters), bool)
        self._arrived = arrays
        self._used |= counts != 0

    def add(self) -> None:
        """Add the gradients of the last shard."""
        for parameter in self._group.parameters:
            if parameter.sharded.grad is not None:
                raise UnsupportedError(
                    f'deterministic="world": parameter {parameter.name!r} has a gradient of its shard, from a'
                    " use outside of its module's forward, whose sum would depend on the number of ranks. Use"
                    " it inside of the forward, or the optimizer's weight_decay for a penalty on weights."
                )
        times, sums, self._arrived = 1, self._arrived, None
        while self._waiting and self._waiting[-1][0] == times:
            sums = _added(self._waiting.pop()[1], sums)
            times *= 2
        self._waiting.append((times, sums))

    @property
    def present(self) -> bool:
        """Whether a rank of this replica had a gradient in any shard."""
        return any(sums is not None for _, sums in self._waiting)

    def finish(self, count: float, present: bool) -> None:
        """Make the gradients of the shards the sums over all shards and replicas, divided by ``count``.

        ``present`` is whether any replica has gradients. Collective over the replicas.
        """
        while len(self._waiting) > 1:
            (_, last), (times, before) = self._waiting.pop(), self._waiting.pop()
            self._waiting.append((times, _added(before, last)))
        ((_, sums),), self._waiting = self._waiting, []
        if not present:
            return
        if self._group.replicas is not None:
            sums = self._over_replicas(sums)
        assert sums is not None
        for parameter, array, used in zip(self._parameters, sums, self._used, strict=True):
            if used:
                with np.errstate(all="ignore"):
                    np.divide(array, array.dtype.type(count), out=array)
                parameter.receive(array)

    def _over_replicas(self, sums: Gradients) -> list[np.ndarray]:
        """The sums over the replicas, of which each has a branch of the tree."""
        group = self._group
        assert group.replicas is not None
        if sums is None:
            self._parameters = [p for p in group.parameters if p.whole.requires_grad]
            self._used = np.zeros(len(self._parameters), bool)
            sums = [np.zeros(p.count, group.dtype_of_gradients) for p in self._parameters]
        flat = np.concatenate([*sums, self._used.astype(sums[0].dtype)])
        name = f"gradients of {group.name} over replicas"
        total = group.replicas.all_reduce(flat, ReduceOp.SUM, flat, name=name).wait()
        *parts, used = np.split(total, np.cumsum([array.size for array in sums]))
        self._used = used != 0
        return parts


def _added(first: Gradients, second: Gradients) -> Gradients:
    """The sums of two branches, in the memory of one of them."""
    if first is None or second is None:
        only = first if second is None else second
        for array in only or ():
            np.add(array, 0, out=array)  # -0.0 becomes 0.0, as in a sum with zeros
        return only
    with np.errstate(all="ignore"):
        for a, b in zip(first, second, strict=True):
            np.add(a, b, out=a)
    return first
