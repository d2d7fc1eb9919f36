"""Reading many lines and spans at once equals reading them one by one."""

import json
import random

import pytest
import traces
from traces import memory, span

from tenon_dashboard.collect import Collected
from tenon_dashboard.digest import digest, ops_text
from tenon_dashboard.lines import Lines
from tenon_dashboard.nesting import nested
from tenon_dashboard.parts import Swept, part_of
from tenon_dashboard.stream import EventStream
from tenon_dashboard.sweep import sweep, walk


def test_nested_spans_give_the_same_all_at_once_as_one_by_one():
    random.seed(5)
    kinds = [("cpu_op", "a"), ("cpu_op", "b"), ("tenon_wait", "wait: x"), ("user_annotation", "gloo:x")]
    kinds += [("user_annotation", "Optimizer.step#A.step"), ("cpu_op", "enumerate(DataLoader)#x")]
    kinds += [("user_annotation", f"ProfilerStep#{i}") for i in range(3)]
    for _ in range(30):
        collected = Collected()
        for event in nesting_spans(0, 40, 0, kinds):
            collected.add(event)
        ((where, lane),) = collected.lanes.items()
        one_by_one = Swept()
        levels = walk(lane, [part_of(*label) for label in collected.labels], collected.labels, one_by_one)
        one_by_one.steps.sort(key=lambda step: step.start)

        assert nested(lane) is not None
        at_once = sweep(collected)

        assert at_once.sums == one_by_one.sums and at_once.steps == one_by_one.steps
        assert [
            [list(getattr(level, name)) for name in ("start", "duration", "label", "detail")]
            for level in at_once.levels[where]
        ] == [
            [list(level.start), list(level.duration), list(level.label), list(level.detail)]
            for level in levels
        ]


def nesting_spans(begin, end, depth, kinds):
    """Random spans, some empty, some beside each other without a gap, inside before outside as they end."""
    at = begin
    while at < end:
        upto = min(end, at + random.choice((0, 1, 5, 9)))
        if depth < 5 and random.random() < 0.7:
            yield from nesting_spans(at, upto, depth + 1, kinds)
        yield span(*random.choice(kinds), at, upto - at, Number=random.randrange(3))
        at = upto + random.choice((0, 0, 1))
        if upto == end and random.random() < 0.5:
            return


def test_spans_that_do_not_nest_are_walked_one_by_one():
    events = [span("cpu_op", "a", 0, 10), span("cpu_op", "b", 5, 10)]
    collected = Collected()
    for event in events:
        collected.add(event)

    (lane,) = collected.lanes.values()

    assert nested(lane) is None
    assert list(sweep(collected).sums.values()) == [[1, 10_000, 5_000], [1, 5_000, 5_000]]


def told(folder, text):
    """The result of reading a file with this text, and whether it was read by whole lines."""
    path = folder / "a.pt.trace.json"
    path.write_text(text)
    stream, collected, single = EventStream(str(path)), Collected(), []
    lines = Lines(collected)
    lines.add = lambda event: single.append(event) or collected.add(event)
    list(stream.read(lines))
    stream.close()
    return digest(collected, sweep(collected), {}), len(single)


@pytest.mark.parametrize(
    "more",
    [
        (),
        (span("cpu_op", 'with "quotes" and \\ é', 1, 2),),
        (span("cpu_op", "other thread", 1, 2, tid=9),),
        (span("cpu_op", "wrong", 1, -2), span("cpu_op", 7, 1, 2)),
        ({"ph": "M", "name": "thread_name", "pid": 100, "tid": 1, "args": {"name": "main"}},),
        (memory(1.5, 64, 5, 64), memory(2, -64, 5, 0), memory(3, 7, 6, 7, device=2)),
        ({**memory(1, 1, 1, 1), "args": {"Bytes": "x"}},),
        (span("cpu_op", "f", 1, 2, Deep={"a": [1, {"ph": "X"}]}),),
    ],
)
def test_lines_give_the_same_many_at_a_time_as_one_by_one(tmp_path, more):
    events, _ = traces.training_step(0, 20.0)
    events += more

    quick, single = told(tmp_path, traces.worded(events))
    slow, all_ = told(tmp_path, json.dumps({"traceEvents": events}))

    assert quick == slow and all_ == len(events)
    if not any(event.get("dur") == -2 or event["args"].get("Bytes") == "x" for event in more):
        assert single <= 2


@pytest.mark.parametrize(
    "line",
    [
        '{"ph":"X","cat":"cpu_op","name":"f","pid":1,"tid":1,"ts":1.000,"dur":2.000,"args":{"a":1},"dur":9.000}',
        '{"ph":"X","cat":"cpu_op","name":"f","pid":1,"tid":1,"ts":1.000,"dur":2.000,"args":{"a":NaN}}',
        '{"ph":"X","cat":"cpu_op","name":"f","pid":01,"tid":1,"ts":1.000,"dur":2.000,"args":{"a":1}}',
        '{"ph":"X","cat":"cpu_op","name":"f","pid":1,"tid":1,"ts":1.000,"dur":2.000,"args":{"a":1}}}',
        '{"ph":"X","cat":"cpu_op","name":"f","pid":1,"tid":1,"ts":１.000,"dur":2.000,"args":{"a":1}}',
        '{"ph":"X","cat":"cpu_op","name":"\u0001","pid":1,"tid":1,"ts":1.000,"dur":99999999999999.000,"args":{"a":1}}',
    ],
)
def test_lines_that_only_look_like_those_of_the_profiler_are_not_taken_as_such(line):
    collected = Collected()

    assert not Lines(collected).take(f"\n{line}\n") and collected.spans == 0


def test_a_kernel_of_many_ops_says_how_often_it_has_each():
    assert ops_text(["mul", "add"] * 20 + ["div"]) == "mul ×20, add ×20, div"
    assert ops_text(["mul", "add", "mul"]) == "mul, add, mul"
