"""Schedules as lists of actions: complete, free of deadlocks, and with the peak of activations that theory says."""

import pytest

from tenon.distributed.pipelining import dual_pipe, orders, zero_bubble
from tenon.distributed.pipelining.actions import Action, Kind, live_activations
from tenon.distributed.pipelining.checking import check_order
from tenon.distributed.pipelining.messages import with_messages
from tenon.errors import ArgumentError

SIZES = [(stages, microbatches) for stages in range(1, 9) for microbatches in range(1, 17)]
LOOPS = [(r, n, m) for r in range(1, 5) for n in range(1, 5) for m in range(1, 17)]
QUICK = [(s, m) for s, m in SIZES if s in (1, 2, 5) and m in (1, 2, 3, 7)]
QUICK_LOOPS = [(r, n, m) for r, n, m in LOOPS if r < 4 and n in (1, 3) and m in (1, 4, 6)]


def cases(quick, all_of_them):
    return [pytest.param(*c, marks=[] if c in quick else [pytest.mark.slow]) for c in all_of_them]


def check(order, rank_of, microbatches, **options):
    check_order(with_messages(order, rank_of), rank_of, microbatches, **options)


@pytest.mark.together
@pytest.mark.parametrize(("stages", "microbatches"), cases(QUICK, SIZES))
def test_schedules_of_one_stage_on_each_rank(stages, microbatches):
    rank_of = list(range(stages))
    gpipe = orders.gpipe(stages, microbatches)
    alternating = orders.one_forward_one_backward(stages, microbatches)

    check(gpipe, rank_of, microbatches)
    check(alternating, rank_of, microbatches)
    check(orders.forward_order(rank_of, microbatches), rank_of, microbatches, trains=False)
    for stage in range(stages):
        assert live_activations(gpipe[stage]) == microbatches
        assert live_activations(alternating[stage]) == min(microbatches, stages - stage)


@pytest.mark.together
@pytest.mark.parametrize(("ranks", "local", "microbatches"), cases(QUICK_LOOPS, LOOPS))
def test_schedules_of_several_stages_on_each_rank(ranks, local, microbatches):
    rank_of = orders.placed_in_turn(ranks * local, ranks)
    breadth = orders.looped_bfs(ranks, local, microbatches)

    check(breadth, rank_of, microbatches)
    check(orders.forward_order(rank_of, microbatches), rank_of, microbatches, trains=False)
    assert all(live_activations(actions) == microbatches * local for actions in breadth.values())
    rounds = max(1, microbatches // ranks)
    if microbatches % rounds:
        with pytest.raises(ArgumentError, match=f"multiple of the number of rounds \\({rounds}\\)"):
            orders.interleaved_1f1b(ranks, local, microbatches)
        with pytest.raises(ArgumentError, match=f"Zero bubble .* number of rounds \\({rounds}\\)"):
            zero_bubble.interleaved_zero_bubble(ranks, local, microbatches)
        return
    depth = orders.interleaved_1f1b(ranks, local, microbatches)
    check(depth, rank_of, microbatches)
    for rank, actions in depth.items():
        first = (local - 1) * (microbatches // rounds) + 2 * (ranks - 1 - rank)
        assert live_activations(actions) == min(first + 1, microbatches * local)

    split = zero_bubble.interleaved_zero_bubble(ranks, local, microbatches)
    check(split, rank_of, microbatches)
    for rank, actions in split.items():
        first = (local - 1) * (microbatches // rounds) + ranks - 1 - rank
        assert live_activations(actions) <= min(first + 1 + rank, microbatches * local)


@pytest.mark.together
@pytest.mark.parametrize(
    ("ranks", "microbatches"), cases([(1, 1), (2, 2), (2, 5), (3, 7)], [(r, m) for r, m in SIZES if r < 6])
)
def test_zero_bubble_on_a_v(ranks, microbatches):
    rank_of = zero_bubble.placed_as_v(ranks)
    order = zero_bubble.zero_bubble_v(ranks, microbatches)

    assert [rank_of[s] for s in range(2 * ranks)] == [min(s, 2 * ranks - 1 - s) for s in range(2 * ranks)]
    check(order, rank_of, microbatches)
    check(orders.forward_order(rank_of, microbatches), rank_of, microbatches, trains=False)
    assert all(live_activations(actions) <= min(2 * ranks, 2 * microbatches) for actions in order.values())


@pytest.mark.together
@pytest.mark.parametrize(
    ("ranks", "microbatches"),
    cases([(1, 2), (2, 4), (3, 7)], [(r, m) for r, m in SIZES if r < 6 and m >= 2 * r]),
)
def test_two_ways_through_a_v_at_once(ranks, microbatches):
    order = dual_pipe.dual_pipe_v(ranks, microbatches)

    check(order, zero_bubble.placed_as_v(ranks), microbatches)
    assert all(live_activations(actions) <= 2 * ranks + 1 for actions in order.values())
    with pytest.raises(ArgumentError, match="at least as many microbatches as stages"):
        dual_pipe.dual_pipe_v(ranks, 2 * ranks - 1)


def test_two_ways_through_a_v_are_those_of_pytorch():
    text = "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3"

    assert list(map(str, dual_pipe.dual_pipe_v(2, 4)[0])) == text.split()


def idle(order, stages, backward=2):
    """The part of the ranks' time that is idle if forward takes 1, and backward for inputs and weights 1 each."""
    ends, position, time = {}, dict.fromkeys(order, 0), dict.fromkeys(order, 0)
    while any(position[rank] < len(actions) for rank, actions in order.items()):
        for rank, actions in order.items():
            for stage, kind, number in actions[position[rank] :]:
                forward, returns = kind is Kind.FORWARD, kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT)
                before = (stage - 1, True, number) if forward else (stage + 1, False, number)
                if ((forward and stage > 0) or (returns and stage + 1 < stages)) and before not in ends:
                    break
                time[rank] = max(time[rank], ends.get(before, 0)) + (backward if kind is Kind.BACKWARD else 1)
                if forward or returns:
                    ends[stage, forward, number] = time[rank]
                position[rank] += 1
    busy = sum(backward if a.kind is Kind.BACKWARD else 1 for actions in order.values() for a in actions)
    return 1 - busy / len(order) / max(time.values())


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 2), (2, 8), (3, 6), (4, 4), (4, 12)])
def test_idle_time_is_what_theory_says(ranks, microbatches):
    p, m, v = ranks, microbatches, 2

    for order in (orders.gpipe(p, m), orders.one_forward_one_backward(p, m)):
        assert idle(order, p) == pytest.approx((p - 1) / (m + p - 1))
    for order in (orders.interleaved_1f1b(p, v, m), orders.looped_bfs(p, v, m)):
        assert idle(order, p * v) == pytest.approx((p - 1) / (v * m + p - 1))
    split = zero_bubble.interleaved_zero_bubble(p, v, m)
    assert idle(split, p * v) == pytest.approx((p - 1) / (3 * v * m + p - 1))


