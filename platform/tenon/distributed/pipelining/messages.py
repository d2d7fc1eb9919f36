"""Complete an order of computations by the sends and receives it needs.

Sends never block, and messages from one rank to another arrive in the order in which they were sent. So it
suffices that a rank posts its receives from each other rank in that order: ``with_messages`` moves a receive
forward where the receiver needs messages in another order than the sender has them. Then no order of
messages can deadlock: a rank waits only for a computation of another rank (``checking.py`` proves that these
waits have no circle).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.distributed.pipelining.actions import (
    RETURNS,
    SENDS,
    Action,
    Kind,
    Order,
    received_as,
)


def with_messages(order: Order, rank_of: Sequence[int]) -> Order:
    """``order`` with sends after the computations, receives before them, and reductions of gradients.

    ``rank_of`` is the rank of each stage; stages of one rank hand over without a message. A receive is
    posted one computation before it is needed.
    """
    sent = {rank: list(_with_sends(rank, actions, rank_of)) for rank, actions in order.items()}
    coming = {rank: _incoming(rank, sent, rank_of) for rank in order}
    return {rank: _with_receives(actions, coming[rank]) for rank, actions in sent.items()}


def _with_sends(rank: int, actions: Sequence[Action], rank_of: Sequence[int]) -> Iterator[Action]:
    last_of_stage = {a.stage: i for i, a in enumerate(actions) if a.kind is not Kind.FORWARD}
    for index, action in enumerate(actions):
        yield action
        stage = action.stage
        if action.kind is Kind.FORWARD and stage + 1 < len(rank_of) and rank_of[stage + 1] != rank:
            yield Action(stage, Kind.SEND_F, action.microbatch)
        if action.kind in RETURNS and stage > 0 and rank_of[stage - 1] != rank:
            yield Action(stage, Kind.SEND_B, action.microbatch)
        if last_of_stage.get(stage) == index:
            yield Action(stage, Kind.REDUCE_GRAD)


def _incoming(rank: int, sent: Order, rank_of: Sequence[int]) -> dict[int, list[Action]]:
    """The receives of ``rank`` from each other rank, in the order of its sends."""
    return {
        other: [
            received
            for action in actions
            if action.kind in SENDS and rank_of[(received := received_as(action)).stage] == rank
        ]
        for other, actions in sent.items()
        if other != rank
    }


def needed_by(action: Action) -> Action | None:
    """The receive that has to come before ``action``, if its stage is not fed by the same rank."""
    if action.kind is Kind.FORWARD:
        return Action(action.stage, Kind.RECV_F, action.microbatch)
    if action.kind in RETURNS:
        return Action(action.stage, Kind.RECV_B, action.microbatch)
    return None


def _with_receives(actions: Sequence[Action], incoming: dict[int, list[Action]]) -> list[Action]:
    source_of = {action: other for other, received in incoming.items() for action in received}
    posted: dict[int, int] = dict.fromkeys(incoming, 0)
    result: list[Action] = []
    start = 0  # where the computation before this one begins in the result
    for action in actions:
        receive = needed_by(action)
        if receive in source_of:
            source = source_of[receive]
            number = incoming[source].index(receive) + 1
            result[start:start] = incoming[source][posted[source] : number]
            posted[source] = max(posted[source], number)
        if receive is not None or action.kind is Kind.BACKWARD_WEIGHT:
            start = len(result)
        result.append(action)
    return result
