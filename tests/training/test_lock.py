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
from tenon.training import lock, lock_owner
from tenon.training.metrics import Reporter


@pytest.fixture(autouse=True)
def no_lock_is_left(tmp_path):
    yield
    lock.release(tmp_path)
    assert Path(os.path.realpath(tmp_path)) not in lock._held


def foreign(folder, age=0.0, **changes):
    """A lock of another host, renewed ``age`` seconds ago."""
    owner = {**lock_owner.identity("0123"), "host": "elsewhere", "machine": "another", **changes}
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
        (0.0, {"machine": lock_owner._machine(), "process": 1, "started": "a former one"}),
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


DAMAGED = {
    "empty": b"",
    "truncated": b'{"token": "01',
    "binary": bytes(range(256)),
    "another type": b"[1, 2]",
    "no token": b"{}",
    "a token with a path": b'{"token": "../../x"}',
    "a token with a null": b'{"token": "\\u0000"}',
    "a long token": b'{"token": "' + b"a" * 5000 + b'"}',
    "half of a character": b'{"token": "\\ud800"}',
    "deep": b"[" * 100_000,
    "long": b'{"token": "0123", "owner": "' + b" " * 100_000 + b'"}',
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_lock_is_refused_and_taken_over_when_it_is_old(tmp_path, monkeypatch, content):
    monkeypatch.setattr(lock_owner, "RETRIES", 1)
    path = tmp_path / lock.NAME
    path.write_bytes(content)
    with pytest.raises(TrainingError, match=r"has a lock\.json that no job of tenon has written, or") as e:
        lock.take(tmp_path)
    assert "\n" not in str(e.value) and os.listdir(tmp_path) == [lock.NAME]
    os.utime(path, (0, 0))

    lock.take(tmp_path)

    assert json.loads(path.read_text())["process"] == os.getpid()
    assert sorted(os.listdir(tmp_path)) == ["failures", lock.NAME]


def test_a_lock_that_is_a_link_to_nothing_is_refused(tmp_path):
    (tmp_path / lock.NAME).symlink_to(tmp_path / "nothing")

    with pytest.raises(TrainingError, match=r"has a lock\.json that no job"):
        lock.take(tmp_path)


def test_what_a_lock_says_is_printed_in_one_line(tmp_path):
    foreign(tmp_path, owner="some\nbody\x1b[2J", host={"a": ["\r"]}, process="\x07", time=None)

    with pytest.raises(TrainingError, match="in use by somebody") as e:
        lock.take(tmp_path)
    assert all(character.isprintable() for character in str(e.value))


def test_a_lock_from_the_future_names_the_file_to_delete(tmp_path):
    foreign(tmp_path, age=-86400.0)

    with pytest.raises(TrainingError, match=r"lies 86\d\d\d s in the future: delete it"):
        lock.take(tmp_path)


def test_a_living_owner_whose_process_cannot_be_seen_is_not_gone(tmp_path, monkeypatch):
    """``/proc`` hides processes of other users where it is mounted with ``hidepid``."""
    own = {"machine": lock_owner._machine(), "process": 2**22 + 1, "started": "77"}

    def hidden(process, number):
        raise PermissionError

    assert lock_owner.is_gone(own, None, 0.0), "there is no such process"
    monkeypatch.setattr(os, "kill", hidden)
    assert not lock_owner.is_gone(own, None, 0.0) and lock_owner.is_gone(own, None, lock.STALE + 1)


@pytest.mark.slow
def test_a_forked_child_does_not_have_the_lock_of_its_parent(tmp_path):
    program = (
        "import os; from pathlib import Path; from tenon.training import lock; from tenon.errors import TrainingError\n"
        "folder = Path(os.getcwd()); lock.take(folder); child = os.fork()\n"
        "if child == 0:\n"
        "    try: lock.take(folder)\n"
        "    except TrainingError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)

    assert "is in use by" in done.stdout and "it is running" in done.stdout, done.stdout + done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_full_disk_is_refused_and_nothing_is_left(tmp_path):
    program = (
        "import resource; from pathlib import Path; from tenon.training import lock; from tenon.errors import TrainingError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (N, N))\n"
        "try: lock.take(Path('.'))\n"
        "except TrainingError as error: print(error)\n"
    )
    for limit in (0, 100):
        command = [sys.executable, "-c", program.replace("N, N", f"{limit}, {limit}")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert re.match(r"cannot lock the run folder .*: File too large .*--run", done.stdout), done.stderr
        assert os.listdir(tmp_path) == []


def test_a_record_that_cannot_be_written_does_not_refuse_the_folder(tmp_path, capsys):
    (tmp_path / "failures").write_text("a file in its place")
    foreign(tmp_path, age=lock.STALE + 5)

    lock.take(tmp_path)

    assert "no record of the job that left its lock could be written" in capsys.readouterr().err
    (tmp_path / "failures").unlink()


@pytest.mark.parametrize("record", ["[1]", '{"time": 3}', "[" * 100_000], ids=["list", "number", "deep"])
def test_a_damaged_record_of_a_failure_is_replaced(tmp_path, record):
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "rank-0.json").write_text(record)
    foreign(tmp_path, age=lock.STALE + 5)

    lock.take(tmp_path)

    assert json.loads((tmp_path / "failures" / "rank-0.json").read_text())["host"] == "elsewhere"


def test_replies_that_a_file_server_loses_do_not_lose_the_lock(tmp_path, monkeypatch):
    """NFS repeats a request whose answer was lost; the server then says that it has been done already."""
    link, replace = os.link, os.replace

    def link_twice(source, target):
        link(source, target)
        link(source, target)

    def replace_twice(source, target):
        replace(source, target)
        replace(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    monkeypatch.setattr(os, "replace", replace_twice)
    foreign(tmp_path, age=lock.STALE + 5)
    (tmp_path / "failures").write_text("")  # so that only the lock is replaced

    lock.take(tmp_path).check()

    assert sorted(os.listdir(tmp_path)) == ["failures", lock.NAME]


def test_a_job_that_was_suspended_and_lost_its_folder_writes_no_metrics(tmp_path):
    lock.take(tmp_path)
    reporter = Reporter(tmp_path, 1, 1, 0)
    reporter.report({"train_loss": 1.0}, 1)
    foreign(tmp_path)
    lock._held[Path(os.path.realpath(tmp_path))]._renewed -= 3 * lock.BEAT  # it did not run meanwhile

    with pytest.raises(TrainingError, match="was taken over"):
        reporter.report({"train_loss": 1.0}, 2)
    reporter._metrics.close()
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1
    os.unlink(tmp_path / lock.NAME)


def test_a_lock_is_renewed_and_a_take_over_that_died_is_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT", 0.02)
    foreign(tmp_path, lock.STALE + 5)
    rival = {**lock_owner.identity("4567"), "machine": "another"}
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


MEANWHILE = """

import os
import subprocess
import sys

late = load


def load(start: bool = False) -> Splits:
    if start:  # another job trains from beginning to end while this one reads its data
        command = [sys.executable, "-m", "tenon.cli", "train", "my.toml", "--run", "run"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return late()
"""


@pytest.mark.slow
def test_a_job_that_starts_while_another_trains_in_its_folder_does_not_begin_anew(make_project, tmp_path):
    project = make_project(tmp_path)
    with open(tmp_path / "small.py", "a") as file:
        file.write(MEANWHILE)

    done = project.train("my.toml", "--run", "run", "--set", "data_options.start=true", "--set", "seed=7")

    assert done.code == 2 and "another job has trained in the run folder" in done.err, done.err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["seed"] == 0
    assert not (tmp_path / "run" / "lock.json").exists()
    assert project.train("my.toml", "--run", "run").code == 0
