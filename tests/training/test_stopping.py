"""Runs that are stopped or killed, and resumed, also on another number of ranks."""

import contextlib
import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

from tenon.serialize.checkpoint import checkpoints, latest_valid
from tenon.testing.suites.communicator import is_mpich

pytestmark = pytest.mark.mpi

SETTINGS = ("--set", "model_options.dropout=0.2")


def start(project, *arguments, ranks=1):
    return subprocess.Popen(
        project.command(*arguments, ranks=ranks), cwd=project.folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=project.environment,
    )  # fmt: skip


def wait_for_checkpoint(folder, process):
    deadline = time.monotonic() + 300
    while not checkpoints(folder / "checkpoints") and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(finished):
    """The weights of the uninterrupted run."""
    return finished("my.toml", *SETTINGS).weights()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_run_goes_on_in_the_middle_of_an_epoch_on_any_number_of_ranks(project, whole, ranks):
    short = ("--set", "checkpoint.steps=1", "--set", "checkpoint.keep=20", *SETTINGS)
    first = project.train("my.toml", *short, "--set", "epochs=2", ranks=2)
    middle = first.folder / "checkpoints" / "step-00000007.safetensors"
    assert middle.exists(), "5 steps an epoch, so this is in the second"

    resumed = project.train("--resume", str(middle), "--set", "epochs=3", ranks=ranks)

    resumed.folder = first.folder
    assert resumed.final["samples_seen"] == 270
    np.testing.assert_allclose(resumed.weights(), whole, rtol=0, atol=2e-5)
    assert [m["step"] for m in resumed.metrics if m.get("resumed")] == [7]


@pytest.mark.slow
def test_a_run_that_goes_on_draws_the_numbers_it_would_have_drawn(project):
    settings = (
        "--set",
        "checkpoint.steps=1",
        "--set",
        "checkpoint.keep=20",
        "--set",
        "data_options.noisy=true",
    )
    first = project.train("my.toml", *settings)
    whole = first.weights()
    resumed = project.train("--resume", str(first.folder / "checkpoints" / "step-00000007.safetensors"))

    resumed.folder = first.folder
    assert resumed.code == 0, resumed.err
    assert [m["step"] for m in resumed.metrics if m.get("resumed")] == [7]
    np.testing.assert_array_equal(resumed.weights(), whole)


@pytest.mark.parametrize(
    ("name", "status", "ranks"),
    [("SIGTERM", 143, 1), pytest.param("SIGUSR1", 138, 2, marks=pytest.mark.slow)],
)
def test_a_signal_finishes_the_step_saves_and_leaves_with_its_status(project, name, status, ranks):
    folder = project.folder / "run"
    process = start(project, "my.toml", "--run", str(folder), "--set", "epochs=100000", ranks=ranks)
    wait_for_checkpoint(folder, process)
    process.send_signal(getattr(signal, name))
    out, err = process.communicate(timeout=300)

    assert process.returncode == status, err
    assert f"stopped by {name} after step " in out
    assert "=== tenon" not in err
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["interrupted"] is True
    assert latest_valid(folder / "checkpoints").stem == f"step-{last['step']:08d}"


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.02, 0.1])
def test_a_ctrl_c_that_mpirun_gets_twice_at_once_still_saves(project, pause):
    if not is_mpich():
        pytest.skip("Open MPI's launcher ends the ranks at the first Ctrl-C")
    folder = project.folder / "run"
    slow = ("--set", "epochs=100000", "--set", "data_options.slow=0.004", "--set", "batch_size=90")
    with open(project.folder / "small.py", "a") as file:
        file.write(SLOW)
    process = start(project, "my.toml", "--run", str(folder), *slow, ranks=2)
    wait_for_checkpoint(folder, process)
    process.send_signal(signal.SIGINT)
    time.sleep(pause)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)

    assert process.returncode not in (0, None), out
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["interrupted"] is True, err
    assert latest_valid(folder / "checkpoints").stem == f"step-{last['step']:08d}"
    assert "=== tenon" not in err
    assert err.count("tenon: the second Ctrl-C followed at once and was delayed until the run was saved") == 1
    assert project.train("--resume", str(folder), "--set", f"epochs={last['epoch']}").code == 0


