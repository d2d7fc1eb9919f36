"""The batch scripts under a real Slurm: trained, stopped before the time limit, preempted, cancelled, swept."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

SCRIPTS = Path(__file__).parents[2] / "deploy" / "slurm"
SMALL = ("--ntasks-per-node=1", "--cpus-per-task=1")


def submit(slurm, folder, *arguments, script="train.sbatch", options=SMALL):
    """Submit as the guide says, from the folder of the configuration; the job's number."""
    answer = slurm("sbatch", "--parsable", *options, str(SCRIPTS / script), *arguments, folder=folder)
    return int(answer.partition(";")[0])


def test_a_job_trains_on_two_nodes(slurm, tmp_path, metrics):
    number = submit(slurm, tmp_path, "digits", "--set", "epochs=1")

    job = slurm.wait_for(number, "COMPLETED", "FAILED", "CANCELLED")

    output = (tmp_path / f"tenon-{number}.out").read_text()
    assert job["JobState"] == "COMPLETED", output
    assert "2 ranks on cpu" in output
    final = metrics(tmp_path / "runs" / str(number))[-1]
    assert final["final"] and final["world_size"] == 2 and final["samples_seen"] == 1438
