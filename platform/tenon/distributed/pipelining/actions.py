"""``Action``: one step of a rank in a pipeline schedule; a schedule is a list of actions for each rank.

An action is written as PyTorch writes it: ``0F3`` is the forward pass of stage 0 for microbatch 3, ``B`` its
whole backward pass, ``I`` and ``W`` the halves of it for inputs and for weights; ``1RECV_F3`` receives the
inputs of stage 1 for microbatch 3, ``1SEND_B3`` sends their gradients back; ``0REDUCE_GRAD`` ends the
backward passes of stage 0. Schedules are generated in ``orders.py``, completed by sends and receives in
``messages.py``, proved in ``checking.py`` and run in ``execution.py``.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple, TypeAlias

from tenon.errors import ArgumentError


class Kind(Enum):
    """What an action does."""

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    REDUCE_GRAD = "REDUCE_GRAD"


COMPUTES = frozenset({Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT})
"""Actions that run a stage."""
RETURNS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT})
"""Actions that compute the gradients of a stage's inputs."""
SENDS = frozenset({Kind.SEND_F, Kind.SEND_B})
RECEIVES = frozenset({Kind.RECV_F, Kind.RECV_B})
_TEXT = re.compile(r"(\d+)(SEND_F|RECV_F|SEND_B|RECV_B|REDUCE_GRAD|F|B|I|W)(\d+)?")


class Action(NamedTuple):
    """Do ``kind`` for a ``stage`` and a ``microbatch``, which is None for ``REDUCE_GRAD``.

    >>> Action(2, Kind.SEND_F, 5)
    2SEND_F5
    >>> Action.parse("2SEND_F5").kind
    <Kind.SEND_F: 'SEND_F'>
    """

    stage: int
    kind: Kind
    microbatch: int | None = None

    def __repr__(self) -> str:
        return f"{self.stage}{self.kind.value}{'' if self.microbatch is None else self.microbatch}"

    def __str__(self) -> str:
        return repr(self)

    @classmethod
    def parse(cls, text: str) -> Action:
        """The action that is written as ``text``; ArgumentError if there is none."""
        found = _TEXT.fullmatch(text.strip())
        if found is None or (found[3] is None) != (found[2] == "REDUCE_GRAD"):
            raise ArgumentError(
                f"{text!r} is not an action of a pipeline schedule. Write the stage, the kind and the"
                f" microbatch, such as 2F0; the kinds are {', '.join(kind.value for kind in Kind)}."
            )
        return cls(int(found[1]), Kind(found[2]), None if found[3] is None else int(found[3]))


#: The actions of each rank of the pipeline.
Order: TypeAlias = dict[int, list[Action]]


def received_as(sent: Action) -> Action:
    """The receive that takes what ``sent`` sends."""
    if sent.kind is Kind.SEND_F:
        return Action(sent.stage + 1, Kind.RECV_F, sent.microbatch)
    return Action(sent.stage - 1, Kind.RECV_B, sent.microbatch)


def live_activations(actions: list[Action]) -> int:
    """The largest number of microbatches, over all stages of a rank, whose activations it holds at a time.

    Forward takes one, and the backward pass of the weights (``B`` or ``W``) releases it.
    """
    held = peak = 0
    for action in actions:
        held += action.kind is Kind.FORWARD
        peak = max(peak, held)
        held -= action.kind in (Kind.BACKWARD, Kind.BACKWARD_WEIGHT)
    return peak
