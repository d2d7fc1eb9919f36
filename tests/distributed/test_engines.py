"""The engines below the communicator: barrier in shared memory, the bits of a sum, an engine of a plugin."""

import mmap
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tenon.distributed.communication.reduction import ReduceOp, combine, reduce_into
from tenon.errors import RankFailedError
from tenon.testing.suites.communicator import launch
from tenon_mpi.barrier import LINE, SharedBarrier

sys.path.insert(0, str(Path(__file__).parent))

from happening import LIMIT, in_time, soon

PROGRAMS = Path(__file__).parent / "programs"


def barrier_lines(count):
    """What ``count`` ranks share, as lines; a rank makes its ``SharedBarrier`` of them in its own process."""
    memory = mmap.mmap(-1, LINE * count)
    return [memoryview(memory)[LINE * r : LINE * (r + 1)].cast("q") for r in range(count)]


def forked(work, *args):
    """Run ``work(*args)`` in another process; return its number. Its exit status says whether it raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(*args)
            status = 0
        finally:
            os._exit(status)
    return child


def meet(lines, rank):
    barrier = SharedBarrier(lines, rank, lambda: None, False)
    results = [barrier.compare(step) for step in range(200)]
    results.append(barrier.compare(rank))
    barrier.wait()
    time.sleep(0.01 * rank)
    barrier.wait()
    assert results == [True] * 200 + [False]


def test_ranks_meet_in_shared_memory_and_compare_a_word():
    lines = barrier_lines(3)
    children = [forked(meet, lines, rank) for rank in (1, 2)]
    meet(lines, 0)

    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def disagree(lines, rank):
    barrier = SharedBarrier(lines, rank, lambda: None, False)
    assert not barrier.compare(1 + (rank == 1), 5 + (rank == 2))
    assert barrier.common_position == -1
    assert barrier.compare(1, 5) and barrier.common_position == 5


def test_ranks_that_disagree_know_alike_whether_they_share_a_position():
    lines = barrier_lines(3)
    children = [forked(disagree, lines, rank) for rank in (1, 2)]
    disagree(lines, 0)

    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def test_a_dead_rank_is_noticed_by_those_that_wait_in_shared_memory():
    lines = barrier_lines(2)
    child = forked(lambda: SharedBarrier(lines, 1, lambda: None, False).wait())
    barrier = SharedBarrier(lines, 0, lambda: None, False)
    barrier.wait()
    os.waitpid(child, 0)  # As a launcher does: a zombie still has its number.
    began = time.monotonic()

    with pytest.raises(RankFailedError, match=rf"local rank 1 \(process {child}\) died"):
        barrier.wait()
    assert in_time(time.monotonic() - began, LIMIT)


def claim(lines, rank):
    assert SharedBarrier(lines, rank, lambda: None, False).claim_report() is (rank == 2)


def test_one_rank_reports_also_where_it_is_gone_when_the_next_one_asks():
    lines = barrier_lines(3)

    ends = [os.waitpid(forked(claim, lines, rank), 0)[1] for rank in (2, 0, 1)]

    assert ends == [0, 0, 0]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_sums_are_trees_over_the_ranks_whichever_array_takes_the_result(count):
    rng = np.random.default_rng(count)
    arrays = [rng.standard_normal(100).astype(np.float32) for _ in range(count)]

    def tree(parts):
        if len(parts) == 1:
            return parts[0]
        half = 1 << (len(parts) - 1).bit_length() - 1
        return tree(parts[:half]) + tree(parts[half:])

    for target in range(count):
        copies = [array.copy() for array in arrays]
        combine(copies, ReduceOp.SUM, copies[target])
        assert (copies[target] == tree(arrays)).all()
    mean = np.empty(100, np.float32)
    reduce_into(arrays, ReduceOp.AVG, mean)
    assert (mean == tree(arrays) / np.float32(count)).all()


@pytest.mark.slow
@pytest.mark.mpi
def test_every_engine_gives_the_same_bits_on_four_ranks():
    digests = {
        launch(4, [str(PROGRAMS / "sum_digest.py")], **variables).stdout
        for variables in (
            {"TENON_COMMUNICATOR": "mpi-shared"},
            {"TENON_COMMUNICATOR": "mpi-messages"},
            {"TENON_COMMUNICATOR": "mpi-hierarchical", "TENON_MPI_NODES": "2"},
        )
    }

    assert len(digests) == 1 and len(digests.pop()) == 65


@pytest.mark.slow
@pytest.mark.mpi
def test_buckets_are_reduced_between_nodes_while_backward_goes_on():
    done = launch(4, [str(PROGRAMS / "overlap.py")], TENON_MPI_NODES="2")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "started during backward: True; same as without: True\n"


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("kind", "reports"), [("kill", (0, 1)), pytest.param("raise", (1,), marks=pytest.mark.slow)]
)
def test_a_rank_that_dies_inside_a_sum_ends_the_job_and_leaves_no_shared_memory(tmp_path, kind, reports):
    def dying(folder):
        done = launch(4, [str(PROGRAMS / "dying_inside.py"), kind, str(folder / "clock")])
        return done, time.time() - float((folder / "clock").read_text())

    done = soon(dying, LIMIT, tmp_path)

    assert done.returncode != 0
    # Open MPI's launcher ends the others 0.3 s after a kill; one of them may have noticed by then.
    assert done.stderr.count("=== tenon: rank") in reports, done.stderr
    mapped = {line.removesuffix(" (deleted)") for line in done.stdout.split("\n") if "/dev/shm/" in line}
    assert mapped and not [path for path in mapped if Path(path).exists()]


@pytest.mark.slow
@pytest.mark.mpi
def test_settings_that_cannot_be_are_refused():
    code = "import tenon.distributed as d; d.get_rank()"
    for variables, words in (
        ({"TENON_MPI_NODES": "two"}, "TENON_MPI_NODES='two' is not a number of nodes"),
        ({"TENON_MPI_NODES": "2", "TENON_COMMUNICATOR": "mpi-shared"}, "mpi-shared is for ranks of one node"),
        (
            {"TENON_MPI_NODES": "2", "TENON_COMMUNICATOR": "mpi-hierarchical"},
            "the same number of ranks on every",
        ),
    ):
        done = launch(3, ["-c", code], **variables)
        assert done.returncode == 1 and words in done.stderr, done.stderr


ENGINE = '''
from mpi4py import MPI
import numpy as np
from tenon.extend import Communicator, engine


class Star(Communicator):
    """Everybody tells everybody everything."""

    name = "star"

    def __init__(self):
        self._comm = MPI.COMM_WORLD.Dup()
        self._calls = 0
        super().__init__(self._comm.Get_rank(), self._comm.Get_size())

    def agree(self, call):
        self._calls += 1
        texts = self._comm.allgather(call.describe(self.step))
        if len(set(texts)) > 1:
            raise engine.mismatch(texts, self._calls)

    def perform_all_reduce(self, source, target, op):
        engine.reduce_into(self._comm.allgather(source), op, target)

    def perform_broadcast(self, target, root):
        target[...] = self._comm.allgather(target)[root]

    def perform_all_gather(self, source, target):
        target[...] = self._comm.allgather(source)

    def perform_reduce_scatter(self, source, target, op):
        engine.reduce_into([rows[self.rank] for rows in self._comm.allgather(source)], op, target)

    def perform_all_gather_bytes(self, payload):
        return self._comm.allgather(payload)
'''

PLUGIN = """
from tenon.extend import hookimpl


