"""The code of the guide runs, and its sink is told of ops, scopes and steps."""

import csv
import re
from pathlib import Path

import pytest

from tenon.profiler import profile, schedule

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "profiler.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)


def test_the_guides_program_prints_tables_and_writes_a_trace_and_the_graph(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    space = {}

    exec(compile(BLOCKS[0], GUIDE.name, "exec"), space)
    exec(compile(BLOCKS[1], GUIDE.name, "exec"), space)

    out = capsys.readouterr().out
    assert "tenon::linear" in out and "Sequential.2" in out
    assert len(list(tmp_path.glob("runs/mine/*_0.*.pt.trace.json"))) == 1
    (events,) = tmp_path.glob("runs/mine/events.out.tfevents.*")
    assert b"Sequential/2/linear" in events.read_bytes()


def test_the_guides_sink_writes_a_line_per_op(tmp_path, monkeypatch, training, plug):
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(compile(BLOCKS[2], GUIDE.name, "exec"), space)
    heard = []
    space["Lines"].on_scope = lambda self, event: heard.append((event.name, event.module))
    space["Lines"].on_step = lambda self, event: heard.append(event.number)
    plug(space["tenon_open_observers"])

    with profile(
        schedule=schedule(wait=0, warmup=1, active=1), record_shapes=True, with_modules=True
    ) as prof:
        for _ in range(2):
            training.step()
            prof.step()

    with open("ops_0.csv") as file:
        lines = list(csv.DictReader(file))
    linear = [line for line in lines if line["name"] == "tenon::linear"]
    assert [line["module"] for line in linear] == ["Net.body.0", "Net.head"]
    assert all(float(line["flops"]) > 0 and float(line["microseconds"]) > 0 for line in linear)
    assert {line["phase"] for line in lines} >= {"forward", "backward"}
    assert ("nn.Module: Net_0", "Net") in heard and 1 in heard and 0 not in heard
