"""``tenon launch --hosts`` between hosts: one is added, one is cut off, and returns."""

import json
import re
import time

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.manual]


class Log:
    """What a job has said so far, in a file of its own."""

    def __init__(self, hosts, folder, *arguments, **settings):
        self.path = folder / "log"
        command = "exec tenon launch --hosts hosts " + " ".join(arguments) + " > log 2>&1"
        self.job = hosts.start_on_first("sh", "-c", command, folder=folder, **settings)

    def wait_for(self, pattern, seconds=120):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, text := self.path.read_text() if self.path.exists() else ""):
            assert self.job.poll() is None and time.monotonic() < deadline, f"{pattern}:\n{text}"
            time.sleep(0.1)
        return time.monotonic()


def sizes(folder):
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [line["world_size"] for line in map(json.loads, lines) if line.get("resumed")]


def test_a_run_goes_on_without_a_host_that_is_cut_off_and_with_it_when_it_returns(hosts, tmp_path):
    (tmp_path / "hosts").write_text("node1:2\n")
    log = Log(
        hosts, tmp_path, "--min-ranks 2 --max-restarts 3 digits --run run --set epochs=100000",
        "--set checkpoint.steps=20", TENON_WATCHDOG="10",
    )  # fmt: skip
    log.wait_for(r"attempt 1 of 4, 2 ranks on node1:2")
    log.wait_for(r"epoch +1/")
    (tmp_path / "hosts").write_text("node1:2\nnode2:2\n")
    log.wait_for(r"attempt 2 of 5, 4 ranks on node1:2, node2:2 in run, from step-\d+")
    log.wait_for(r"4 ranks on cpu\n(.*\n)*epoch")

    hosts.cut("node2")
    cut = time.monotonic()
    log.wait_for(r"attempt 2 ended after \S+ s with status \d+: rank \d of 4 on host node1, .*")
    running = log.wait_for(r"attempt 3 of 5, 2 ranks on node1:2 in run, from step-\d+")
    assert running - cut < 10 + 45, "the limit of the watchdog, the end of mpirun, and asking node2"
    log.wait_for(r"attempt 3 of 5(.*\n)*resumes after step")

    hosts.restore("node2")
    log.wait_for(r"attempt 4 of 6, 4 ranks on node1:2, node2:2 in run, from step-\d+")
    log.wait_for(r"attempt 4 of 6(.*\n)*resumes after step")
    log.job.terminate()
    log.job.communicate(timeout=60)
    assert log.job.returncode == 143
    assert sizes(tmp_path) == [4, 2, 4]
