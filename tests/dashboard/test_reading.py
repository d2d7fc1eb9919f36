"""Reading trace files: all formats, truncated and growing files, validation, and sums."""

import contextlib
import gzip
import json
import random
import time
import zlib

import numpy as np
import pytest
import traces
from traces import memory, span

from tenon_dashboard import stream
from tenon_dashboard.collect import Collected
from tenon_dashboard.digest import curve, digest
from tenon_dashboard.lines import Lines
from tenon_dashboard.parts import PARTS
from tenon_dashboard.stream import BadTrace, EventStream
from tenon_dashboard.sweep import one_step, sweep
from tenon_dashboard.timeline import JOINED, Timeline, pack


def read(path):
    stream, collected = EventStream(str(path)), Collected()
    with contextlib.closing(stream):
        list(stream.read(Lines(collected)))
    return stream, collected


class Everything:
    """A sink that takes events one by one."""

    def __init__(self):
        self.events = []
        self.add = self.events.append

    def take(self, block):
        return False


def summed(folder, events, **options):
    stream, collected = read(traces.write(folder, events, **options))
    swept = sweep(collected)
    swept.steps = swept.steps or one_step(collected)
    return digest(collected, swept, stream.header)


def parts(step):
    return dict(zip(PARTS, step[3:], strict=True))


def test_the_parts_of_a_step_are_those_of_its_innermost_events(tmp_path):
    events, end = traces.training_step(7, 1000.0, ops=10)

    (step,) = summed(tmp_path, events)["steps"]

    assert step[0] == 7 and step[2] == (end - 1000.0) * 1000 == 3_300_000
    assert parts(step) == {
        "compute": 2_500_000,
        "communication": 200_000,
        "wait": 100_000,
        "data": 150_000,
        "optimizer": 300_000,
        "other": 50_000,
    }


def test_parts_add_up_to_the_step_whatever_is_in_it(tmp_path):
    random.seed(3)
    kinds = [
        ("cpu_op", "a"),
        ("tenon_wait", "wait: x"),
        ("python_function", "f"),
        ("user_annotation", "gloo:x"),
    ]
    events = [span("user_annotation", "ProfilerStep#1", 0, 1000)]
    events += [
        span(*random.choice(kinds), round(random.uniform(0, 900), 3), round(random.uniform(0, 99), 3))
        for _ in range(300)
    ]

    (step,) = summed(tmp_path, events)["steps"]

    assert sum(step[3:]) == 1_000_000


def test_what_is_inside_of_loading_counts_as_data_and_waits_inside_of_an_optimizer_stay_waits(tmp_path):
    events = [
        span("cpu_op", "tenon::stack", 10, 20),
        span("cpu_op", "enumerate(DataLoader)#_Loader.__next__", 0, 100),
        span("tenon_wait", "wait: all_reduce", 210, 30),
        span("user_annotation", "gloo:all_reduce", 205, 50),
        span("cpu_op", "tenon::adamw_step", 260, 30),
        span("user_annotation", "Optimizer.step#AdamW.step", 200, 100),
        span("user_annotation", "ProfilerStep#0", 0, 400),
    ]

    (step,) = summed(tmp_path, events)["steps"]

    expected = {"compute": 0, "communication": 20, "wait": 30, "data": 100, "optimizer": 50, "other": 200}
    assert parts(step) == {part: 1000 * micro for part, micro in expected.items()}


def test_operators_have_self_time_total_calls_flops_and_bytes(tmp_path):
    about = {"Phase": "forward", "Input Dims": [[2, 3], [3], []], "FLOPs": 12.0, "Bytes": 40}
    events = [
        span("cpu_op", "tenon::matmul", 10, 30, **about),
        span("cpu_op", "tenon::linear", 0, 50, Phase="forward"),
        span("cpu_op", "tenon::matmul", 60, 5, **about),
    ]

    rows = summed(tmp_path, events)["operators"]

    assert rows == [
        ["tenon::matmul", "2x3, 3, 1", "forward", 2, 35_000, 35_000, 24, 80],
        ["tenon::linear", "", "forward", 1, 50_000, 20_000, 0, 0],
    ]


def test_an_operator_inside_of_itself_is_not_counted_twice(tmp_path):
    events = [span("cpu_op", "tenon::f", 10, 30), span("cpu_op", "tenon::f", 0, 50)]

    ((_, _, _, calls, total, own, *_),) = summed(tmp_path, events)["operators"]

    assert (calls, total, own) == (2, 50_000, 50_000)


