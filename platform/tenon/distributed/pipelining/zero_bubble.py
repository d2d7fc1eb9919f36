"""Zero-bubble schedules: backward is split, so that gradients of weights fill the time that ranks would idle.

``I`` computes the gradients of a stage's inputs, which the previous stage waits for, and ``W`` those of its
weights, for which nobody waits. Where both come together they are one backward pass, ``B``.

Source: Zero Bubble Pipeline Parallelism (Qi et al. 2023): ZB1P with several stages on a rank, and ZB-V.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.distributed.pipelining.actions import Action, Kind, Order
from tenon.distributed.pipelining.orders import Interleaved

FORWARD, INPUTS, WEIGHTS = Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT


def interleaved_zero_bubble(ranks: int, local_stages: int, microbatches: int) -> Order:
    """Interleaved 1F1B with split backward passes: a rank's ``W`` begin as many passes later as its number.

    ArgumentError if the microbatches cannot be divided into equal rounds.
    """
    order: Order = {}
    for rank in range(ranks):
        visits = Interleaved(ranks, rank, local_stages, microbatches, "Zero bubble")
        forwards = [Action(stage, FORWARD, number) for stage, number in visits.forwards()]
        backwards = visits.backwards()
        warm_up = visits.warm_up(1)
        actions = forwards[:warm_up]
        for step, (stage, number) in enumerate(backwards):
            actions += forwards[warm_up + step :][:1]
            actions.append(Action(stage, INPUTS, number))
            if step >= rank:
                late = backwards[step - rank]
                actions.append(Action(late[0], WEIGHTS, late[1]))
        actions += [
            Action(stage, WEIGHTS, number) for stage, number in backwards[max(0, len(backwards) - rank) :]
        ]
        order[rank] = _joined(actions)
    return order


def placed_as_v(ranks: int) -> list[int]:
    """The rank of each stage where they go to the last rank and back: [0, 1, 1, 0]."""
    return [*range(ranks), *reversed(range(ranks))]


def zero_bubble_v(ranks: int, microbatches: int) -> Order:
    """ZB-V: two stages on a rank, placed as a V; no rank idles if ``F``, ``I`` and ``W`` take equal times.

    The order is that of ``2 * ranks - 1`` microbatches or more, of which those that do not exist are left
    out.
    """
    count = max(2 * ranks - 1, microbatches)
    return {
        rank: _joined([a for a in _v_actions(ranks, rank, count) if (a.microbatch or 0) < microbatches])
        for rank in range(ranks)
    }


class _Chunk:
    """One of the two stages of a rank, and how many of its actions there have been."""

    def __init__(self, stage: int) -> None:
        self._stage = stage
        self.done = dict.fromkeys((FORWARD, INPUTS, WEIGHTS), 0)

    def next(self, *kinds: Kind) -> Iterator[Action]:
        """The next action of each of ``kinds``."""
        for kind in kinds:
            yield Action(self._stage, kind, self.done[kind])
            self.done[kind] += 1


def _v_actions(ranks: int, rank: int, count: int) -> Iterator[Action]:
    down, up = _Chunk(rank), _Chunk(2 * ranks - 1 - rank)
    for _ in range(2 * (ranks - rank) - 1):
        yield from down.next(FORWARD)
    for _ in range(rank):
        yield from up.next(FORWARD)
        yield from down.next(FORWARD)
    for _ in range(ranks - rank):
        yield from up.next(FORWARD, INPUTS, WEIGHTS)
    while up.done[FORWARD] < down.done[FORWARD] or down.done[FORWARD] < count:
        if down.done[FORWARD] < count:
            yield from down.next(FORWARD)
        yield from down.next(INPUTS, WEIGHTS)
        yield from up.next(FORWARD, INPUTS, WEIGHTS)
    for _ in range(rank):
        yield from down.next(INPUTS)
        yield from up.next(INPUTS)
    for _ in range(ranks - rank):
        yield from down.next(INPUTS, WEIGHTS)
    for chunk in (up, down):
        while chunk.done[WEIGHTS] < chunk.done[INPUTS]:
            yield from chunk.next(WEIGHTS)


def _joined(actions: Sequence[Action]) -> list[Action]:
    """``actions`` with ``B`` in place of each ``I`` that its ``W`` follows."""
    result: list[Action] = []
    for action in actions:
        last = result[-1] if result else None
        if action.kind is WEIGHTS and last == Action(action.stage, INPUTS, action.microbatch):
            result[-1] = Action(action.stage, Kind.BACKWARD, action.microbatch)
        else:
            result.append(action)
    return result
