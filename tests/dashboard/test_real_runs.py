"""Files that the profiler wrote, in the views."""

import json

import pytest

import tenon as torch
from tenon import nn
from tenon.profiler import profile, record_function, schedule, tensorboard_trace_handler
from tenon_dashboard.collect import Collected
from tenon_dashboard.lines import Lines
from tenon_dashboard.stream import EventStream

pytest.importorskip("tensorboard")

STEPS = 3


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    options = {"record_shapes": True, "profile_memory": True, "with_flops": True, "with_modules": True}
    ready = tensorboard_trace_handler(str(folder / "run"))
    with profile(
        schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1), on_trace_ready=ready, **options
    ) as p:
        for _ in range(2 + STEPS):
            with record_function("whole"):
                optimizer.zero_grad()
                model(torch.ones(4, 8)).sum().backward()
                optimizer.step()
            p.step()
    return folder


def test_lines_of_the_profiler_are_read_many_at_a_time(logdir):
    (path,) = logdir.glob("run/*.json*")
    stream, lines, single = EventStream(str(path)), Lines(Collected()), []
    lines.add = single.append

    list(stream.read(lines))

    stream.close()
    assert {event["ph"] for event in single} <= {"M", "i"} and len(single) < 10
    assert lines.collected.spans > 50 and len(lines.collected.memory.at) > 20


def test_every_step_is_the_sum_of_its_parts(routes, logdir):
    view = routes(logdir).view("overview")

    (file,) = view["files"]
    assert file["finished"] and not file["error"] and file["skipped"] == {}
    assert len(view["steps"]) == STEPS
    for step in view["steps"]:
        assert sum(step["parts"]) == pytest.approx(step["duration"], rel=1e-3)
        assert step["parts"][view["parts"].index("compute")] > 0
        assert step["parts"][view["parts"].index("optimizer")] > 0


def test_operators_and_modules_are_those_of_the_model(routes, logdir):
    asked = routes(logdir)

    linear = [row for row in asked.view("operators")["rows"] if row[0] == "tenon::linear"]
    nodes = {node["path"]: node for node in asked.view("modules")["nodes"]}

    assert {row[1] for row in linear} == {"4x8, 16x8, 16", "4x16, 2x16, 2"}
    assert sum(row[3] for row in linear) == 2 * STEPS and all(row[5] > 0 and row[6] > 0 for row in linear)
    assert list(nodes) == ["Sequential", "Sequential.0", "Sequential.1", "Sequential.2"]
    assert {node["calls"] for node in nodes.values()} == {STEPS}
    assert nodes["Sequential"]["forward"] >= nodes["Sequential.0"]["forward"] > 0
    assert nodes["Sequential.2"]["class"] == "Linear" and nodes["Sequential.2"]["backward"] > 0


def test_memory_and_timeline_are_there(routes, logdir):
    asked = routes(logdir)

    (device,) = asked.view("memory")["devices"]
    trace = asked.json("/trace", run="run")

    assert device["device"] == "cpu" and device["peak"] >= 4 * 16 * 4 and device["owners"]
    assert max(size for _, size, _ in device["curve"]) == device["peak"]
    names = {trace["names"][span[2]] for span in trace["lanes"][0]["levels"][0]}
    assert {name for name in names if name.startswith("ProfilerStep#")} == {
        f"ProfilerStep#{i}" for i in (2, 3, 4)
    }
    assert asked.json("/search", run="run", text="whole")["count"] == STEPS


def test_numbers_are_those_in_the_file(routes, logdir):
    (path,) = logdir.glob("run/*.json*")
    events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e.get("cat") == "cpu_op"]
    asked = routes(logdir)

    rows, (device,) = asked.view("operators")["rows"], asked.view("memory")["devices"]
    steps = {step["step"]: step["duration"] for step in asked.view("overview")["steps"]}

    for name in {e["name"] for e in spans}:
        mine = [e for e in spans if e["name"] == name]
        theirs = [row for row in rows if row[0] == name]
        assert sum(row[3] for row in theirs) == len(mine)
        assert sum(row[7] for row in theirs) == sum(e["args"].get("Bytes", 0) for e in mine)
        inside = [e for e in mine if any(within(e, other) for other in mine)]
        total = sum(e["dur"] for e in mine) - sum(e["dur"] for e in inside)
        assert sum(row[4] for row in theirs) == pytest.approx(1000 * total, abs=1)
    own = sum(e["dur"] - sum(x["dur"] for x in children(e, spans)) for e in spans)
    assert sum(row[5] for row in rows) == pytest.approx(1000 * own, abs=1)
    assert device["peak"] == max(e["args"]["Total Allocated"] for e in events if e["name"] == "[memory]")
    assert device["changes"] == sum(e["name"] == "[memory]" for e in events)
    assert steps == {
        int(e["name"].partition("#")[2]): pytest.approx(1000 * e["dur"], abs=1)
        for e in events
        if e["name"].startswith("ProfilerStep#")
    }


def within(inner, outer):
    end = outer["ts"] + outer["dur"] + 1e-4
    return inner is not outer and outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= end


def children(outer, spans):
    """The spans directly inside of another."""
    inside = [e for e in spans if within(e, outer)]
    return [e for e in inside if not any(within(e, other) for other in inside)]