def test_zero_bubble_on_a_v_is_no_longer_idle_than_to_fill_the_pipeline():
    order = zero_bubble.zero_bubble_v(4, 40)

    assert idle(order, 8) < 0.04 < idle(orders.one_forward_one_backward(4, 40), 4)


def broken(change):
    """The order of 1F1B with 2 stages and 2 microbatches, of which ``change`` changes the lists."""
    order = with_messages(orders.one_forward_one_backward(2, 2), [0, 1])
    change(order)
    return order


def drop(rank, text):
    return lambda order: order[rank].remove(Action.parse(text))


def swap(rank, one, other):
    def change(order):
        i, j = (order[rank].index(Action.parse(text)) for text in (one, other))
        order[rank][i], order[rank][j] = order[rank][j], order[rank][i]

    return change


def both(*changes):
    return lambda order: [change(order) for change in changes]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop(0, "0F1"), "stage 0 computes microbatch 1 0 times forward"),
        (drop(1, "1B0"), "needs one forward pass and one backward pass"),
        (drop(1, "1REDUCE_GRAD"), "stage 1 has 0 times REDUCE_GRAD"),
        (swap(0, "0B1", "0REDUCE_GRAD"), "stage 0 has 1 times REDUCE_GRAD. It needs one, after its last"),
        (lambda order: order[0].append(Action(1, Kind.FORWARD, 0)), "stage 1 is on rank 1"),
        (lambda order: order[0].append(Action(2, Kind.FORWARD, 0)), "stage 2 is on no rank"),
        (lambda order: order[0].append(Action(0, Kind.FORWARD, 2)), "0F2 is an action for a microbatch that"),
        (drop(0, "0SEND_F0"), "rank 0 sends to rank 1"),
        (both(drop(0, "0SEND_F0"), drop(1, "1RECV_F0")), "1RECV_F0.* missing, repeated or not needed"),
        (swap(1, "1RECV_F0", "1RECV_F1"), "rank 0 sends to rank 1"),
        (swap(0, "0F0", "0SEND_F0"), "deadlocks: rank 0 at 0SEND_F0, rank 1 at 1F0"),
        (swap(1, "1F0", "1B0"), "deadlocks: .*rank 1 at 1B0"),
    ],
)
def test_checker_refuses(change, message):
    order = broken(change)

    with pytest.raises(ArgumentError, match=message):
        check_order(order, [0, 1], 2)


def test_receives_are_posted_in_the_order_of_the_sends():
    order = {0: [Action.parse(t) for t in ("0F0", "0F1")], 1: [Action.parse(t) for t in ("1F1", "1F0")]}

    assert str(with_messages(order, [0, 1])[1]) == "[1RECV_F0, 1RECV_F1, 1F1, 1F0]"
    check(order, [0, 1], 2, trains=False)


def test_waits_in_a_circle_are_found():
    """Two ranks with two stages each, whose second computations come first."""
    order = {0: [Action.parse(t) for t in ("2F0", "0F0")], 1: [Action.parse(t) for t in ("3F0", "1F0")]}

    with pytest.raises(ArgumentError, match="deadlocks: rank 0 at 2F0, rank 1 at 3F0"):
        check(order, [0, 1, 0, 1], 1, trains=False)


@pytest.mark.parametrize("text", ["", "F0", "0X0", "0F", "0REDUCE_GRAD1", "0F0x"])
def test_text_that_is_no_action(text):
    with pytest.raises(ArgumentError, match="is not an action of a pipeline schedule"):
        Action.parse(text)


def test_actions_are_read_as_they_are_written():
    for actions in with_messages(orders.one_forward_one_backward(3, 2), [0, 1, 2]).values():
        assert [Action.parse(str(action)) for action in actions] == actions