def test_modules_have_forward_backward_flops_and_allocated_bytes(tmp_path):
    events, _ = traces.training_step(0, 0.0, ops=10)

    rows = summed(tmp_path, [*events, memory(5, 4096, 1, 4096, "Net.layers.1")])["modules"]

    assert rows == [
        ["Net", "Net", 1, 1_000_000, 0, 0, 0, 0],
        ["Net.layers.0", "Linear", 1, 500_000, 500_000, 750_000, 3 * 262_144 + 2 * 2048 + 5 * 4096, 0],
        ["Net.layers.1", "Linear", 1, 500_000, 500_000, 750_000, 2 * 262_144 + 3 * 2048 + 5 * 4096, 4096],
    ]


def test_the_peak_of_memory_belongs_to_those_who_hold_it_then(tmp_path):
    events = [
        memory(1, 100, 1, 1100, "Net.a"),
        memory(2, 50, 2, 1150, "Net.b"),
        memory(3, -100, 1, 1050, "Net.a"),
        memory(4, 300, 3, 1350, "Net.b", "tenon::mul"),
        memory(5, -300, 3, 1050, "Net.b", "tenon::mul"),
        memory(6, 7, 4, 7, "Net.c", device=1),
    ]

    found = summed(tmp_path, events)["memory"]

    assert found["cpu"] | {"curve": 0} == {
        "curve": 0,
        "peak": 1350,
        "peak_at": 3000,
        "start": 1000,
        "end": 1050,
        "changes": 5,
        "owners": [["Net.b", "tenon::mul", "forward", 300, 1], ["Net.b", "tenon::linear", "forward", 50, 1]],
    }
    assert found["cuda:1"]["peak"] == 7


def test_a_long_curve_keeps_its_peak_and_its_end():
    points = [(i * 10, (i * 37) % 1000 + (5000 if i == 777 else 0), 0) for i in range(20_000)]

    short = curve(*np.array(points).T)

    assert len(short) <= 600 and points[777] in short and short[-1] == points[-1]
    assert [p[0] for p in short] == sorted(p[0] for p in short)


def test_kernels_of_programs_and_of_a_gpu(tmp_path):
    gpu = {"device": 0, "stream": 7, "grid": [4, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 50}
    fused = {"Kernel": 1, "Source ops": ["mul", "add"], "Source": "model.py:12", "FLOPs": 10, "Bytes": 20}
    placed = {
        "Kernel": 1, "Source ops": ["mul", "mul", "neg"], "Source": "src/model.py:12",
        "Source modules": ["body.0", "body.1", ""], "Source lines": ["src/model.py:12"] * 2 + ["src/model.py:14"],
    }  # fmt: skip
    events = [
        span("cpu_op", "tenon::fused_mul_add", 0, 10, **fused),
        span("cpu_op", "tenon::fused_mul_add", 10, 20, **fused),
        span("cpu_op", "tenon::fused_mul_neg", 30, 5, **placed),
        span("cpu_op", "tenon::program", 0, 40, Program="<tenon program 3>"),
        span("kernel", "matmul", 5, 9, pid=0, tid=7, **gpu),
    ]

    rows = summed(tmp_path, events)["kernels"]

    places = "model.py:12 (body.0, body.1), model.py:14"
    assert rows == [
        ["program", "<tenon program 3>", "", "", 1, 40_000, "", "", 0.0, 0, 0],
        ["fused", "tenon::fused_mul_add", "mul, add", "model.py:12", 2, 30_000, "", "", 0.0, 20, 40],
        ["gpu", "matmul", "", "cuda:0", 1, 9000, "4x1x1", "256x1x1", 50.0, 0, 0],
        ["fused", "tenon::fused_mul_neg", "mul, mul, neg", places, 1, 5000, "", "", 0.0, 0, 0],
    ]


def test_collectives_have_wait_apart_from_transfer(tmp_path):
    events, _ = traces.training_step(4, 0.0, ops=10)

    rows = summed(tmp_path, events)["collectives"]

    assert rows == [["all_reduce", "", 0, 4, 2_650_000, 300_000, 100_000, 200_000, 1_000_000]]


def test_the_header_is_checked_key_by_key(tmp_path):
    head = traces.header(3, 8)
    head["tenon"] |= {"threads": "many", "machine": {"flops_per_second": "fast", "bytes_per_second": 1e9}}

    found = summed(tmp_path, [], head=head)["header"]

    assert found["rank"] == 3 and found["world_size"] == 8 and found["bytes_per_second"] == 1e9
    assert "flops_per_second" not in found and found["aligned"] is True


def test_a_trace_without_steps_is_one_step(tmp_path):
    events = [span("cpu_op", "aten::mm", 5, 10), span("cpu_op", "aten::add", 20, 5)]

    ((number, start, duration, *split),) = summed(tmp_path, events)["steps"]

    assert (number, start, duration) == (0, 0, 20_000)
    assert dict(zip(PARTS, split, strict=True))["compute"] == 15_000 and sum(split) == 20_000


def test_a_step_may_begin_inside_of_the_call_that_makes_it(tmp_path):
    events = [
        span("python_function", "torch/profiler/profiler.py(900): step", 0, 20),
        span("user_annotation", "ProfilerStep#4", 10, 100),
        span("cpu_op", "aten::mm", 30, 50),
    ]

    (step,) = summed(tmp_path, events)["steps"]

    assert step[:3] == [4, 10_000, 100_000] and parts(step)["compute"] == 50_000


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("packed", [True, False])
def test_any_layout_of_the_json_is_read(tmp_path, indent, packed):
    events, _ = traces.training_step(0, 0.0)
    data = json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "x"}, indent=indent).encode()
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(gzip.compress(data) if packed else data)

    stream, collected = read(path)

    assert collected.spans == len(events) and stream.finished
    assert stream.header == {"schemaVersion": 1, "traceName": "x"}


