"""A full disk, and Ctrl-C during a flush: the program continues or ends, and recorded events are kept."""

import contextlib
import errno
import os
import resource
import signal

import pytest

import tenon
from tenon.errors import TenonWarning
from tenon.extend import Observer
from tenon.profiler import profile, read_trace, schedule, tensorboard_trace_handler
from tenon_profiler import recording


@contextlib.contextmanager
def room(count):
    """Limit the size of files inside the block only, as pytest may be writing to one as well."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("streams", "count"), [(True, 100_000), (False, 15_000)])
def test_a_full_disk_ends_the_profile_and_not_the_program(tmp_path, training, monkeypatch, streams, count):
    monkeypatch.setattr(recording, "WAITING", 2_000)
    monkeypatch.setattr(recording, "LIMIT", 600)
    handler = tensorboard_trace_handler(tmp_path) if streams else None
    losses = []

    recording_all = profile(on_trace_ready=handler, record_shapes=True)
    with room(count), pytest.warns(TenonWarning) as warned, recording_all as prof:
        for _ in range(60):
            losses.append(training.step().item())
            prof.step()

    (message,) = [str(w.message) for w in warned]
    assert "the program goes on" in message and "File too large" in message and "Make room" in message
    assert len(losses) == 60 and losses[-1] < losses[0]
    assert {row.key: row.count for row in prof.key_averages()}["tenon::linear"] > 10
    if streams:
        (path,) = tmp_path.iterdir()
        assert path.name.endswith(".part") and str(path) in message
        assert sum(e["name"].startswith("ProfilerStep#") for e in read_trace(path)[1]) > 5


def test_a_disk_that_is_full_from_the_start_is_told_once(tmp_path, training):
    plan = schedule(wait=0, warmup=1, active=2, repeat=2)
    prof = profile(schedule=plan, on_trace_ready=tensorboard_trace_handler(tmp_path))

    with room(100), pytest.warns(TenonWarning, match="the program goes on") as warned, prof:
        for _ in range(7):
            training.step()
            prof.step()

    assert len(warned) == 1 and not prof.recorded and not list(tmp_path.iterdir())


class Failing(Observer):
    """A writer that fails with a full disk after some events."""

    heard = closed = 0

    def __init__(self, most):
        self.most = most

    def on_op(self, event):
        self.heard += 1
        if self.heard > self.most:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self):
        self.closed += 1
        if self.heard > 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_sink_that_fails_is_named_and_told_no_more_while_the_others_are(training, plug):
    full, good, bad_end = Failing(3), Failing(10**9), Failing(10**9)
    good.close = lambda: None
    losses = []

    def missing(session):
        return [open("/nowhere/at/all", "w")]

    plug(missing)
    plug(lambda session: [full, good, bad_end])
    plan = schedule(wait=0, warmup=0, active=1, repeat=3)
    going_on = "the program and its profile continue"
    with pytest.warns(TenonWarning, match=going_on) as warned, profile(schedule=plan) as prof:
        for _ in range(3):
            losses.append(training.step().item())
            prof.step()

    texts = [str(w.message) for w in warned]
    assert [text.split(" receives no more events")[0] for text in texts] == [
        "the sink of the plugin sink 0", "the sink Failing", "the sink Failing",
    ]  # fmt: skip
    assert "No such file or directory: '/nowhere/at/all'" in texts[0]
    assert "OSError: [Errno 28] No space left on device" in texts[1] and "test_trouble.py:" in texts[1]
    assert "Input/output error" in texts[2]
    assert (full.heard, full.closed, bad_end.closed) == (4, 1, 1) and good.heard == bad_end.heard > 30
    assert len(losses) == 3 and len(prof.events()) > 20


class Interrupting(Observer):
    """Sends Ctrl-C while events are being stored."""

    sent = False

    def on_op(self, event):
        if not self.sent:
            Interrupting.sent = True
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_while_events_are_stored_loses_none(tmp_path, plug):
    plug(lambda session: [Interrupting()])
    x = tenon.ones(3)

    with pytest.raises(KeyboardInterrupt), profile(on_trace_ready=tensorboard_trace_handler(tmp_path)) as p:
        for _ in range(50):
            x + x
        p.events()  # they become events now
        pytest.fail("nobody interrupted")

    (path,) = tmp_path.iterdir()
    assert not path.name.endswith(".part")
    assert sum(e["name"] == "tenon::add" for e in read_trace(path)[1]) == 50
