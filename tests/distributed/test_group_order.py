"""Two groups in opposite order: the report names both calls and both groups."""

import pytest

from tenon.distributed.processes.group_order import Wait, describe, find_cycle
from tenon.testing.suites.communicator import launch

PROGRAM = """
import tenon as torch, tenon.distributed as dist
rank, a, b = dist.get_rank(), torch.ones(4), torch.ones(2)
first, second = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
for _ in range(3):
    if rank < 2:
        dist.all_reduce(a, group=first)
    dist.all_reduce(b, group=second)
if rank != 1 or {same_order}:
    if rank < 2:
        dist.all_reduce(a, group=first)
    dist.all_gather([torch.zeros(2)] * 3, b, group=second)
else:
    dist.all_gather([torch.zeros(2)] * 3, b, group=second)
    dist.all_reduce(a, group=first)
"""


def wait(label, ranks, number=1, seconds=5.0):
    return Wait(label, ranks, number, seconds, f"a call of {label}")


def test_a_circle_is_found_and_a_wait_for_a_rank_that_computes_is_none():
    crossed = {0: wait("group 1", (0, 1)), 1: wait("group 2", (0, 1, 2)), 2: wait("group 2", (0, 1, 2))}

    assert find_cycle(crossed) == [0, 1, 2]
    assert find_cycle({0: wait("group 1", (0, 1))}) == []
    assert find_cycle({**crossed, 1: wait("group 1", (0, 1))}) == []
    assert find_cycle({**crossed, 1: wait("group 2", (0, 1, 2), seconds=0.5)}) == []
    assert find_cycle({0: wait("group 1", (0, 1), 7), 1: wait("group 1", (0, 1), 7)}) == []


def test_the_report_names_calls_and_groups():
    message = describe([0, 1], {0: wait("group 1", (0, 1), 4), 1: wait("all ranks", (0, 1, 2), 9)})

    assert "rank 0 at a call of group 1 in group 1 of ranks 0, 1 (call 4 there) waits for rank 1" in message
    assert "rank 1 at a call of all ranks in all ranks (call 9 there) waits for rank 0" in message


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("communicator", ["mpi-shared", "mpi-messages"])
def test_groups_in_opposite_order_end_the_job_with_both_calls_and_groups(communicator):
    done = launch(3, ["-c", PROGRAM.replace("{same_order}", "False")], TENON_COMMUNICATOR=communicator)

    assert done.returncode == 1
    assert "at all_reduce(sum) of float32[4], `a`" in done.stderr
    assert "at all_gather of float32[2], `b`" in done.stderr
    assert "in group 1 of ranks 0, 1 (call 4 there)" in done.stderr
    assert "in group 2 of ranks 0, 1, 2 (call 4 there)" in done.stderr
    assert done.stderr.count("CollectiveMismatchError: ") == 1


@pytest.mark.slow
@pytest.mark.mpi
def test_groups_in_one_order_go_on():
    done = launch(3, ["-c", PROGRAM.replace("{same_order}", "True")])

    assert done.returncode == 0, done.stderr
