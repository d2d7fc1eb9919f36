"""Prove that a schedule is complete and does not deadlock, without running it.

Ranks wait for nothing but messages, and each rank's actions have one order: whatever the speeds of the ranks,
the same messages are sent and received. So one simulation in which every action runs is a proof that every
run of the schedule ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tenon.distributed.pipelining.actions import (
    COMPUTES,
    RECEIVES,
    RETURNS,
    SENDS,
    Action,
    Kind,
    Order,
    received_as,
)
from tenon.distributed.pipelining.messages import needed_by
from tenon.errors import ArgumentError

_ACCUMULATING = (Kind.BACKWARD, Kind.BACKWARD_WEIGHT)


def check_order(order: Order, rank_of: Sequence[int], microbatches: int, *, trains: bool = True) -> None:
    """Raise ``ArgumentError`` unless every rank can run its actions of ``order`` to the end.

    ``order`` has the sends and receives in it; ``rank_of`` is the rank of each stage. Complete means: each
    stage computes forward once for each microbatch, and if it ``trains`` backward once (``B``, or ``I`` and
    then ``W``), on the rank of the stage; what crosses ranks is sent once and received once.
    """
    _check_computations(order, rank_of, microbatches, trains)
    _check_messages(order, rank_of)
    _simulate(order, rank_of)


def _check_computations(order: Order, rank_of: Sequence[int], microbatches: int, trains: bool) -> None:
    counts: Counter[Action] = Counter()
    for rank, actions in order.items():
        for action in actions:
            if not 0 <= action.stage < len(rank_of) or rank_of[action.stage] != rank:
                raise ArgumentError(
                    f"rank {rank} of the schedule has the action {action}, but stage {action.stage} is on"
                    f" {_place(action.stage, rank_of)}."
                )
            counts[action] += 1
    for stage in range(len(rank_of)):
        for number in range(microbatches):
            forward, whole, inputs, weights = (
                counts[Action(stage, kind, number)]
                for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
            )
            backward = ((1, 0, 0), (0, 1, 1)) if trains else ((0, 0, 0),)
            if forward != 1 or (whole, inputs, weights) not in backward:
                raise ArgumentError(
                    f"stage {stage} computes microbatch {number} {forward} times forward, {whole} times"
                    f" backward, {inputs} times for its inputs and {weights} times for its weights. It needs"
                    f" one forward pass and {'one' if trains else 'no'} backward pass."
                )
        actions = [action for action in order[rank_of[stage]] if action.stage == stage]
        reductions = [i for i, action in enumerate(actions) if action.kind is Kind.REDUCE_GRAD]
        backward_passes = [i for i, action in enumerate(actions) if action.kind in _ACCUMULATING]
        if trains and (len(reductions) != 1 or reductions[0] < max(backward_passes)):
            raise ArgumentError(
                f"stage {stage} has {len(reductions)} times REDUCE_GRAD. It needs one, after its last"
                " backward pass."
            )
    strange = [a for a in counts if a.microbatch is not None and not 0 <= a.microbatch < microbatches]
    if strange:
        raise ArgumentError(f"{strange[0]} is an action for a microbatch that does not exist.")


def _place(stage: int, rank_of: Sequence[int]) -> str:
    return f"rank {rank_of[stage]}" if 0 <= stage < len(rank_of) else "no rank"


def _check_messages(order: Order, rank_of: Sequence[int]) -> None:
    """Each message that crosses ranks is sent and received once, in one order for each pair of ranks."""
    sent: dict[tuple[int, int], list[Action]] = {}
    received: dict[tuple[int, int], list[Action]] = {}
    needed: set[Action] = set()
    for rank, actions in order.items():
        for action in actions:
            receive = needed_by(action)
            if receive is not None and (source := _source(receive, rank_of)) not in (None, rank):
                needed.add(receive)
            if action.kind in SENDS:
                taken = received_as(action)
                sent.setdefault((rank, rank_of[taken.stage]), []).append(taken)
            if action.kind in RECEIVES:
                source = _source(action, rank_of)
                assert source is not None
                received.setdefault((source, rank), []).append(action)
    for pair in {*sent, *received}:
        here, there = sent.get(pair, []), received.get(pair, [])
        if here != there:
            raise ArgumentError(
                f"rank {pair[0]} sends to rank {pair[1]} what is received there as {here}, but that rank"
                f" receives {there}. Both have to be the same, in the same order."
            )
    taken_once = Counter(action for actions in received.values() for action in actions)
    if taken_once != Counter(needed):
        wrong = sorted(map(str, {*(taken_once - Counter(needed)), *(Counter(needed) - taken_once)}))
        raise ArgumentError(f"the receives {wrong} are missing, repeated or not needed in the schedule.")


def _source(receive: Action, rank_of: Sequence[int]) -> int | None:
    """The rank of the stage that sends; None before the first stage and after the last."""
    stage = receive.stage - 1 if receive.kind is Kind.RECV_F else receive.stage + 1
    return rank_of[stage] if 0 <= stage < len(rank_of) else None


def _simulate(order: Order, rank_of: Sequence[int]) -> None:
    positions = dict.fromkeys(order, 0)
    done: set[Action] = set()
    sent: set[Action] = set()
    moved = True
    while moved:
        moved = False
        for rank, actions in order.items():
            while positions[rank] < len(actions) and _can_run(
                actions[positions[rank]], rank, done, sent, rank_of
            ):
                action = actions[positions[rank]]
                done.add(action)
                if action.kind in SENDS:
                    sent.add(received_as(action))
                positions[rank] += 1
                moved = True
    stuck = {
        rank: actions[positions[rank]] for rank, actions in order.items() if positions[rank] < len(actions)
    }
    if stuck:
        where = ", ".join(f"rank {rank} at {action}" for rank, action in stuck.items())
        raise ArgumentError(
            f"the schedule deadlocks: {where}. Each waits for a computation that another one has to do first."
        )


def _can_run(action: Action, rank: int, done: set[Action], sent: set[Action], rank_of: Sequence[int]) -> bool:
    stage, kind, number = action
    if kind in RECEIVES:
        return True  # it is posted; the computation that needs it waits
    if kind is Kind.SEND_F:
        return Action(stage, Kind.FORWARD, number) in done
    if kind is Kind.SEND_B:
        return any(Action(stage, each, number) in done for each in RETURNS)
    if kind is Kind.REDUCE_GRAD:
        return True
    if kind is Kind.BACKWARD_WEIGHT:
        return Action(stage, Kind.BACKWARD_INPUT, number) in done
    if kind in RETURNS and Action(stage, Kind.FORWARD, number) not in done:
        return False
    receive = needed_by(action)
    assert receive is not None and kind in COMPUTES
    source = _source(receive, rank_of)
    if source is None:
        return True
    if source != rank:
        return receive in done and receive in sent
    if kind is Kind.FORWARD:
        return Action(stage - 1, Kind.FORWARD, number) in done
    return any(Action(stage + 1, each, number) in done for each in RETURNS)
