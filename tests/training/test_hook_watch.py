"""A hook that does not return is named, and is ended after a signal, on one rank and on several."""

import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

BLOCKING = """
import time

from tenon.extend import hookimpl
from tenon.training import hook_watch

hook_watch.LIMIT, hook_watch.GRACE = 1.0, 0.8


@hookimpl
def tenon_step_end(session, step):
    if step == 6 and session.rank == session.size - 1:
        (session.folder / "blocked").touch()
        time.sleep(300)
"""


def wait_for(folder, pattern, process):
    deadline = time.monotonic() + 60
    while not list(folder.glob(pattern)):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "number"),
    [(1, signal.SIGTERM), (1, signal.SIGINT), (1, signal.SIGUSR1), (2, signal.SIGTERM)],
)
def test_a_hook_that_blocks_is_named_and_ends_after_a_signal(project, ranks, number):
    project.install("blocking", BLOCKING)
    process = subprocess.Popen(
        project.command("my.toml", ranks=ranks), cwd=project.folder, env=project.environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_for(project.folder, "runs/*/blocked", process)
    err = ""
    while "has been running for" not in err:  # it is named before the signal
        line = process.stderr.readline()
        assert line, err
        err += line
    process.send_signal(number)
    err += process.communicate(timeout=60)[1]

    assert process.returncode != 0
    named = rf"rank {ranks - 1}, step 6: tenon_step_end of plugin 'blocking' \(tenon-blocking 1.5\) \(at"
    assert re.search(rf"{named} tenon_blocking.py:14\) has been running for \d+ s", err), err
    ended = rf"was still running \d+ s after {number.name}, so step 6 is not finished and not saved. Resume"
    assert re.search(ended, err), err
    (folder,) = project.folder.glob("runs/*")
    project.environment = {**project.environment, "TENON_DISABLE_PLUGINS": "blocking"}
    done = project.train("--resume", str(folder), ranks=ranks)
    assert done.code == 0, done.err  # from the checkpoint of the first epoch


def test_hooks_that_return_are_not_taken_for_one_that_runs_long(monkeypatch, capsys):
    from tenon.training import hook_watch

    session = SimpleNamespace(stopping=0, rank=0, step=3, folder="runs/x")
    watch = hook_watch.HookWatch(session)
    frames = [SimpleNamespace(), SimpleNamespace()]
    for second in range(100):  # two calls that take turns
        watch.compare(SimpleNamespace(frame=frames[second % 2], text="a hook"), float(second))
    watch.compare(None, 100.0)
    assert capsys.readouterr().err == ""
    for second in range(100, 200):
        watch.compare(SimpleNamespace(frame=frames[0], text="a hook"), float(second))
    assert (
        capsys.readouterr().err
        == "tenon: rank 0, step 3: a hook has been running for 30 s, and the run waits for it.\n"
    )
    assert not watch.answers(sys._getframe())


def test_a_hook_that_returns_just_before_it_is_ended_is_no_error(monkeypatch):
    from tenon.errors import TrainingError
    from tenon.training import hook_watch

    sent = []
    monkeypatch.setattr(hook_watch.signal, "pthread_kill", lambda thread, number: sent.append(number))
    session = SimpleNamespace(stopping=signal.SIGINT, rank=0, step=3, folder="runs/x")
    watch = hook_watch.HookWatch(session)

    def hook(returns):
        for second in (0.0, hook_watch.GRACE + 1, hook_watch.GRACE + 2):
            watch.compare(SimpleNamespace(frame=sys._getframe(), text="a hook"), second)
        if not returns:
            watch.answers(sys._getframe())

    with pytest.raises(TrainingError, match=r"a hook was still running 11 s after SIGINT, so step 3"):
        hook(returns=False)
    assert sent == [signal.SIGINT]  # once
    hook(returns=True)
    assert watch.answers(sys._getframe())  # the handler runs after the hook: its own, and no second Ctrl-C
    assert not watch.answers(sys._getframe())
