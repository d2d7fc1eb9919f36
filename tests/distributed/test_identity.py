"""Ranks that mix up tensors, parameters, models or options raise on all of them, naming both sides."""

import json
import random
import sys
from pathlib import Path

import pytest

from tenon import nn
from tenon.distributed.communication.calls import Call, Implied, settle
from tenon.distributed.communication.orders import Orders
from tenon.distributed.communication.origin import Origin, Place
from tenon.distributed.messages.identity import structure
from tenon.errors import CollectiveMismatchError
from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

from happening import in_time

PROGRAM = Path(__file__).parent / "programs" / "disagreeing.py"

#: What both sides are called in the message of each case; nothing where the ranks go on.
SIDES = {
    "swapped": ("float32[3], `a`", "float32[3], `b`"),
    "swapped_in_a_loop": ("`tensor` (a)", "`tensor` (b)"),
    "swapped_names": ("named 'counts'", "named 'losses'"),
    "one_name": None,
    "skipped_parameter": ("float32[4, 4], the gradient of 0.weight", "float32[4], the gradient of 0.bias"),
    "missing_gradient": None,
    "skipped_broadcast": ("the parameter 0.weight", "the parameter 0.bias"),
    "two_models_swapped": ("of model 1'", "of model 2'"),
    "two_models_swapped_with_a_hook": ("4 parameters, ", "of model 3'", "of model 4'"),
    "two_sharded_optimizers_swapped": ("sharded optimizer 5,", "sharded optimizer 6,"),
    "another_layer": ("'1 is Dropout(p=0.5, inplace=False)'", "'1 is Dropout(p=0.1, inplace=False)'"),
    "another_learning_rate": ("SGD(lr=0.1, momentum=0.9)", "SGD(lr=0.2, momentum=0.9)"),
    "another_learning_rate_in_a_static_graph": ("SGD(lr=0.1)", "SGD(lr=0.2)"),
    "another_sharded_optimizer": ("SGD(lr=0.2", "SGD(lr=0.1"),
}


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("size", "variables"),
    [
        pytest.param(2, {"TENON_COMMUNICATOR": "mpi-shared"}, marks=pytest.mark.slow),
        (2, {"TENON_COMMUNICATOR": "mpi-messages"}),
        pytest.param(
            4, {"TENON_COMMUNICATOR": "mpi-hierarchical", "TENON_MPI_NODES": "2"}, marks=pytest.mark.slow
        ),
    ],
    ids=["shared", "messages", "hierarchical"],
)
def test_ranks_that_mix_things_up_all_raise_within_seconds_and_name_both_sides(tmp_path, size, variables):
    done = launch(size, [str(PROGRAM), str(tmp_path)], **variables)

    assert done.returncode == 0, done.stderr
    for rank in range(size):
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        assert told.keys() == SIDES.keys()
        for case, (message, seconds) in told.items():
            assert in_time(seconds, 5), case
            if SIDES[case] is None:
                assert message is None, message
            else:
                assert message is not None, case
                assert all(side in message for side in SIDES[case]), message
                assert f"rank {size - 1} " in message, message


def call(name):
    return Call("all_reduce", "sum", (3,), "float32", name)


@pytest.mark.parametrize(
    "names",
    [
        ("the gradient of w", None),
        ("the gradient of w", "`zeros`"),
        ("the gradient of 0.w", "the gradient of model.0.w", "the gradient of 0.w"),
        (None, "`a`", "`a`"),
        ("`t` (a)", "`t`"),
    ],
)
def test_names_that_nobody_gave_may_be_missing_or_begin_elsewhere(names):
    settle([call(name and Implied(name)).payload(None) for name in names], 1)


