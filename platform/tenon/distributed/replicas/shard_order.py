"""Which logical shards of a batch a rank computes, and sums over all of them as one tree.

The tree is that of ``reduction.combine``: ((0, 1), (2, 3)). ``replicas`` compute branches of it: each takes
consecutive shards. The ranks ``within`` a replica, which reduce gradients after each shard, compute
neighbours at the same time: of 2 ranks the first takes shards 0, 2, ..., the second 1, 3, ..., and the sum
over the ranks is a branch, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import ReduceOp, combine
from tenon.errors import CommunicatorError


class ShardOrder:
    """The order of ``shards`` over the ranks of ``replicas``, and of ``within`` each; None is one rank."""

    def __init__(
        self, shards: int, replicas: Communicator | None = None, within: Communicator | None = None
    ) -> None:
        self.shards, self.replicas, self.within = shards, replicas, within
        copies, ranks = (1 if group is None else group.size for group in (replicas, within))
        check_order(shards, copies, ranks)
        self.own = shards // (copies * ranks)
        """How many shards this rank computes."""
        first = 0 if replicas is None else replicas.rank * self.own * ranks
        own = 0 if within is None else within.rank
        self.numbers = [first + ranks * i + own for i in range(self.own)]
        """The shards that this rank computes, in turn."""

    @property
    def groups(self) -> list[Communicator]:
        """The groups of ranks over which is summed, the inner one first."""
        return [group for group in (self.within, self.replicas) if group is not None]

    def total(self, parts: Sequence[np.ndarray], name: str) -> np.ndarray:
        """The sum of all shards' arrays, of which ``parts`` are those of this rank; collective."""
        if self.within is not None:
            parts = list(self.within.all_reduce(np.stack(parts), name=name).wait())
        result = np.empty_like(parts[0])
        combine(parts, ReduceOp.SUM, result)
        if self.replicas is not None:
            result = self.replicas.all_reduce(result, name=name).wait()
        return result


def check_order(shards: int, replicas: int, within: int) -> None:
    """Raise unless each of ``replicas`` of ``within`` ranks can compute one branch of the tree."""
    if _fits(shards, replicas, within):
        return
    if replicas > 1 and within > 1:
        raise CommunicatorError(
            f"shards={shards} cannot be shared by {replicas} replicas of {within} ranks: each replica takes"
            " the same number, a power of two and a multiple of its ranks. Choose another number of shards;"
            " it decides the result."
        )
    sharded = within > 1
    suitable = [r for r in range(1, shards + 1) if _fits(shards, *((1, r) if sharded else (r, 1)))]
    numbers = " or ".join(map(str, suitable))
    advice = f"Start {numbers} ranks, or choose another" if suitable else "Choose a"
    needed = (
        f"the number of ranks has to be {shards}, or a power of two that divides it"
        if sharded
        else "each takes the same number, a power of two"
    )
    raise CommunicatorError(
        f"shards={shards} cannot be shared by {replicas * within} ranks: {needed}."
        f" {advice} number of shards; it decides the result."
    )


def _fits(shards: int, replicas: int, within: int) -> bool:
    if shards < 1 or shards % (replicas * within):
        return False
    own = shards // (replicas * within)
    if replicas > 1:
        return _is_power_of_two(own * within)
    return own == 1 or _is_power_of_two(within)


def _is_power_of_two(number: int) -> bool:
    """Whether ``number`` is a power of two."""
    return number & (number - 1) == 0
