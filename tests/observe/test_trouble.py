"""A full disk, and Ctrl-C at a bad time: the program goes on, or ends, and what was recorded is there."""

import resource
import signal
from types import ModuleType

import pytest

import tenon
from tenon.errors import TenonWarning
from tenon.extend import Observer
from tenon.plugins.manager import register, unregister
from tenon.profiler import profile, read_trace, schedule, tensorboard_trace_handler
from tenon_profiler import recording


@pytest.fixture
def room():
    """``room(count)``: no file can be longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda count: resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("streams", "count"), [(True, 100_000), (False, 15_000)])
def test_a_full_disk_ends_the_profile_and_not_the_program(
    tmp_path, training, monkeypatch, room, streams, count
):
    room(count)
    monkeypatch.setattr(recording, "WAITING", 2_000)
    monkeypatch.setattr(recording, "LIMIT", 600)
    handler = tensorboard_trace_handler(tmp_path) if streams else None
    losses = []

    with pytest.warns(TenonWarning) as warned, profile(on_trace_ready=handler, record_shapes=True) as prof:
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


def test_a_disk_that_is_full_from_the_start_is_told_once(tmp_path, training, room):
    room(100)
    plan = schedule(wait=0, warmup=1, active=2, repeat=2)
    prof = profile(schedule=plan, on_trace_ready=tensorboard_trace_handler(tmp_path))

    with pytest.warns(TenonWarning, match="the program goes on") as warned, prof:
        for _ in range(7):
            training.step()
            prof.step()

    assert len(warned) == 1 and not prof.recorded and not list(tmp_path.iterdir())


class Interrupting(Observer):
    """Sends Ctrl-C while events are being stored."""

    sent = False

    def on_op(self, event):
        if not self.sent:
            Interrupting.sent = True
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_while_events_are_stored_loses_none(tmp_path):
    plugin = ModuleType("interrupting")
    plugin.tenon_open_observers = tenon.extend.hookimpl(lambda session: [Interrupting()])
    x = tenon.ones(3)

    register(plugin, "interrupting")
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            profile(on_trace_ready=tensorboard_trace_handler(tmp_path)) as p,
        ):
            for _ in range(50):
                x + x
            p.events()  # they become events now
            pytest.fail("nobody interrupted")
    finally:
        unregister("interrupting")

    (path,) = tmp_path.iterdir()
    assert not path.name.endswith(".part")
    assert sum(e["name"] == "tenon::add" for e in read_trace(path)[1]) == 50
