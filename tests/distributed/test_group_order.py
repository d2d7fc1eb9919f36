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


CYCLES = """
import sys
import tenon as torch, tenon.distributed as dist
rank, a, b = dist.get_rank(), torch.ones(4), torch.ones(2)
if sys.argv[1] == "ring":
    groups = [dist.new_group([k, (k + 1) % 4]) for k in range(4)]
    dist.all_reduce(a, group=groups[rank])
    dist.all_reduce(a, group=groups[rank - 1])
mine, _ = dist.new_subgroups(2)
across = dist.new_group([0, 2])
if rank == 0:
    dist.all_reduce(a, group=mine)
    dist.broadcast(b, 0, group=across)
elif rank == 1:
    dist.barrier()
    dist.all_reduce(a, group=mine)
else:
    if rank == 2:
        dist.broadcast(b, 0, group=across)
    dist.barrier()
"""


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["ring", "subgroups"])
def test_cycles_of_four_ranks_and_groups_are_found(kind):
    done = launch(4, ["-c", CYCLES, kind])

    assert done.returncode == 1
    assert done.stderr.count("CollectiveMismatchError: ") == 1
    if kind == "ring":
        for rank, group in enumerate(("0, 1", "1, 2", "2, 3", "0, 3")):
            assert f"rank {rank} at all_reduce(sum) of float32[4], `a` at " in done.stderr
            assert f"in group {rank + 1} of ranks {group} (call 1 there)" in done.stderr
    else:
        assert "rank 1 at barrier at " in done.stderr
        assert "rank 0 at all_reduce(sum) of float32[4], `a` at " in done.stderr


THREADS = """
import threading, time
import tenon as torch, tenon.distributed as dist
rank, a = dist.get_rank(), torch.ones(4)
groups = [dist.new_group([0, 1]) for _ in range(2)]
run = lambda k: dist.all_reduce(a.clone(), group=groups[k])
if rank == 0:
    threads = [threading.Thread(target=run, args=(k,)) for k in (0, 1)]
    threads[0].start(); time.sleep(0.2); threads[1].start()
    for thread in threads:
        thread.join()
    time.sleep(4)
else:
    time.sleep(0.6); run(0); time.sleep(0.2); run(1)
dist.barrier(groups[1])
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_a_rank_whose_threads_used_two_groups_may_compute_while_others_wait():
    done = launch(2, ["-c", THREADS])

    assert done.returncode == 0, done.stderr


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
