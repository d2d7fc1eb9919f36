"""A run folder has one job at a time; locks of dead jobs are taken over, each by one job."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tenon.errors import TrainingError
from tenon.training import lock


@pytest.fixture(autouse=True)
def no_lock_is_left(tmp_path):
    yield
    lock.release(tmp_path)
    assert Path(os.path.realpath(tmp_path)) not in lock._held


def foreign(folder, age=0.0, **changes):
    """A lock of another host, renewed ``age`` seconds ago."""
    owner = {**lock._identity("0123"), "host": "elsewhere", "machine": "another", **changes}
    path = folder / lock.NAME
    path.write_text(json.dumps(owner))
    os.utime(path, (time.time() - age,) * 2)
    return path


def holder(folder, then="time.sleep(600)"):
    """Another process of this host that holds the lock."""
    program = f"import time; from pathlib import Path; from tenon.training import lock\nlock.take(Path({str(folder)!r}))\nprint('held', flush=True)\n{then}"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_names_its_owner_and_is_gone_when_released(tmp_path):
    held = lock.take(tmp_path)

    owner = json.loads((tmp_path / "lock.json").read_text())
    assert owner["process"] == os.getpid() and owner["host"] == os.uname().nodename
    assert owner["owner"] and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\+00:00", owner["time"])
    assert lock.take(tmp_path) is held, "this process has it already"
    held.release()
    assert os.listdir(tmp_path) == []


def test_a_lock_of_a_living_owner_is_refused_with_its_name(tmp_path):
    foreign(tmp_path, age=lock.STALE / 2, owner="somebody", process=77)

    with pytest.raises(
        TrainingError, match=r"in use by somebody's job on host elsewhere \(process 77, since"
    ) as e:
        lock.take(tmp_path)
    assert "\n" not in str(e.value) and "last sign of life 60 s ago" in str(e.value)
    assert os.listdir(tmp_path) == ["lock.json"]


@pytest.mark.parametrize(
    ("age", "changes"),
    [
        (lock.STALE + 5, {}),
        (0.0, {"machine": lock._machine(), "process": 1, "started": "a former one"}),
        (0.0, {"launch": "l", "attempt": 1}),
        (0.0, {"slurm_job": "88", "slurm_restart": 0}),
    ],
    ids=["silent", "its number is another process's", "an earlier attempt", "requeued"],
)
def test_a_lock_of_an_owner_that_is_gone_is_taken_over(tmp_path, monkeypatch, age, changes):
    monkeypatch.setenv("TENON_LAUNCH", "l")
    monkeypatch.setenv("TENON_ATTEMPT", "2")
    monkeypatch.setenv("SLURM_JOB_ID", "88")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    leftover = tmp_path / ".lock.elsewhere.7.4567"
    leftover.write_text("{")
    os.utime(leftover, (0, 0))
    foreign(tmp_path, age, **{"launch": "", "slurm_job": "", **changes})

    lock.take(tmp_path)

    assert json.loads((tmp_path / "lock.json").read_text())["process"] == os.getpid()
    assert sorted(os.listdir(tmp_path)) == ["failures", "lock.json"]
    record = json.loads((tmp_path / "failures" / "rank-0.json").read_text())
    assert record["host"] == "elsewhere" and record["reason"].startswith(
        "ended without a report some time after"
    )


def test_a_job_that_another_one_took_the_folder_from_writes_nothing_more(tmp_path):
    held = lock.take(tmp_path)
    held.check()
    foreign(tmp_path, owner="somebody")

    with pytest.raises(TrainingError, match=r"was taken over .* names somebody's job"):
        lock.check(tmp_path)
    held.release()
    assert (tmp_path / "lock.json").exists(), "it is the other's"


def test_a_lock_is_renewed_and_a_take_over_that_died_is_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT", 0.02)
    foreign(tmp_path, lock.STALE + 5)
    rival = {**lock._identity("4567"), "machine": "another"}
    claim = tmp_path / ".lock.0123.taken"
    claim.write_text(json.dumps(rival))
    with pytest.raises(TrainingError, match="is in use by"):
        lock.take(tmp_path)
    os.utime(claim, (0, 0))

    lock.take(tmp_path)
    os.utime(tmp_path / "lock.json", (0, 0))

    deadline = time.monotonic() + 60
    while not (tmp_path / "lock.json").stat().st_mtime and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (tmp_path / "lock.json").stat().st_mtime > time.time() - 60
    assert sorted(os.listdir(tmp_path)) == ["failures", "lock.json"]


def test_a_file_system_without_links_has_locks_too(tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    lock.take(tmp_path).release()
    foreign(tmp_path)

    with pytest.raises(TrainingError, match="in use by"):
        lock.take(tmp_path)


@pytest.mark.slow
def test_killed_and_forked_and_ended_owners(tmp_path):
    with holder(tmp_path) as running:
        with pytest.raises(TrainingError, match=rf"process {running.pid}, since .*; it is running"):
            lock.take(tmp_path)
        running.send_signal(signal.SIGSTOP)  # suspended is not gone
        with pytest.raises(TrainingError, match="it is running"):
            lock.take(tmp_path)
        running.kill()
    lock.take(tmp_path).release()
    forking = (
        "import os, sys\nif os.fork() == 0: sys.exit()\nos.wait(); assert lock._held; print(os.listdir('.'))"
    )
    with holder(tmp_path, forking) as forked:
        forked.communicate()
    assert forked.returncode == 0 and os.listdir(tmp_path) == ["failures"]


@pytest.mark.slow
def test_of_many_jobs_that_find_a_stale_lock_one_takes_it_over(tmp_path):
    program = (
        "import sys; from pathlib import Path; from tenon.training import lock; from tenon.errors import TrainingError\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    folder = Path(line.strip())\n"
        "    try:\n"
        "        lock.take(folder); print('held', flush=True)\n"
        "    except TrainingError as e: print('refused' if 'in use by' in str(e) else e, flush=True)\n"
    )
    jobs = [subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]  # fmt: skip
    for job in jobs:
        assert job.stdout.readline() == "ready\n"
    for turn in range(40):
        folder = tmp_path / str(turn)
        folder.mkdir()
        if turn % 2:
            foreign(folder, lock.STALE + 5)
        starts = [
            threading.Thread(target=lambda j=job: (j.stdin.write(f"{folder}\n"), j.stdin.flush()))
            for job in jobs
        ]
        for start in starts:
            start.start()
        for start in starts:
            start.join()
        assert sorted(job.stdout.readline() for job in jobs) == ["held\n"] + ["refused\n"] * 3
        assert set(os.listdir(folder)) - {"failures"} == {"lock.json"}
    for job in jobs:
        job.communicate()
        assert job.returncode == 0
    assert list(tmp_path.glob("*/*lock*")) == []


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_second_job_in_one_run_folder_is_refused_with_one_line(make_project, tmp_path, ranks):
    project = make_project(tmp_path)
    folder = tmp_path / "run"
    endless = ("my.toml", "--run", str(folder), "--set", "epochs=100000")
    first = subprocess.Popen(
        project.command(*endless, ranks=ranks), cwd=tmp_path, env=project.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(folder.glob("checkpoints/*.safetensors")):
        assert first.poll() is None
        time.sleep(0.02)

    refused = [project.train(*endless, ranks=ranks), project.train("--resume", str(folder))]
    first.terminate()
    err = first.communicate(timeout=300)[1]

    for done in refused:
        assert done.code == 2 and done.out == ""
        assert re.fullmatch(r"Error: the run folder .* is in use by .* it is running\. .*\n", done.err), (
            done.err
        )
    assert first.returncode == 143, err
    assert not (folder / "lock.json").exists()
    assert project.train("--resume", str(folder), "--set", "epochs=1").code == 0
