"""Runs whose ranks, or whose launcher, die at random moments: each goes on to the identical result, with one report.

A run is killed again and again, on mixed numbers of ranks, with a checkpoint after every step written in the
background, until it has finished. The result must be that of a run which nothing disturbed, to the bit:
``deterministic = "world"`` gives the same bits on every number of ranks. After each kill the files are looked at.
20 kills in CI, 1,000 by hand: ``pytest -m manual tests/attack/test_kills.py``.
"""

import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tenon.distributed.processes import process_state
from tenon.serialize.checkpoint import checkpoints, latest_valid
from tenon.training import lock

SETTINGS = (
    "--set", "deterministic=world", "--set", "shards=4", "--set", "model_options.dropout=0.2",
    "--set", "checkpoint.steps=1", "--set", "batch_size=20", "--set", "log.tensorboard=false",
)  # fmt: skip
STEPS = 5
"""Those of an epoch."""
RANKS = (1, 2, 4)
VICTIMS = ("rank", "rank", "rank 0", "launcher", "crash", "all")
PATIENCE = 120.0
HEADLINE = re.compile(r"^=== tenon: rank (\d) of \d on host \S+(, step \d+)? (.+) ===$", re.MULTILINE)
BROKEN = re.compile(r'File "|\bError: ')


def make_project(folder):
    """A folder with a small model, its data and a configuration, as the tests of `tenon train` have it."""
    path = Path(__file__).parents[1] / "training" / "conftest.py"
    specification = importlib.util.spec_from_file_location("training_conftest", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.Project(folder)


def children(process):
    """The living children of a process, and theirs, which are ranks where Python runs in them."""
    try:
        found = [int(c) for c in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []
    return found + [each for child in found for each in children(child)]


def ranks_of(job, count):
    """The processes of a job's ranks by rank; fewer, if it is ending."""
    if count == 1:
        return [job.pid]
    found = {}
    for process in children(job.pid):
        try:
            entries = Path(f"/proc/{process}/environ").read_text().split("\0")
            command = Path(f"/proc/{process}/cmdline").read_text()
        except OSError:
            continue
        own = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
        rank = own.get("PMI_RANK", own.get("OMPI_COMM_WORLD_RANK"))
        if rank is not None and "host_monitor.py" not in command and "siblings.py" not in command:
            found.setdefault(int(rank), process)
    return [found[rank] for rank in sorted(found)]


class Attacked:
    """A run in ``folder`` of the project that dies many times."""

    def __init__(self, project, seed):
        self.project, self.folder = project, project.folder / "killed"
        self.choose = random.Random(seed)
        self.kills = self.reports = self.turns = 0
        self.killed_ranks = set()
        """The ranks that the report of the last kill may name."""

    def turn(self, epochs, killing):
        """Resume the run to the end of ``epochs``; if ``killing``, kill it at a random moment while it runs."""
        ranks, victim = self.choose.choice(RANKS), self.choose.choice(VICTIMS)
        before = self.newest()
        self.turns += 1
        job = subprocess.Popen(
            self.project.command("my.toml", "--run", str(self.folder), *SETTINGS, "--set", f"epochs={epochs}", ranks=ranks),
            cwd=self.project.folder, env=self.project.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes, killed = [], ""
        if killing:
            while self.newest() == before and job.poll() is None:
                time.sleep(0.002)
            time.sleep(self.choose.uniform(0, 0.15))
            processes = ranks_of(job, ranks)
            if job.poll() is None and len(processes) == ranks:
                killed = self.kill(job, processes, victim)
        err = job.communicate(timeout=PATIENCE)[1]
        self.look(processes, ranks, job.returncode, killed, err, before)
        return job.returncode == 0

    def kill(self, job, processes, victim):
        """Kill ``victim``; return what the report has to say."""
        if len(processes) == 1 and victim not in ("crash",):
            victim = "rank 0"
        match victim:
            case "rank":
                victims, number = [self.choose.choice(processes)], signal.SIGKILL
            case "rank 0":
                victims, number = processes[:1], signal.SIGKILL
            case "crash":
                victims, number = [self.choose.choice(processes)], signal.SIGSEGV
            case "launcher":
                victims, number = [job.pid], signal.SIGKILL
            case "all":
                victims, number = processes, signal.SIGKILL
        for process in victims:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                if process == victims[0]:
                    return ""  # it had come to its end
        named = processes[:1] if victim == "launcher" else victims
        self.killed_ranks = {str(processes.index(each)) for each in named}
        return "lost its launcher" if victim == "launcher" else f"was killed by {number.name}"

    def look(self, processes, ranks, status, killed, err, before):
        """Assert that the job left only complete files, and one report if it was killed."""
        told = HEADLINE.findall(err)
        if killed and status != 0 and not told and ranks > 1 and self.metrics()[-1].get("final"):
            pass  # it was leaving, after its end
        elif killed and status != 0:  # else it had ended before
            self.kills += 1
            if ranks > 1:
                assert len(told) == 1 and killed in told[0][2], (killed, told, err)
                assert told[0][0] in self.killed_ranks, (self.killed_ranks, told, err)
                self.reports += 1
                self.records(ranks, killed)
            else:
                assert err == "" and status in (-signal.SIGKILL, -signal.SIGSEGV), (status, err)
        else:
            assert status == 0 and told == [], err
        assert not BROKEN.search(err.replace("Fatal Python error: ", "")) or "SIGSEGV" in killed, err
        deadline = time.monotonic() + PATIENCE
        while any(process_state.alive(each) for each in processes) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not any(process_state.alive(each) for each in processes), "a rank goes on"
        self.files(status, before)

    def records(self, ranks, killed):
        """One record of the last job is of the rank that was reported."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:  # the monitor writes the others' when they have ended
            found = [json.loads(path.read_text()) for path in self.folder.glob("failures/rank-*.json")]
            last = max(found, key=lambda each: each["time"], default={"job": None})
            of_job = [each for each in found if each["job"] == last["job"]]
            if any(each["reported"] for each in of_job):
                break
            time.sleep(0.01)
        (reported,) = (each for each in of_job if each["reported"])
        assert killed in reported["reason"] and reported["size"] == ranks, of_job

    def files(self, status, before):
        """The files of the run are whole, and of this run."""
        saved = self.folder / "checkpoints"
        found = checkpoints(saved)
        assert found and latest_valid(saved) == found[0], "the newest checkpoint is torn"
        assert before is None or self.newest() >= before, "it went back"
        assert len(found) <= 3, "more than two and one whose oldest was about to go"
        assert all(isinstance(line["step"], int) for line in self.metrics()), "a line is torn"
        if status == 0:
            assert not (self.folder / "lock.json").exists()
            assert sorted(os.listdir(saved)) == sorted(one.name for one in found)

    def metrics(self):
        """The lines of the run's metrics."""
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def newest(self):
        """The name of the newest checkpoint; None before any."""
        found = checkpoints(self.folder / "checkpoints") if (self.folder / "checkpoints").exists() else []
        return found[0].name if found else None

    def result(self):
        """All bytes of the model, the optimizer and the position at the end."""
        from tenon.serialize.checkpoint import read_latest

        _, saved = read_latest(self.folder / "checkpoints")
        moments = [s for state in saved["optimizer"]["state"].values() for s in state.values()]
        return [np.asarray(x) for x in (*saved["model"].values(), *moments)], saved["progress"]


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("kills", [20, pytest.param(1000, marks=pytest.mark.manual)])
def test_runs_that_are_killed_at_random_moments_end_as_if_nothing_had_been(tmp_path, kills):
    attacked = Attacked(make_project(tmp_path), seed=int(os.environ.get("ATTACK_SEED", "0")))
    epochs = 0
    while attacked.kills < kills:
        epochs += 2
        while not attacked.turn(epochs, killing=attacked.kills < kills):
            assert attacked.turns < 3 * kills + 20
        print(f"{attacked.kills} kills, {attacked.reports} reports, {attacked.turns} starts", flush=True)

    calm = Attacked(attacked.project, seed=1)
    calm.folder = tmp_path / "calm"
    assert calm.turn(epochs, killing=False)
    (killed, position), (whole, end) = attacked.result(), calm.result()
    assert position == end and position["step"] == epochs * STEPS
    for one, other in zip(killed, whole, strict=True):
        np.testing.assert_array_equal(one, other)


LOCKING = """
import os, sys
from pathlib import Path
from tenon.training import lock
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        while True:
            lock.take(Path(line.strip())).release()
    print(child, flush=True)
    os.waitpid(child, 0)
"""


def test_jobs_that_are_killed_while_they_lock_a_folder_never_lock_others_out(tmp_path):
    choose = random.Random(3)
    with subprocess.Popen(
        [sys.executable, "-c", LOCKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as locking:
        for _ in range(8):
            print(tmp_path, file=locking.stdin, flush=True)
            child = int(locking.stdout.readline())
            time.sleep(choose.uniform(0.002, 0.02))
            os.kill(child, signal.SIGKILL)
            while process_state.alive(child):
                time.sleep(0.001)
            lock.take(tmp_path).release()
            assert not (tmp_path / lock.NAME).exists()
    assert locking.returncode == 0