@pytest.mark.parametrize(
    "names",
    [
        ("the gradient of w", "the gradient of v"),
        ("the gradient of w", "the parameter w"),
        ("`a`", "`b`"),
        ("the gradient of 1.w", None, "the gradient of 11.w"),
    ],
)
def test_names_that_contradict_each_other_raise(names):
    with pytest.raises(CollectiveMismatchError, match="disagree in collective call 7"):
        settle([call(name and Implied(name)).payload(None) for name in names], 7)


def test_items_of_ones_own_are_legal_until_two_ranks_have_them_in_opposite_order():
    orders, here = Orders(), [Place("loop.py:1 train", 3, 4, "dist.all_reduce(values[i])")]

    def settle_items(number, *items, within=0):
        origins = [
            Origin(expression="`values[i]`", indices={"values": item}, loops=True, places=here, within=within)
            for item in items
        ]
        payloads = [
            call(Implied(f"{number} {rank}", lambda origin=origin: origin)).payload(None)
            for rank, origin in enumerate(origins)
        ]
        settle(payloads, number, None, orders)

    for number, items in enumerate([(0, 1, 2), (3, 4, 5), (6, 7, 6)]):
        settle_items(number, *items)
    settle_items(3, 1, 0, 2, within=1)  # The next epoch shuffles them.
    settle_items(2000, 1, 0, 2)  # Long after.
    settle_items(2001, 2, 1, 0)
    with pytest.raises(
        CollectiveMismatchError, match="Since call 2000 they had the same tensors in different"
    ):
        settle_items(2002, 0, 2, 2)


@pytest.mark.slow
def test_old_differences_are_dropped_so_that_their_number_is_bounded():
    orders, here = Orders(), [Place("loop.py:1 train", 3, 4, "dist.all_reduce(values[i])")]

    for number in range(20_000):
        items = (2 * number, 2 * number + 1)
        assert (
            orders.find([Origin(indices={"values": i}, loops=True, places=here) for i in items], number)
            is None
        )

    assert sum(len(others) for edges in orders._edges.values() for others in edges.values()) < 10_000


@pytest.mark.parametrize("count", [2, 3, 5, 40, 1000])
def test_two_orders_of_the_same_items_are_found_before_the_loop_ends(count):
    draw, here = random.Random(count), [Place("loop.py:1 train", 3, 4, "dist.all_reduce(values[i])")]
    rotated = [*range(1, count), 0]

    for order in (rotated, rotated[::-1], *(draw.sample(range(count), count) for _ in range(5))):
        orders, found = Orders(), None
        for number, item in enumerate(order):
            origins = [
                Origin(indices={"values": index}, loops=True, places=here) for index in (number, number, item)
            ]
            if item != number and found is None:
                found = orders.find(origins, number)

        assert (found is None) == (order == list(range(count)))


@pytest.mark.slow
@pytest.mark.mpi
def test_texts_of_calls_that_differ_are_exchanged_once_and_opposite_orders_are_found_without_them(tmp_path):
    program = PROGRAM.parent / "own_items.py"

    done = launch(3, [str(program), str(tmp_path)], TENON_COMMUNICATOR="mpi-shared")

    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    for counts, sums, message in told:
        assert counts == [1, 1, 0, 0]
        assert sums == [2.0, 1.0, 2.0, 1.0, 2.0]
        assert message == told[0][2]
        assert "rank 0 at all_gather of float32[3], `items[i]` (items[1])" in message
        assert "they had the same tensors in different orders" in message


def test_a_name_that_was_given_is_not_the_same_as_one_that_the_source_suggests():
    with pytest.raises(CollectiveMismatchError, match="named 'a'"):
        settle([call("a").payload(3), call(Implied("`a`")).payload(3)], 1)


def test_what_modules_of_others_print_of_themselves_is_not_compared():
    class Mine(nn.Module):
        def extra_repr(self):
            return "rank=3"

    assert structure(nn.Sequential(Mine(), nn.ReLU(inplace=True)))[1:] == [
        f"0 is {Mine.__qualname__}()",
        "1 is ReLU(inplace=True)",
    ]
