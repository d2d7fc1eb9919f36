"""Clocks count waits for other ranks and reading of data, each once."""

import os
import socket
import time

import pytest

from tenon.distributed.communication.clock import Clock, clock_of, reading
from tenon.distributed.communication.local import LocalCommunicator
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.processes.own_code import is_own
from tenon.distributed.processes.run_queue import RunQueue

SECOND = 1_000_000_000


def test_a_clock_counts_a_wait_once_and_the_part_of_it_that_is_over():
    clock = Clock()
    with clock.waiting():
        time.sleep(0.02)
        during = clock.read()
        with clock.waiting():
            time.sleep(0.02)
    after = clock.read()

    assert during.waits == after.waits == 1
    assert 0.02 * SECOND <= during.waited <= after.waited - 0.02 * SECOND


def test_waits_inside_of_reading_are_no_time_for_data():
    clock = Clock()
    begun = time.monotonic_ns()
    with clock.reading():
        time.sleep(0.02)
        with clock.waiting():
            time.sleep(0.05)
        with clock.reading():
            during = clock.read()
    found, elapsed = clock.read(), time.monotonic_ns() - begun

    assert 0.02 * SECOND <= during.data <= found.data <= elapsed - found.waited
    assert found.waited >= 0.05 * SECOND


def test_a_communicator_without_a_clock_is_timed_with_the_groups_split_from_it():
    def wait(communicator):
        clock = Clock()
        clock.follow(communicator)
        group = communicator.split(0)
        own, beside = clock_of(group), clock_of(communicator.beside())
        before = clock.read().waited
        if communicator.rank == 1:
            time.sleep(0.1)
        group.barrier()
        return own is clock, beside, clock.read().waited - before

    (same, beside, waited), (_, _, late) = run_ranks(2, wait)

    assert same and beside is None
    assert waited > 0.05 * SECOND > late


def test_each_rank_of_a_process_reads_on_its_own_clock():
    def read(communicator):
        Clock().follow(communicator)
        with reading("fetch"):
            time.sleep(0.03 * communicator.rank)
        return clock_of(communicator).read().data

    first, second = run_ranks(2, read)

    assert first < 0.02 * SECOND < second


def test_code_of_packages_is_told_from_code_of_the_user():
    assert is_own("__main__", __file__)
    assert not is_own("tenon.nn.module", "/data/project/tenon/nn/module.py")
    assert not is_own("tenon_mpi.barrier", "/data/project/tenon_mpi/barrier.py")
    assert not is_own("pytest", pytest.__file__)
    assert not is_own("socket", socket.__file__)
    assert not is_own("importlib._bootstrap", "<frozen importlib._bootstrap>")
    assert clock_of(LocalCommunicator()) is None


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux counts it")
def test_the_time_without_a_core_grows_until_its_file_is_closed():
    before = len(os.listdir("/proc/self/fd"))
    queue = RunQueue()
    first = queue.read()
    assert 0 <= first <= queue.read()
    queue.close()
    queue.close()
    assert queue.read() == 0 and len(os.listdir("/proc/self/fd")) == before
