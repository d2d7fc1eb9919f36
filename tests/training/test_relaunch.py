"""``tenon launch`` restarts the ranks from the last checkpoint, and ends when it should."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tenon
from tenon.distributed.processes import process_state
from tenon.serialize.checkpoint import checkpoints, latest_valid, read_latest
from tenon.testing.suites.communicator import is_mpich
from tenon.training.launching.supervisor import Outcome

pytestmark = pytest.mark.mpi
OFTEN = ["--set", "checkpoint.steps=2"]


def run(project, *arguments):
    return subprocess.run(
        [project.command()[0], "launch", *arguments], cwd=project.folder, capture_output=True, text=True,
        timeout=300, env=project.environment,
    )  # fmt: skip


def weights_in(folder):
    _, saved = read_latest(folder / "checkpoints")
    return tenon.cat([v.reshape(-1) for v in saved["model"].values()]).numpy()


def said(done):
    return re.findall(r"tenon launch: (.*)$", done.stderr, re.MULTILINE)


@pytest.mark.slow
def test_a_killed_rank_is_followed_by_a_run_with_one_fewer_from_the_last_checkpoint(project, finished):
    whole = finished("my.toml").weights()

    done = run(
        project, "-n", "3", "--max-restarts", "2", "--min-ranks", "2", "my.toml", "--run", "run", *OFTEN,
        "--inject", "rank=2 step=7 kill",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    folder = project.folder / "run"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    ((step, world_size),) = [(m["step"], m["world_size"]) for m in lines if m.get("resumed")]
    assert step in (4, 5, 6)  # the kill may come before rank 0 has written what it saved last
    assert world_size == 2
    first, killed, second, end = said(done)
    assert first == "attempt 1 of 3, 3 ranks in run, from the beginning"
    assert re.fullmatch(
        r"attempt 1 ended after [\d.]+ s with status (9|137): (a rank|rank 2 of 3 on host .*, step \d+) was killed by SIGKILL[^;]*; .*",
        killed,
    )
    assert second == f"attempt 2 of 3, 2 ranks in run, from step-{step:08}.safetensors"
    assert end == "done after 2 attempts"
    weights = weights_in(folder)
    np.testing.assert_allclose(weights, whole, rtol=0, atol=2e-5)


@pytest.mark.slow
def test_a_run_that_fails_every_time_ends_with_its_status_after_the_last_attempt(project):
    faults = ["--inject", "rank=1 step=6 error", "--inject", "rank=1 step=6 attempt=2 error"]
    done = run(project, "-n", "2", "--max-restarts", "1", "my.toml", *OFTEN, *faults)

    assert done.returncode == 1
    assert done.stderr.count("=== tenon: rank 1 of 2 on host") == 2
    lines = said(done)
    assert [re.sub(r"after [\d.]+ s", "after", line).partition(": ")[0] for line in lines[1::2]] == [
        "attempt 1 ended after with status 1", "attempt 2 ended after with status 1",
    ]  # fmt: skip
    assert lines[1].endswith("failed with TrainingError") and "step 6" in lines[1]
    assert "no attempts left; raise --max-restarts and pass --run" in lines[-1]


@pytest.mark.slow
def test_a_refused_configuration_starts_nothing(project):
    done = run(project, "-n", "2", "--max-restarts", "3", "my.toml", "--set", "epoch=3")

    assert done.returncode == 2
    assert "unknown key 'epoch'. Did you mean 'epochs'?" in done.stderr
    assert said(done) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_to_the_launcher_saves_and_ends_it(project, name, status):
    folder = project.folder / "run"
    job = subprocess.Popen(
        [project.command()[0], "launch", "-n", "2", "--max-restarts", "3", "my.toml", "--run", "run", *OFTEN,
         "--set", "epochs=99999"],
        cwd=project.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=project.environment,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not checkpoints(folder / "checkpoints") and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(getattr(signal, name))
    out, err = job.communicate(timeout=300)

    assert job.returncode == status, err
    assert "stopped by" in out or not is_mpich()  # Open MPI's mpirun prints nothing more of its ranks then
    assert latest_valid(folder / "checkpoints") is not None
    assert err.count("tenon launch: attempt") == 2  # it began, it ended


@pytest.mark.slow
def test_ranks_end_when_their_launcher_is_killed(project):
    script = project.folder / "sleep.py"
    script.write_text("import os, time\nopen(f'pid.{os.getpid()}', 'w').close()\ntime.sleep(600)\n")
    job = subprocess.Popen(
        [project.command()[0], "launch", "-n", "2", str(script)], cwd=project.folder, env=project.environment,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while len(started := list(project.folder.glob("pid.*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    job.kill()
    job.wait()

    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{path.suffix[1:]}").exists() for path in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [path for path in started if os.path.exists(f"/proc/{path.suffix[1:]}")] == []


@pytest.mark.slow
def test_a_script_is_told_which_attempt_it_is(project):
    script = project.folder / "script.py"
    script.write_text("import os, sys\nprint(sys.argv[1:])\nsys.exit(os.environ['TENON_ATTEMPT'] == '1')\n")
    done = subprocess.run(
        [project.command()[0], "launch", "-n", "1", "--max-restarts", "1", "script.py", "--fast", "a b"],
        cwd=project.folder, capture_output=True, text=True, timeout=300, env=project.environment,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout == "['--fast', 'a b']\n" * 2
    assert said(done)[-1] == "done after 2 attempts"


@pytest.mark.parametrize("size", [32 << 20, 8 << 30])
@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV, signal.SIGILL])
def test_a_crash_leaves_one_rank_fewer_whatever_the_report_says_of_shared_memory(monkeypatch, number, size):
    monkeypatch.setattr(process_state.os, "statvfs", lambda path: SimpleNamespace(f_blocks=size, f_frsize=1))
    report = f"rank 1 of 3 on host a, step 4 {process_state.killed_by(number)}"

    assert Outcome(status=139, report=report).lost_a_rank
    assert ("/dev/shm" in report) == (size < 1 << 30 and number != signal.SIGILL)
