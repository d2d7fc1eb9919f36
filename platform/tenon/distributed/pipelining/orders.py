"""Generators of schedules: in what order each rank computes the stages and microbatches it has.

Each returns the computations of all ranks, without sends and receives, which ``messages.py`` adds. Stages are
placed on the ranks in turn: stage ``s`` on rank ``s % ranks``.

Sources: GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2019), interleaved 1F1B (Narayanan et al. 2021),
breadth-first (Lamy-Poirier 2022).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tenon.distributed.pipelining.actions import Action, Kind, Order
from tenon.errors import ArgumentError


def placed_in_turn(stages: int, ranks: int) -> list[int]:
    """The rank of each stage, one rank after another: [0, 1, 0, 1] for four stages on two ranks."""
    return [stage % ranks for stage in range(stages)]


def forward_only(stages: int, microbatches: int, ranks: int) -> Order:
    """Forward passes only, of all microbatches on a rank's first stage, then on its next."""
    return {
        rank: [
            Action(stage, Kind.FORWARD, number)
            for stage in range(rank, stages, ranks)
            for number in range(microbatches)
        ]
        for rank in range(ranks)
    }


def gpipe(stages: int, microbatches: int) -> Order:
    """All forward passes, then all backward passes; one stage on each rank."""
    return {
        stage: [
            Action(stage, kind, number)
            for kind in (Kind.FORWARD, Kind.BACKWARD)
            for number in range(microbatches)
        ]
        for stage in range(stages)
    }


def one_forward_one_backward(stages: int, microbatches: int) -> Order:
    """Forward passes until the first gradient can be there, then a backward pass after each further one.

    One stage on each rank; stage ``s`` holds at most ``stages - s`` microbatches.
    """
    order: Order = {}
    for stage in range(stages):
        first = min(microbatches, stages - stage)
        actions = [Action(stage, Kind.FORWARD, number) for number in range(first)]
        for number in range(microbatches):
            actions.append(Action(stage, Kind.BACKWARD, number))
            if first + number < microbatches:
                actions.append(Action(stage, Kind.FORWARD, first + number))
        order[stage] = actions
    return order


def looped_bfs(ranks: int, local_stages: int, microbatches: int) -> Order:
    """Breadth first: all microbatches on a rank's first stage, then on its next; backward the other way."""
    order = forward_only(ranks * local_stages, microbatches, ranks)
    for actions in order.values():
        actions += [Action(a.stage, Kind.BACKWARD, a.microbatch) for a in reversed(actions)]
    return order


def rounds_of(ranks: int, microbatches: int, schedule: str) -> int:
    """How many microbatches an interleaved schedule runs on one stage before the next.

    As many as there are ranks, or more, if ``microbatches`` is not a multiple of it; ArgumentError if the
    rounds would differ.
    """
    rounds = max(1, microbatches // ranks)
    if microbatches % rounds:
        raise ArgumentError(
            f"{schedule} requires the number of microbatches to be a multiple of the number of rounds"
            f" ({rounds}), but got {microbatches}. Choose a multiple of {ranks}, the number of ranks."
        )
    return microbatches // rounds


class Interleaved:
    """The order in which rank ``rank`` visits its stages in interleaved schedules, depth first."""

    def __init__(self, ranks: int, rank: int, local_stages: int, microbatches: int, schedule: str) -> None:
        self.ranks, self.rank, self.local_stages = ranks, rank, local_stages
        self.round = rounds_of(ranks, microbatches, schedule)
        self.total = microbatches * local_stages

    def warm_up(self, per_rank: int) -> int:
        """How many forward passes come first; ``per_rank`` more on each rank before."""
        first = (self.local_stages - 1) * self.round + per_rank * (self.ranks - 1 - self.rank)
        return min(first, self.total)

    def forwards(self) -> list[tuple[int, int]]:
        """The stages and microbatches of the forward passes."""
        return self._visits(lambda local: local)

    def backwards(self) -> list[tuple[int, int]]:
        """The stages and microbatches of the backward passes."""
        return self._visits(lambda local: self.local_stages - 1 - local)

    def _visits(self, local_of: Callable[[int], int]) -> list[tuple[int, int]]:
        visits, done = [], Counter[int]()
        for step in range(self.total):
            stage = local_of(step // self.round % self.local_stages) * self.ranks + self.rank
            visits.append((stage, done[stage]))
            done[stage] += 1
        return visits


def interleaved_1f1b(ranks: int, local_stages: int, microbatches: int) -> Order:
    """1F1B with several stages on each rank: the bubble is ``local_stages`` times smaller.

    ArgumentError if the microbatches cannot be divided into equal rounds (``rounds_of``).
    """
    order: Order = {}
    for rank in range(ranks):
        visits = Interleaved(ranks, rank, local_stages, microbatches, "Interleaved 1F1B")
        warm_up = visits.warm_up(2)
        forwards = [Action(stage, Kind.FORWARD, number) for stage, number in visits.forwards()]
        backwards = [Action(stage, Kind.BACKWARD, number) for stage, number in visits.backwards()]
        actions = forwards[:warm_up]
        for number, backward in enumerate(backwards):
            actions += forwards[warm_up + number :][:1]
            actions.append(backward)
        order[rank] = actions
    return order


def forward_order(rank_of: Sequence[int], microbatches: int) -> Order:
    """Forward passes only; a rank of several stages runs a microbatch as far as it can before the next."""
    ranks = max(rank_of) + 1
    stages = {rank: [stage for stage, place in enumerate(rank_of) if place == rank] for rank in range(ranks)}
    size = max(1, ranks)
    return {
        rank: [
            Action(stage, Kind.FORWARD, number)
            for start in range(0, microbatches, size)
            for stage in own
            for number in range(start, min(start + size, microbatches))
        ]
        for rank, own in stages.items()
    }
