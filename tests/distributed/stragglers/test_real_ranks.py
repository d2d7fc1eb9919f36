"""Ranks that are slow in scripts: who is named, what for, and how often."""

import re
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

PROGRAM = str(Path(__file__).parents[1] / "programs" / "slow_ranks.py")
QUICK = {"TENON_SLOW_RANKS_WINDOW": "2", "TENON_SLOW_RANKS": "30"}
"""A short window, and so a threshold that a busy machine does not exceed in it."""

pytestmark = pytest.mark.mpi


def said(done):
    """The headlines on standard error: ranks, and whether they have become slow."""
    lines = re.findall(r"^tenon: .*(?:node|rank) (\d+) .*(is slow|no longer slow)", done.stderr, re.MULTILINE)
    return [(int(rank), state == "is slow") for rank, state in lines]


@pytest.mark.slow
def test_a_script_with_a_rank_that_is_slow_for_a_while_says_so_twice():
    done = launch(2, [PROGRAM, "compute", "1", "60"], TENON_WATCHDOG="0", **QUICK)

    assert done.returncode == 0, done.stderr
    assert said(done) == [(1, True), (1, False)], done.stderr
    assert f"most often at {PROGRAM}:" in done.stderr and " in compute (" in done.stderr
    assert "part: computing" in done.stderr and "the other rank waits for it" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("communicator", "nodes"),
    [("mpi", "1"), ("mpi-messages", "2"), ("mpi", "2")],
    ids=["one", "messages", "two"],
)
@pytest.mark.parametrize(("kind", "part"), [("compute", "computing"), ("data", "reading data")])
def test_the_rank_and_the_part_are_right_on_every_transport(size, communicator, nodes, kind, part):
    variables = {"TENON_COMMUNICATOR": communicator, "TENON_MPI_NODES": nodes, **QUICK}
    done = launch(size, [PROGRAM, kind, str(size - 1), "60"], **variables)

    assert said(done) == [(size - 1, True), (size - 1, False)], done.stderr
    assert f"part: {part}" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_node_of_which_all_ranks_are_slow_is_named():
    done = launch(4, [PROGRAM, "compute", "2,3", "60"], TENON_MPI_NODES="2", **QUICK)

    assert done.stderr.startswith("tenon: node 1 (host "), done.stderr
    assert "ranks 2, 3) is slow: the other 2 ranks wait for it" in done.stderr
    assert said(done) == [(1, True), (1, False)], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_balanced_training_says_nothing(size):
    done = launch(size, [PROGRAM, "compute", "", "20"])

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_search_can_be_turned_off():
    done = launch(2, [PROGRAM, "compute", "1", "5"], **{**QUICK, "TENON_SLOW_RANKS": "0"})

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_threshold_that_is_no_number_ends_the_job():
    done = launch(2, ["-c", "import tenon.distributed as d; d.get_rank()"], TENON_SLOW_RANKS="often")

    assert done.returncode == 1
    assert "TENON_SLOW_RANKS='often' is not a number of percent" in done.stderr
