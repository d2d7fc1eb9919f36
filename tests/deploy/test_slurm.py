"""The batch scripts under a real Slurm: trained, stopped before the time limit, preempted, cancelled, swept."""

import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.manual]

SCRIPTS = Path(__file__).parents[2] / "deploy" / "slurm"
SMALL = ("--ntasks-per-node=1", "--cpus-per-task=1")
ENDLESS = ("--set", "epochs=100000", "--set", "checkpoint.every=1000")


def submit(slurm, folder, *arguments, script="train.sbatch", options=SMALL):
    """Submit as the guide says, from the folder of the configuration; the job's number."""
    answer = slurm("sbatch", "--parsable", *options, str(SCRIPTS / script), *arguments, folder=folder)
    return int(answer.partition(";")[0])


def wait_for(condition, output, limit=180):
    """Return when ``condition()`` holds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, output.read_text() if output.exists() else output
        time.sleep(0.2)


def wait_for_text(output, text):
    """Wait until the job's output has ``text``; all that it has then."""
    wait_for(lambda: output.exists() and text in output.read_text(), output)
    return output.read_text()


def step_that_was_saved(output):
    """The step of the line that a run prints when a signal stopped it."""
    return int(output.partition("stopped by SIGTERM after step ")[2].partition(",")[0])


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_trains_two_ranks_on_one_node_and_on_two(slurm, tmp_path, metrics, nodes):
    options = (f"--nodes={nodes}", f"--ntasks-per-node={2 // nodes}", "--cpus-per-task=1")
    number = submit(slurm, tmp_path, "digits", "--set", "epochs=1", options=options)

    job = slurm.wait_for(number, "COMPLETED", "FAILED", "CANCELLED")

    output = (tmp_path / f"tenon-{number}.out").read_text()
    assert job["JobState"] == "COMPLETED" and job["NumNodes"] == str(nodes), output
    assert "2 ranks on cpu" in output
    final = metrics(tmp_path / "runs" / str(number))[-1]
    assert final["final"] and final["world_size"] == 2 and final["samples_seen"] == 1438


def test_a_job_saves_before_its_time_limit_and_goes_on_in_its_next_turn_until_it_is_cancelled(
    slurm, tmp_path, metrics
):
    options = (*SMALL, "--time=2", "--signal=TERM@30")  # Slurm may be up to a minute early.
    number = submit(slurm, tmp_path, "digits", *ENDLESS, options=options)
    output, run = tmp_path / f"tenon-{number}.out", tmp_path / "runs" / str(number)

    saved = step_that_was_saved(wait_for_text(output, "stopped by SIGTERM"))
    wait_for_text(output, f"resumes after step {saved} of {run}")
    wait_for(lambda: metrics(run)[-1]["step"] > saved, output)
    assert slurm.job(number)["Restarts"] == "1"

    slurm("scancel", str(number))

    job = slurm.wait_for(number, "CANCELLED")
    time.sleep(8)  # Longer than what a requeued job waits there.
    assert slurm.job(number)["JobState"] == "CANCELLED" and job["Restarts"] == "1"
    assert output.read_text().count("which is saved in") == 2
    lines = metrics(run)
    assert [line["step"] for line in lines if line.get("resumed")] == [saved]
    assert lines[-1]["interrupted"]


def test_a_preempted_job_saves_makes_way_and_goes_on_afterwards(slurm, tmp_path):
    number = submit(slurm, tmp_path, "digits", *ENDLESS, options=("--ntasks-per-node=1", "--cpus-per-task=4"))
    output = tmp_path / f"tenon-{number}.out"
    wait_for_text(output, "epoch ")

    options = ("--partition=urgent", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=6")
    urgent = int(slurm("sbatch", "--parsable", *options, "--wrap=sleep 1", folder=tmp_path))

    slurm.wait_for(urgent, "COMPLETED")
    saved = step_that_was_saved(wait_for_text(output, "stopped by SIGTERM"))
    wait_for_text(output, f"resumes after step {saved} of {tmp_path}/runs/{number}")
    assert slurm.job(number)["Restarts"] == "1"
    slurm("scancel", str(number))
    slurm.wait_for(number, "CANCELLED")


def test_each_task_of_a_sweep_has_its_settings_and_is_requeued_alone(slurm, tmp_path, metrics):
    rates = (0.01, 0.001, 0.0001)
    lines = [f"--set optimizer.lr={rate} --set epochs=1" for rate in rates[:2]]
    lines.append(f"--set optimizer.lr={rates[2]} --set epochs=100000 --set checkpoint.every=1000")
    (tmp_path / "sweep.txt").write_text("\n".join(lines) + "\n")
    options = (*SMALL, "--array=1-4")
    number = submit(slurm, tmp_path, "digits", "sweep.txt", script="sweep.sbatch", options=options)
    outputs = [tmp_path / f"sweep-{number}_{task}.out" for task in (1, 2, 3, 4)]

    wait_for_text(outputs[2], "epoch ")
    states = [slurm.wait_for(f"{number}_{task}", "COMPLETED", "FAILED")["JobState"] for task in (1, 2, 4)]
    slurm("scancel", "--signal=TERM", f"{number}_3")  # To the ranks alone, as before a time limit.
    saved = step_that_was_saved(wait_for_text(outputs[2], "stopped by SIGTERM"))
    wait_for_text(outputs[2], f"resumes after step {saved}")
    restarts = [slurm.job(f"{number}_{task}")["Restarts"] for task in (1, 2, 3)]
    slurm("scancel", str(number))
    slurm.wait_for(f"{number}_3", "CANCELLED")

    assert states == ["COMPLETED", "COMPLETED", "FAILED"]
    assert "sweep.txt has nothing on line 4." in outputs[3].read_text()
    assert restarts == ["0", "0", "1"]
    runs = [metrics(tmp_path / "runs" / f"{number}_{task}") for task in (1, 2, 3)]
    assert [run[-1].get("final", False) for run in runs] == [True, True, False]
    configurations = [(tmp_path / f"runs/{number}_{task}/config.json").read_text() for task in (1, 2, 3)]
    assert all(f'"lr": {rate}' in text for rate, text in zip(rates, configurations, strict=True))