@pytest.mark.slow
def test_a_second_ctrl_c_later_ends_the_run_at_once(project):
    folder = project.folder / "run"
    with open(project.folder / "small.py", "a") as file:
        file.write(SLOW)
    slow = ("--set", "epochs=100000", "--set", "data_options.slow=0.2", "--set", "batch_size=90")
    process = start(project, "my.toml", "--run", str(folder), *slow, "--set", "checkpoint.steps=1", ranks=2)
    while not (folder / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, err = process.communicate(timeout=300)

    assert time.monotonic() - began < 6, "a step takes 9 s"
    if "assert (!closed) failed" not in out + err:  # where MPICH's own proxy fails, its mpirun ends with 0
        assert process.returncode not in (0, None), out + err
    assert '"interrupted"' not in (folder / "metrics.jsonl").read_text()


@pytest.mark.slow
def test_one_signalled_rank_is_enough_and_a_second_signal_changes_nothing(project):
    folder = project.folder / "run"
    command = project.command("my.toml", "--run", str(folder), "--set", "epochs=100000", ranks=2)
    script = project.folder / "note.sh"
    script.write_text('#!/bin/sh\necho $$ > pid.${PMI_RANK-$OMPI_COMM_WORLD_RANK}\nexec "$@"\n')
    script.chmod(0o755)
    process = subprocess.Popen(
        [*command[:3], str(script), *command[3:]], cwd=project.folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=project.environment,
    )  # fmt: skip
    wait_for_checkpoint(folder, process)
    for _ in range(2):
        with contextlib.suppress(ProcessLookupError):  # it may have left before the second
            os.kill(int((project.folder / "pid.1").read_text()), signal.SIGTERM)
    out, err = process.communicate(timeout=300)

    assert process.returncode == 143, err
    assert out.count("stopped by SIGTERM after step") == 1
    assert latest_valid(folder / "checkpoints") is not None


SLOW = """

import time


class Slow(TensorDataset):
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return super().__getitem__(index)


fast = load


def load(slow: float) -> Splits:
    splits = fast()
    splits.train.__class__, splits.train.seconds = Slow, slow
    return splits
"""
LATE = """

import os
import signal

from tenon.extend import hookimpl
from tenon.plugins.manager import register


class Late:
    # Signals one rank when the ranks have agreed to go on, after the last step of an epoch and after the epoch.

    @hookimpl
    def tenon_step_end(self, session, step, metrics):
        if os.environ["LATE"] == "step" and step == 4 and session.communicator.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    @hookimpl
    def tenon_epoch_begin(self, session, epoch):
        if os.environ["LATE"] == "epoch" and epoch == 2 and session.communicator.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)


register(Late(), "late")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("late", "steps"), [("step", 5), ("epoch", 6)])
def test_a_rank_signalled_between_two_epochs_stops_with_the_others(project, late, steps):
    with open(project.folder / "small.py", "a") as file:
        file.write(LATE)
    project.environment = {**project.environment, "LATE": late}

    run = project.train("my.toml", ranks=2)

    assert run.code == 143, run.err
    assert f"stopped by SIGTERM after step {steps}," in run.out
    assert "=== tenon" not in run.err


FILLING = """

import resource
import signal

from tenon.distributed import get_rank


class Filling(Net):
    calls = 0

    def forward(self, x):
        Filling.calls += 1
        if Filling.calls == 6 and get_rank() == 0:  # no file may grow beyond 4 KB from now on
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        return super().forward(x)
"""


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_one_report_and_keeps_the_last_checkpoint(project):
    with open(project.folder / "small.py", "a") as file:
        file.write(FILLING)
    settings = ("--set", "model=small:Filling", "--set", "log.tensorboard=false")

    done = project.train("my.toml", "--run", "run", "--set", "checkpoint.steps=2", *settings, ranks=2)

    assert done.code == 1
    assert done.err.count("=== tenon: rank 0 of 2") == 1, done.err
    assert "CheckpointWriteError: could not write" in done.err
    found = checkpoints(project.folder / "run" / "checkpoints")
    assert found and {one.stem for one in found} <= {"step-00000004", "step-00000002"}
    assert latest_valid(found[0].parent) == found[0]
    assert len(os.listdir(found[0].parent)) == len(found)


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_refused_before_training(project):
    (project.folder / "run").write_text("a file")

    done = project.train("my.toml", "--set", "output=run")

    assert done.code == 2
    assert "cannot create a run folder" in done.err


KILLED = """

import os
import random
import signal


class Killed(Net):
    # Ends without a report at some moment after its eighth step has begun: nobody handles the timer's signal.
    calls = 0

    def forward(self, x):
        Killed.calls += 1
        if Killed.calls == 8 and "MOMENT" in os.environ:
            moment = random.Random(os.environ["MOMENT"]).uniform(0.0001, 0.1)
            signal.setitimer(signal.ITIMER_REAL, moment)
        return super().forward(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("moments", [1, pytest.param(50, marks=pytest.mark.manual)])
def test_kills_at_any_moment_change_only_the_time(project, moments):
    with open(project.folder / "small.py", "a") as file:
        file.write(KILLED)
    settings = (*SETTINGS, "--set", "model=small:Killed", "--set", f"epochs={20 * moments}")
    whole = project.train("my.toml", *settings, timeout=600).weights()
    folder, alone = project.folder / "killed", project.environment
    arguments = ("my.toml", "--run", str(folder), "--set", "checkpoint.steps=1", *settings)
    for moment in range(moments):
        project.environment = {**alone, "MOMENT": str(moment)}
        killed = project.train(*arguments)
        assert killed.code == -signal.SIGALRM, killed.err
        found = checkpoints(folder / "checkpoints")
        assert found and latest_valid(folder / "checkpoints") == found[0]
    project.environment = alone

    done = project.train(*arguments, timeout=600)

    assert done.code == 0, done.err
    done.folder = folder
    np.testing.assert_array_equal(done.weights(), whole)


ENOUGH = """

from tenon.extend import hookimpl
from tenon.plugins.manager import register


class Enough:
    @hookimpl
    def tenon_step_end(self, session, step, metrics):
        assert metrics.keys() == {"train_loss", "lr", "epoch"}
        if step == 6 and session.rank == session.size - 1:
            assert {"test_loss", "test_accuracy", "samples_per_second", "epoch"} == session.metrics.keys()
            session.stop("good enough")


register(Enough(), "enough")
"""


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_plugin_of_one_rank_stops_the_run(project, ranks):
    with open(project.folder / "small.py", "a") as file:
        file.write(ENOUGH)

    run = project.train("my.toml", ranks=ranks)

    assert run.code == 0, run.err
    assert run.metrics[-1]["stopped"] is True and run.metrics[-1]["step"] == 8
    assert "stopped: good enough\n" in run.out and "stopped after step 8, which is saved in" in run.out
    assert latest_valid(run.folder / "checkpoints").name == "step-00000008.safetensors"
    resumed = project.resume(run, ranks=ranks)
    assert resumed.final["samples_seen"] == 270