def test_members_of_gzip_one_after_the_other_are_one_text(tmp_path):
    events, _ = traces.training_step(0, 0.0)
    data = traces.text(events).encode()
    path = tmp_path / "a.pt.trace.json.gz"
    path.write_bytes(b"".join(gzip.compress(data[i : i + 777]) for i in range(0, len(data), 777)))

    assert read(path)[1].spans == len(events)


def test_a_file_cut_anywhere_gives_the_events_before_the_cut(tmp_path):
    events, _ = traces.training_step(0, 0.0, ops=2)
    data = traces.text(events).encode()
    path, random_cuts = tmp_path / "a.pt.trace.json", random.Random(1)

    for cut in [0, 1, 2, *random_cuts.sample(range(len(data)), 60)]:
        path.write_bytes(data[:cut])
        stream, collected = read(path)
        ended = [i for i, event in enumerate(events) if data[:cut].count(json.dumps(event).encode())]
        assert (stream.finished, collected.spans) == (False, len(ended)), cut


def test_a_growing_file_is_read_on_where_it_stopped(tmp_path):
    events, _ = traces.training_step(0, 0.0)
    data, packer = traces.text(events).encode(), zlib.compressobj(wbits=31)
    path = tmp_path / "a.pt.trace.json.gz.part"
    found, position = Everything(), 0
    path.write_bytes(b"")
    stream = EventStream(str(path))

    with path.open("ab", buffering=0) as file:
        for at in range(0, len(data), 500):
            file.write(packer.compress(data[at : at + 500]) + packer.flush(zlib.Z_SYNC_FLUSH))
            list(stream.read(found))
            assert stream.position > position
            position = stream.position

    stream.close()
    assert found.events == events and stream.finished


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello, this is not a trace", "begins with"),
        ('{"traceEvents": {"a": 1}}', "traceEvents is not a list"),
        ('{"traceEvents": [{"ph": "X", oops, "ts": 1.0, "dur": 5.0}]}', "Expecting property name"),
        (
            '{"traceEvents": [{"ph": "X", "ts": NaN, "dur": 5.0, "name": "long enough"}]}',
            "NaN is not a JSON number",
        ),
        ('{"a": ' + "[" * 100_000, "nested too deep"),
        ('{"traceEvents": [' + "9" * 6000 + "]}", "digits"),
        ('{"' + "k" * 5_000_000, "longer than"),
        ('{5: 1, "traceEvents": [], "more": "text"}', "no key"),
    ],
)
def test_a_file_that_is_not_a_trace_is_reported_with_the_reason(tmp_path, text, reason):
    path = tmp_path / "a.pt.trace.json"
    path.write_text(text)

    with pytest.raises(BadTrace, match=reason):
        read(path)


def test_damaged_gzip_and_bytes_that_are_not_text_are_reported(tmp_path):
    path = traces.write(tmp_path, traces.training_step(0, 0.0)[0])
    data = bytearray(path.read_bytes())
    data[-6] ^= 255
    path.write_bytes(data)
    with pytest.raises(BadTrace, match="damaged gzip"):
        read(path)

    path.write_bytes(b'{"a": "\xff\xfe"}')
    with pytest.raises(BadTrace, match="not UTF-8"):
        read(path)


