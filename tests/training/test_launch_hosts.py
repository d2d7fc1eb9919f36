"""``tenon launch --hosts``: where ranks run, as hosts leave and return."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from tenon.errors import LaunchError
from tenon.testing.suites.communicator import is_mpich
from tenon.training.launching import places as module
from tenon.training.launching.command import _target
from tenon.training.launching.hosts import Host, HostFile, Launcher, parse
from tenon.training.launching.places import Place, Places


class Hosts:
    """A launcher whose hosts answer unless they are ``down``, and a clock."""

    def __init__(self, monkeypatch):
        self.down = set()
        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def reachable(self, hosts):
        return {host.name for host in hosts} - self.down

    def look(self, places, place):
        """What ``places`` finds better within the time for which a change must last."""
        self.now += module.PERIOD + 0.1
        first = places.better(place)
        self.now += module.PERIOD + 0.1
        return first or places.better(place)


@pytest.fixture
def hosts(monkeypatch):
    return Hosts(monkeypatch)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("a:2\nb:2\n")
    return path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("node1:x", r"line 1: 'node1:x' is no host"),
        ("node1\n\n# fine\nnode2 slot=3", r"line 4: 'node2 slot=3' is no host"),
        ("a:1\na:2", r"line 2: a is listed twice"),
        ("-hosts", r"'-hosts' is no host"),
        ("a,b", r"'a,b' is no host"),
    ],
)
def test_a_line_that_is_no_host_is_named(text, problem):
    with pytest.raises(LaunchError, match=problem):
        parse(text)


def test_a_host_file_that_cannot_be_read_any_more_changes_nothing(file):
    read = HostFile(file)
    file.write_text("a:2\nb:")
    assert not read.read() and "line 2: 'b:' is no host" in read.problem
    file.unlink()
    assert not read.read() and "there is no host file" in read.problem
    file.write_bytes(b"\xff\xfe")
    assert not read.read() and "cannot read the host file" in read.problem
    assert read.hosts == (Host("a", 2), Host("b", 2))
    file.write_text("a:2\n")
    assert read.read() and read.problem == "" and read.hosts == (Host("a", 2),)


def test_without_hosts_a_lost_rank_is_one_fewer_down_to_the_least(hosts):
    places = Places(2, 4, hosts)
    assert not places.may_change
    counts = []
    for _ in range(4):
        place = places.next()
        counts.append(place.ranks)
        places.lose(place, "anywhere")
    assert counts == [4, 3, 2, 2]


def test_only_numbers_that_fit_the_run_are_taken(hosts, file):
    def unfit(ranks):
        return "an odd number" if ranks % 2 else None

    places = Places(2, 4, hosts, unfit=unfit)
    places.lose(places.next(), "")
    assert places.next() == Place(2)
    file.write_text("a:2\nb:1\n")
    assert Places(1, None, hosts, file, unfit).next() == Place(2, (Host("a", 2),))
    with pytest.raises(LaunchError, match=r"no number of ranks from 3 to 3 fits the run: an odd number"):
        Places(3, 3, hosts, file, unfit)


def test_a_host_that_does_not_answer_is_left_out_until_it_does(hosts, file):
    places = Places(2, 4, hosts, file)
    place = places.next()
    assert place == Place(4, (Host("a", 2), Host("b", 2)))

    hosts.down.add("b")
    places.lose(place, "a")  # the report was a's, which waited for b
    fewer = places.next()
    assert fewer == Place(2, (Host("a", 2),))
    assert hosts.look(places, fewer) is None

    hosts.down.clear()
    assert hosts.look(places, fewer) is None  # not asked again yet
    hosts.now += module.ASKING_PERIOD
    assert hosts.look(places, fewer) == place


def test_a_rank_lost_on_a_host_that_answers_leaves_room_for_one_fewer_there(hosts, file):
    places = Places(2, 4, hosts, file)
    places.lose(places.next(), "a.cluster.example")
    assert places.next() == Place(3, (Host("a", 1), Host("b", 2)))
    places.lose(places.next(), "somewhere else")
    assert places.next() == Place(2, (Host("a", 1), Host("b", 1)))
    places.lose(places.next(), "")  # two are needed: with those that there are
    assert places.next() == Place(4, (Host("a", 2), Host("b", 2)))


def test_changes_of_the_file_count_once_they_last(hosts, file):
    places = Places(2, 6, hosts, file)
    place = places.next()
    hosts.now += 60
    assert hosts.look(places, place) is None

    file.write_text("a:2\nb:2\nc:4\n")
    hosts.now += module.PERIOD + 0.1
    assert places.better(place) is None
    file.write_text("a:2\nb:2\nc:1\n")  # still being edited
    hosts.now += module.PERIOD + 0.1
    assert places.better(place) is None
    assert hosts.look(places, place) == Place(5, (Host("a", 2), Host("b", 2), Host("c", 1)))

    file.write_text("b:2\nc:1\n")
    without = hosts.look(places, place)
    assert without == Place(3, (Host("b", 2), Host("c", 1)))
    file.write_text("c:1\n")  # fewer than needed: the job goes on where it is
    assert hosts.look(places, without) is None
    assert places.next() is None
    assert places.missing().endswith("has room for 1 rank of 2 that are needed")
    hosts.down.add("c")
    hosts.now += 60
    assert places.next() is None and "no answer from c" in places.missing()


def test_what_is_missing_is_counted_by_numbers_that_fit(hosts, file):
    for high in (4, None):
        file.write_text("a:2\n")
        places = Places(1, high, hosts, file, lambda ranks: "an odd number" if ranks % 2 else None)
        file.write_text("a:1\n")
        assert places.next() is None
        assert places.missing().endswith("has room for 1 rank of 2 that are needed")


def test_more_than_the_most_ranks_are_never_started(hosts, file):
    file.write_text("a:64\n")
    assert Places(1, 8, hosts, file).next() == Place(8, (Host("a", 8),))
    assert Places(1, None, hosts, file).next() == Place(64, (Host("a", 64),))


def test_a_launcher_that_places_no_hosts_is_refused():
    with pytest.raises(LaunchError, match=r"MPICH's or Open MPI's mpirun, and echo is neither"):
        Launcher("echo").start(2, [Host("a", 2)])
    with pytest.raises(LaunchError, match=r"cannot run nowhere-at-all --version"):
        Launcher("nowhere-at-all").start(2, [Host("a", 2)])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["x.toml"], "how many ranks? Pass -n 4, or a file of hosts with --hosts."),
        (["-n", "2", "--max-ranks", "4", "x.toml"], "on which hosts would more ranks run?"),
        (["-n", "2", "--min-ranks", "3", "x.toml"], "at least 3 ranks, at most 2?"),
        (["--hosts", "none", "my.toml"], "there is no host file 'none'"),
        (["--hosts", "odd", "my.toml"], "odd, line 1: 'a b c' is no host"),
        (
            ["--hosts", "two", "my.toml", "--set", "parallel.tensor=3"],
            "no number of ranks from 1 to 2 fits the run: parallel: pipeline = 1",
        ),
        (["-n", "2", "my.toml", "--inject", "rank=1 kill"], "it has no step"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_started_is_refused_before_any_rank(project, arguments, problem):
    (project.folder / "odd").write_text("a b c\n")
    (project.folder / "two").write_text("a:2\n")
    done = subprocess.run(
        [project.command()[0], "launch", *arguments], cwd=project.folder, capture_output=True, text=True,
        timeout=300, env=project.environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert problem in done.stderr and done.stderr.count("\n") == 1


REMOTE = """#!/bin/sh
# Stands for ssh: every host is this machine, and refuses while a file says that it is down.
while :; do case "$1" in -*) shift ;; *) break ;; esac; done
host=$1
shift
[ -e "{folder}/down-$host" ] && {{ echo "$host: no route to host" >&2; exit 255; }}
exec sh -c "$*"
"""


class Job:
    """A job of ``tenon launch`` on hosts that are all this machine."""

    def __init__(self, project, *arguments):
        self.folder = project.folder
        remote = self.folder / "remote"
        remote.write_text(REMOTE.format(folder=self.folder))
        remote.chmod(0o755)
        environment = {
            **project.environment, "HYDRA_LAUNCHER_EXEC": str(remote), "PRTE_MCA_plm_ssh_agent": str(remote),
        }  # fmt: skip
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [project.command()[0], "launch", *arguments], cwd=self.folder, stdout=log, stderr=log,
                env=environment,
            )  # fmt: skip

    def hosts(self, *lines):
        (self.folder / "new").write_text("".join(f"{line}\n" for line in lines))
        os.replace(self.folder / "new", self.folder / "hosts")

    def text(self):
        return (self.folder / "log").read_text()

    def wait_for(self, pattern, seconds=120):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text()):
            assert self.process.poll() is None and time.monotonic() < deadline, f"{pattern}:\n{self.text()}"
            time.sleep(0.05)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise


@pytest.fixture
def start(project):
    jobs = []

    def begin(*arguments, hosts):
        (project.folder / "hosts").write_text("".join(f"{line}\n" for line in hosts))
        jobs.append(Job(project, "--hosts", "hosts", *arguments))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.end()


def resumptions(folder):
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["world_size"]) for line in lines if line.get("resumed")], lines


@pytest.mark.slow
@pytest.mark.mpi
def test_a_run_goes_on_with_the_hosts_that_there_are_and_loses_no_step(start, finished):
    whole = finished("my.toml", "--set", "epochs=200", "--set", "log.tensorboard=false").final
    job = start(
        "--min-ranks", "2", "--max-ranks", "4", "my.toml", "--run", "run", "--set", "epochs=200", "--set",
        "log.tensorboard=false", "--set", "log.every=1", "--inject", "rank=0 step=40 slow=0.02", "--inject",
        "rank=0 step=200 attempt=2 slow=0.02",
        hosts=["n1:1", "n2:1"],
    )  # fmt: skip
    job.wait_for(r"attempt 1 of 1, 2 ranks on n1:1, n2:1 in run, from the beginning")
    job.wait_for(r"injects 'rank=0 step=40")
    job.hosts("n1:1", "n2:1", "n3:1")
    job.wait_for(r"hosts have changed: saves, to go on with 3 ranks on n1:1, n2:1, n3:1")
    job.wait_for(r"attempt 1 ended after \S+ s to go on with 3 ranks")
    job.wait_for(r"attempt 2 of 2, 3 ranks on n1:1, n2:1, n3:1 in run, from step-\d+")
    job.wait_for(r"injects 'rank=0 step=200")
    job.hosts("n1:1", "n3:1")
    job.wait_for(r"attempt 3 of 3, 2 ranks on n1:1, n3:1 in run, from step-\d+")
    assert job.process.wait(300) == 0, job.text()
    assert "done after 3 attempts" in job.text()
    resumed, lines = resumptions(job.folder)
    assert [size for _, size in resumed] == [3, 2]
    # What was saved for the change is the very last step of the attempt: none is computed twice.
    steps = [line["step"] for line in lines if "train_loss" in line]
    assert steps == sorted(set(steps))
    assert lines[-1]["samples_seen"] == 200 * 90
    assert lines[-1]["test_loss"] == pytest.approx(whole["test_loss"], rel=0.02)


@pytest.mark.slow
@pytest.mark.mpi
def test_a_job_waits_for_hosts_and_goes_on_without_one_that_has_gone(start):
    job = start(
        "--min-ranks", "2", "--max-restarts", "2", "my.toml", "--run", "run", "--set", "epochs=2000",
        "--set", "checkpoint.steps=2", "--inject", "rank=2 step=30 after=0.5 kill", "--inject",
        "rank=0 step=30 slow=0.05",
        hosts=["n1:1"],
    )  # fmt: skip
    job.wait_for(r"waits for hosts: hosts has room for 1 rank of 2 that are needed")
    job.hosts("n1:1", "n2:1", "n3:1")
    job.wait_for(r"attempt 1 of 3, 3 ranks on n1:1, n2:1, n3:1")
    job.wait_for(r"injects 'rank=0 step=30")
    (job.folder / "down-n3").touch()
    job.wait_for(r"attempt 1 ended after \S+ s with status \d+: ")
    job.wait_for(r"attempt 2 of 3, 2 ranks on n1:1, n2:1 in run, from step-\d+")
    job.wait_for(r"resumes after step")
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(60) == 143
    assert "stopped by" in job.text() or not is_mpich()


@pytest.mark.slow
@pytest.mark.mpi
def test_a_script_gets_sigterm_and_starts_again_with_more_ranks(start, project):
    (project.folder / "loop.py").write_text(
        "import time\nfrom tenon.distributed import get_rank, get_world_size, barrier\n"
        "barrier()\nsize = get_world_size()\n"
        "print(f'rank {get_rank()} of {size}', flush=True)\n"
        "time.sleep(600 if size < 3 else 0)\n"
    )
    job = start("--max-ranks", "3", "loop.py", hosts=["n1:2"])
    job.wait_for(r"rank \d of 2")
    job.hosts("n1:2", "n2:1")
    assert job.process.wait(120) == 0, job.text()
    assert "attempt 2 of 2, 3 ranks on n1:2, n2:1" in job.text()
    assert len(re.findall(r"rank \d of 3", job.text())) == 3


@pytest.mark.parametrize(
    ("settings", "fitting"),
    [
        ((), [1, 2, 3, 4, 5, 6, 7, 8]),
        (("parallel.tensor=2",), [2, 4, 6, 8]),
        (("parallel.tensor=2", "parallel.data=1", "parallel.shard=1"), [2]),
        (("parallel.tensor=2", "parallel.shard=-1"), [2, 4, 6, 8]),
        (('deterministic="world"', "shards=4"), [1, 2, 4]),
        (('deterministic="world"', "shards=4", "parallel.shard=-1"), [1, 2, 4]),
        (("parallel.auto=true",), [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_numbers_of_ranks_that_fit_are_those_of_the_configuration(settings, fitting, monkeypatch, project):
    monkeypatch.chdir(project.folder)
    arguments = [part for text in ("batch_size=40", *settings) for part in ("--set", text)]
    target = _target("my.toml", ["--run", "run", *arguments])
    assert [ranks for ranks in range(1, 9) if target.unfit(ranks) is None] == fitting
