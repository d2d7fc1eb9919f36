"""DualPipeV: two stages on a rank, placed as a V; each forward pass of one stage is beside a backward pass of
the other, so that the messages of one are under way while the other computes.

Source: DualPipe of the DeepSeek-V3 report (2024), of which the V is one half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tenon.distributed.pipelining.actions import Action, Kind, Order
from tenon.errors import ArgumentError


def dual_pipe_v(ranks: int, microbatches: int) -> Order:
    """The order of ``microbatches``; ArgumentError if they are fewer than the stages, two on each rank."""
    if microbatches < 2 * ranks:
        raise ArgumentError(
            "DualPipeV requires at least as many microbatches as stages, but got"
            f" {microbatches} microbatches and {2 * ranks} stages."
        )
    return {rank: list(_Rank(ranks, rank).actions(microbatches)) for rank in range(ranks)}


class _Rank:
    """The actions of one rank: ``down`` is its stage on the way to the last rank, ``up`` that on the way
    back."""

    def __init__(self, ranks: int, rank: int) -> None:
        self._ranks, self._rank = ranks, rank
        self._down, self._up = rank, 2 * ranks - 1 - rank
        self._done: dict[tuple[int, Kind], int] = {}
        self._late: deque[Action] = deque()
        """Gradients of weights that are to be computed."""

    def _forward(self, stage: int) -> Action:
        return self._next(stage, Kind.FORWARD)

    def _backward(self, stage: int, split: bool = False) -> Action:
        """The next backward pass of ``stage``; without the gradients of weights if it is ``split``."""
        number = self._next(stage, Kind.BACKWARD).microbatch
        if split:
            self._late.append(Action(stage, Kind.BACKWARD_WEIGHT, number))
        return Action(stage, Kind.BACKWARD_INPUT if split else Kind.BACKWARD, number)

    def _next(self, stage: int, kind: Kind) -> Action:
        number = self._done.get((stage, kind), 0)
        self._done[stage, kind] = number + 1
        return Action(stage, kind, number)

    def actions(self, microbatches: int) -> Iterator[Action]:
        """The computations of a step, in eight parts."""
        down, up, after = self._down, self._up, self._ranks - 1 - self._rank
        for _ in range(2 * after):
            yield self._forward(down)
        for _ in range(self._rank + 1):
            yield self._forward(down)
            yield self._forward(up)
        for _ in range(after):
            yield self._backward(up, split=True)
            yield self._late.popleft()
            yield self._forward(up)
        for _ in range(microbatches - 2 * self._ranks + self._rank + 1):
            yield self._forward(down)
            yield self._backward(up)
            yield self._forward(up)
            yield self._backward(down)
        for _ in range(after):
            yield self._backward(up)
            yield self._forward(up)
            yield self._backward(down)
        yield from self._ends(self._rank + 1)
        for _ in range(after):
            yield self._late.popleft()
            yield self._backward(down, split=True)
        yield from self._late

    def _ends(self, count: int) -> Iterator[Action]:
        """Backward passes of both stages; those of the second half leave gradients of weights for later."""
        for number in range(2 * count):
            yield self._backward(self._down if number % 2 else self._up, split=number >= count)