@pytest.mark.parametrize("unit", [b" ", b"\n", b",", b"{},\n", b"[],"], ids=repr)
def test_what_a_compressed_file_may_become_is_limited(tmp_path, monkeypatch, unit):
    monkeypatch.setattr(stream, "FREE", 1 << 15)
    monkeypatch.setattr(stream, "FACTOR", 20)
    path = tmp_path / "a.pt.trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + unit * (4_000_000 // len(unit)), 9))

    with pytest.raises(BadTrace, match="decompresses to more than 20 times its size"):
        read(path)


@pytest.mark.parametrize("between", [b",", b"\n,", b",\n"], ids=repr)
def test_the_time_for_many_events_in_one_line_is_linear(tmp_path, between):
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(b'{"traceEvents": [' + between.join([b'{"ph":"X"}'] * 90_000))
    began = time.process_time()

    _, collected = read(path)

    assert sum(collected.skipped.values()) == 90_000
    assert time.process_time() - began < 2e-6 * path.stat().st_size


GOOD = {"ph": "X", "cat": "cpu_op", "name": "f", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (17, "an event is not an object"),
        ({**GOOD, "ph": 3}, "`ph` is not a string"),
        ({**GOOD, "name": ["x"]}, "`name` or `cat` is not a string"),
        ({**GOOD, "cat": None}, "`name` or `cat` is not a string"),
        ({**GOOD, "ts": "1"}, "`ts` is not a number"),
        ({**GOOD, "ts": True}, "`ts` is not a number"),
        ({**GOOD, "dur": 1e999}, "`dur` is not a number"),
        ({**GOOD, "dur": -1}, "`dur` is negative or longer than hours"),
        ({**GOOD, "dur": 10**17}, "`dur` is negative or longer than hours"),
        ({**GOOD, "ts": 10**19}, "`ts` is not a number"),
        ({**GOOD, "tid": [1]}, "`pid` or `tid` is neither a number nor a string"),
        ({**GOOD, "args": [1]}, "`args` is not an object"),
        ({**GOOD, "args": {"Call": "x" * 30_000}}, "`args` is longer than 20,000 characters"),
        ({**memory(1, 1, 1, 1), "args": 3}, "`args` of [memory] is not an object"),
        (memory(1, "4096", 1, 1), "`Bytes` of [memory] is not an integer"),
    ],
)
def test_events_of_wrong_types_are_left_out_and_counted(event, reason):
    collected = Collected()

    for one in (GOOD, event, GOOD):
        collected.add(one)

    assert collected.skipped == {reason: 1} and collected.spans == 2
    digest(collected, sweep(collected), {})


def test_hostile_headers_and_arguments_make_no_number(tmp_path):
    strange = {
        "Module": {"a": 1},
        "Phase": [],
        "FLOPs": -5,
        "Bytes": "x",
        "Input Dims": "wide",
        "Source ops": [[1], 2],
    }
    head = {"baseTimeNanoseconds": "x", "tenon": [1], "distributedInfo": "y"}

    found = summed(tmp_path, [span("cpu_op", "f", 0, 1, Kernel=1, **strange)], head=head)

    assert found["operators"] == [["f", "", "", 1, 1000, 1000, 0, 0]] and found["modules"] == []
    assert found["header"]["rank"] == -1


def test_windows_of_the_timeline_draw_at_most_a_few_spans_a_pixel(tmp_path):
    events = [span("cpu_op", f"op{i % 7}", float(i), 0.9, Phase="forward") for i in range(5000)]
    events.append(span("user_annotation", "ProfilerStep#0", 0, 5000))
    _, collected = read(traces.write(tmp_path, events))
    timeline = Timeline(pack(collected, sweep(collected)))

    steps, ops = timeline.window(0, 0, 5_000_000, 50_000)

    assert len(steps) == 1 and 90 <= len(ops) <= 101
    assert sum(count for _, _, label, count in ops if label == JOINED) == 5000
    near = timeline.window(0, 100_000, 110_000, 10)[1]
    assert [timeline.labels[label][1] for _, _, label, _ in near] == [f"op{i % 7}" for i in range(100, 110)]
    assert [start for start, *_ in near] == [i * 1000 for i in range(100, 110)]


def test_a_window_shows_a_long_span_that_begins_among_short_ones(tmp_path):
    events = [span("cpu_op", "short", i / 10, 0.05) for i in range(10)] + [
        span("cpu_op", "long", 1.0, 1000.0)
    ]
    _, collected = read(traces.write(tmp_path, events))
    timeline = Timeline(pack(collected, sweep(collected)))

    (drawn,) = timeline.window(0, 0, 1_001_000, 10_000)

    assert drawn[0][2:] == [JOINED, 10]
    assert timeline.labels[drawn[1][2]][1] == "long" and drawn[1][:2] == [1000, 1_000_000]
