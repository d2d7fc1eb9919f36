"""Jobs that start in one run folder, one of which is killed at times: one trains at a time, to the identical result.

Some folders have the lock of a job that is gone, or of one on another host that may live. 3 pairs in CI, more by
hand: ``ATTACK_SEED=7 pytest -m manual tests/attack/test_pairs_of_jobs.py``.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tenon.training import lock, lock_owner

sys.path.insert(0, str(Path(__file__).parent))

from test_kills import SETTINGS, Attacked, children, make_project, ranks_of

EPOCHS = 40
FOREIGN = {"host": "elsewhere", "machine": "another"}
#: Kind -> what the lock that is there says, and the seconds since it was renewed.
LOCKS = {
    "none": None,
    "silent": (FOREIGN, lock.STALE + 5),
    "dead": ({"process": 1, "started": "a former"}, 0),
    "living": (FOREIGN, 5),
}


class Jobs:
    """Jobs in the folder of one run."""

    def __init__(self, project, folder, choose):
        self.project, self.folder, self.choose = project, folder, choose
        self.running, self.killed, self.ended = [], [], []
        folder.mkdir()

    def start(self, ranks):
        command = self.project.command(
            "my.toml", "--run", str(self.folder), *SETTINGS, "--set", f"epochs={EPOCHS}", ranks=ranks
        )
        job = subprocess.Popen(
            command, cwd=self.project.folder, env=self.project.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.running.append((job, ranks))
        return job

    def kill_owner(self, victim):
        """Kill the job that has the lock, or one of its processes."""
        owner = lock_owner.read(self.folder / lock.NAME) or {}
        for job, ranks in self.running:
            if job.poll() is not None or owner.get("process") not in (job.pid, *children(job.pid)):
                continue
            ranks_there = ranks_of(job, ranks) or [job.pid]
            number = signal.SIGTERM if victim == "terminated" else signal.SIGKILL
            for process in {"rank 0": ranks_there[:1], "all": ranks_there}.get(victim, [job.pid]):
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    continue  # it has come to its end
            self.killed.append(job)

    def ends(self):
        """Wait for all, and return their exit statuses."""
        for job, _ in self.running[len(self.ended) :]:
            err = job.communicate(timeout=300)[1]
            if job.returncode == 2:
                assert err.startswith("Error: the run folder ") or err.startswith("Error: another job"), err
                assert err.count("\n") == 1, err
            else:
                assert job.returncode == 0 or job in self.killed, (job.returncode, err)
            self.ended.append(job.returncode)
        return self.ended

    def check_metrics(self):
        """No job wrote while another one did: steps go back only where one begins."""
        path, last = self.folder / "metrics.jsonl", 0
        for line in path.read_text().splitlines() if path.exists() else []:
            record = json.loads(line)
            assert record.get("resumed") or record["step"] >= last, record
            last = record["step"]


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("pairs", [3, pytest.param(40, marks=pytest.mark.manual)])
def test_of_jobs_in_one_folder_one_trains_at_a_time(tmp_path, pairs):
    choose = random.Random(int(os.environ.get("ATTACK_SEED", "6")))
    project = make_project(tmp_path)
    calm = Jobs(project, tmp_path / "calm", choose)
    calm.start(1)
    assert calm.ends() == [0]
    killed = 0

    for number in range(pairs):
        jobs = Jobs(project, tmp_path / f"run-{number}", choose)
        there, victim = (
            choose.choice([*LOCKS]),
            choose.choice(["nobody", "rank 0", "all", "launcher", "terminated"]),
        )
        if LOCKS[there] is not None:
            said, age = LOCKS[there]
            path = jobs.folder / lock.NAME
            path.write_text(json.dumps({**lock_owner.identity("0123"), **said}))
            os.utime(path, (time.time() - age,) * 2)
        for _ in range(choose.choice((2, 2, 3))):
            jobs.start(choose.choice((1, 1, 2)))
            time.sleep(choose.choice((0, choose.uniform(0, 2))))
        if victim != "nobody" and there != "living":
            while not list(jobs.folder.glob("checkpoints/*")) and any(
                j.poll() is None for j, _ in jobs.running
            ):
                time.sleep(0.01)
            time.sleep(choose.uniform(0, 1))
            jobs.kill_owner(victim)
            time.sleep(choose.choice((0, 0.02, 0.3)))
            jobs.start(1)
        ends = list(jobs.ends())
        killed += len(jobs.killed)
        jobs.check_metrics()
        if there == "living":
            assert set(ends) == {2}
            os.utime(jobs.folder / lock.NAME, (time.time() - lock.STALE - 5,) * 2)
        last = Jobs.start(jobs, 1)
        assert jobs.ends()[-1] == last.returncode == 0
        assert [name for name in os.listdir(jobs.folder) if "lock" in name] == []
        print(f"{number}: {there}, {victim}, {ends}", flush=True)
        (found, position), (expected, end) = map(result, (jobs, calm))
        assert position == end
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    print(f"{pairs} pairs, {killed} kills", flush=True)


def result(jobs):
    attacked = Attacked(jobs.project, 0)
    attacked.folder = jobs.folder
    return attacked.result()