@hookimpl
def tenon_communicators():
    return {"star": "tenon_star.engine:Star"}
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_a_plugin_brings_an_engine_that_passes_the_suite(tmp_path):
    info = tmp_path / "tenon_star-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tenon-star\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[tenon]\ntenon_star = tenon_star.plugin\n")
    package = tmp_path / "tenon_star"
    package.mkdir()
    for name, text in (("__init__", ""), ("plugin", PLUGIN), ("engine", ENGINE)):
        (package / f"{name}.py").write_text(text)

    done = launch(
        2,
        ["-m", "tenon.testing.suites.communicator_run"],
        timeout=300,
        TENON_COMMUNICATOR="star",
        PYTHONPATH=str(tmp_path),
    )

    assert done.returncode == 0, done.stderr
    assert "FAIL" not in done.stdout and done.stdout.count("PASS") > 20, done.stdout


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_of_a_node_gather_into_one_place_of_memory():
    done = launch(3, [str(PROGRAMS / "common_memory.py")], TENON_COMMUNICATOR="mpi-shared")

    assert done.stdout.count("common") == 3, done.stderr


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_that_send_messages_have_no_memory_in_common():
    program = "import tenon.distributed as d; print(d.get_communicator().common_memory(99, name='x'))"
    done = launch(2, ["-c", program], TENON_COMMUNICATOR="mpi-messages")

    assert done.stdout.split() == ["None", "None"], done.stderr
