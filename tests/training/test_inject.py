"""``tenon train --inject``: faults come when and where they are asked for, and a job ends as with real ones."""

import json
import re
import signal
from types import SimpleNamespace

import pytest

import tenon
from tenon.data import Splits, TensorDataset
from tenon.data.collate import fetch
from tenon.errors import ConfigError
from tenon.training import inject

ENDS = [
    ("rank=1 step=3 kill", {9, 137}, r"rank 1 of 2 on host \S+, step \d was killed by SIGKILL"),
    ("rank=1 step=3 crash", {9, 11, 139}, r"rank 1 of 2 on host \S+, step \d was killed by SIGSEGV"),
    ("rank=1 step=3 error", {1}, r"rank 1 of 2 on host \S+, step 3 failed with TrainingError"),
    ("rank=0 step=3 hang", {124}, r"rank 1 of 2 on host \S+, step 3 has waited \S+ s for rank 0"),
    ("rank=1 step=3 stop", {124}, r"rank 0 of 2 on host \S+, step 3 has waited \S+ s for rank 1"),
    ("rank=0 step=3 after=0.01 kill", {9, 137}, r"rank 0 of 2 on host \S+, step \d+ was killed by SIGKILL"),
]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("step=5 kill", "it has no rank"),
        ("rank=1 kill", "it has no step"),
        ("rank=1 step=5", "it has no action"),
        ("rank=1 step=5 kill stop", "'stop' comes after 'kill'"),
        ("rank=1 rank=2 step=5 kill", "'rank=2' comes after"),
        ("rank=1 step=5 explode", "'explode' is no action"),
        ("rank=one step=5 kill", "rank=one is no whole number"),
        ("rank=-1 step=5 kill", "rank=-1 is no whole number"),
        ("rank=1 step=5-3 slow=1", "step=5-3 is no range of steps of 'slow'"),
        ("rank=1 step=5- slow=1", "step=5- is no range"),
        ("rank=1 step=5-9 kill", "step=5-9 is no range of steps of 'kill'"),
        ("rank=1 step=5 kill=9", "'kill' takes no value"),
        ("rank=1 step=5 exit=0", "exit=0 is no status of a failure"),
        ("rank=1 step=5 exit=256", "exit=256 is no status of a failure"),
        ("rank=1 step=5 exit", "exit= is no whole number"),
        ("rank=1 step=5 slow", "slow= is no number of seconds"),
        ("rank=1 step=5 slow=nan", "slow=nan is no number of seconds"),
        ("rank=1 step=5 slow-data=-1", "slow-data=-1 is no number of seconds"),
        ("rank=1 step=5 after=1 error", "leave out 'after'"),
        ("", "it has no rank"),
    ],
)
def test_what_describes_no_fault_is_refused(text, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
        inject.parse(text)
    assert "--inject 'rank=2 step=50 kill'" in str(caught.value)


def test_a_fault_that_lasts_has_no_end_unless_given():
    assert inject.parse("rank=0 step=7 slow=0.5").last > 10**9
    fault = inject.parse("attempt=2 slow-data=0.5 step=7-9 rank=0")
    assert (fault.first, fault.last, fault.attempt, fault.value) == (7, 9, 2, 0.5)


def test_a_rank_that_does_not_exist_is_refused_unless_another_attempt_has_it(monkeypatch):
    faults = [inject.parse("rank=2 step=0 kill")]
    with (
        pytest.raises(ConfigError, match="there are 2 ranks, counted from 0"),
        inject.injecting(faults, 0, 2),
    ):
        pass
    monkeypatch.setenv("TENON_ATTEMPT", "2")
    with inject.injecting(faults, 0, 2):
        pass


def test_a_rank_is_slow_at_the_steps_of_its_fault_alone(monkeypatch, capsys):
    slept = []
    monkeypatch.setattr(inject.time, "sleep", slept.append)
    x = tenon.arange(12.0).reshape(6, 2)
    session = SimpleNamespace(step=0, data=Splits(TensorDataset(x, x), TensorDataset(x, x)))
    before = fetch(session.data.train, [4, 1])
    texts = ["rank=0 step=1-1 slow=0.3", "rank=0 step=2-3 slow-data=0.4"]
    lasted = {}
    plugin = inject.Faults([inject.parse(text) for text in texts])
    plugin.tenon_session_start(session=session)
    for session.step in range(5):
        slept.clear()
        plugin.tenon_step_begin(session=session, step=session.step)
        for _ in range(2):  # micro-batches
            batch = fetch(session.data.train, [4, 1])
        lasted[session.step] = list(slept)
    assert lasted == {0: [], 1: [0.3], 2: [0.4], 3: [0.4], 4: []}
    assert all(a.equal(b) for a, b in zip(batch, before, strict=True))
    assert len(session.data.train) == 6 and session.data.train[1][0].tolist() == [2.0, 3.0]
    assert capsys.readouterr().err.splitlines() == [
        "tenon train: injects 'rank=0 step=1-1 slow=0.3' at step 1",
        "tenon train: injects 'rank=0 step=2-3 slow-data=0.4' at step 2",
    ]


@pytest.mark.slow
@pytest.mark.mpi
def test_sys_exit_in_a_plugin_is_reported_as_that_ranks(project):
    done = project.train("my.toml", "--inject", "rank=0 step=3 exit=7", ranks=2)
    assert done.code == 7
    assert re.search(r"=== tenon: rank 0 of 2 on host \S+, step 3 called sys.exit\(7\) ===", done.err)
    assert done.err.count("=== tenon: rank") == 1


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("fault", "statuses", "report"), ENDS, ids=[fault for fault, _, _ in ENDS])
def test_a_job_ends_as_with_the_real_fault(project, monkeypatch, fault, statuses, report):
    monkeypatch.setitem(project.environment, "TENON_WATCHDOG", "3")
    done = project.train("my.toml", "--inject", fault, "--run", "run", ranks=2)
    assert done.code in statuses, done.err
    assert re.search(f"=== tenon: {report} ===", done.err), done.err
    assert done.err.count("=== tenon: rank") == 1
    assert f"injects {fault!r} at step" in done.err
    record = json.loads((project.folder / "run" / "failures" / f"rank-{fault[5]}.json").read_text())
    if fault.endswith("kill"):
        assert record["signal"] == signal.SIGKILL.name
