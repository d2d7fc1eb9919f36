"""Trace files that nobody's profiler wrote: one error that names the file, at a cost that its size bounds."""

import gzip
import json
import os
import tracemalloc

import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.errors import TraceError
from tenon.profiler import read_trace
from tenon_profiler import trace_reader

CLOCK = {"id": "here", "aligned": True, "error_ns": 0, "at_ns": 0}
OWN = {"rank": 0, "pid": 1, "host": "here", "started_ns": 0, "clock": CLOCK, "cycle": 0}
EVENT = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "tenon::add",
    "pid": 1,
    "tid": 1,
    "ts": 1.0,
    "dur": 2.0,
    "args": {},
}


def text_of(*events, **own):
    header = json.dumps({"baseTimeNanoseconds": 0, "tenon": {**OWN, **own}})
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return header[:-1] + ', "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"


def written(folder, text):
    path = folder / "rank-0.pt.trace.json.gz"
    path.write_bytes(gzip.compress(text.encode()) if isinstance(text, str) else text)
    return path


def read(path):
    return list(read_trace(path)[1])


def test_what_the_writer_writes_is_read(tmp_path):
    named = {"ph": "M", "name": "process_name", "args": {}}

    assert read(written(tmp_path, text_of(EVENT, named))) == [EVENT, named]


@pytest.mark.parametrize(
    "event",
    [
        {**EVENT, "ts": "1"},
        {**EVENT, "ts": True},
        {**EVENT, "dur": [1]},
        {**EVENT, "args": 5},
        {**EVENT, "name": {}},
        {**EVENT, "tid": "x"},
        {**EVENT, "ts": 10**400},
        {key: value for key, value in EVENT.items() if key != "ts"},
        json.dumps(EVENT).replace("2.0", "NaN"),
        json.dumps(EVENT).replace("2.0", "1e999"),
        json.dumps(EVENT).replace("2.0", "9" * 5000),
        "[" * 100_000,
        "5",
        "{",
    ],
    ids=lambda event: str(event)[:60],
)
def test_an_event_that_is_none_is_an_error_with_its_line(tmp_path, event):
    path = written(tmp_path, text_of(EVENT, event, EVENT))

    with pytest.raises(TraceError, match=r"rank-0.* is damaged at line 3: .{3,200}$"):
        read(path)


def test_an_incomplete_last_line_is_left_out(tmp_path):
    text = text_of(EVENT, EVENT)

    assert read(written(tmp_path, text[: text.rindex("args")])) == [EVENT]


@pytest.mark.parametrize(
    "own",
    [
        {"host": "../../x"},
        {"host": "/tmp/x"},
        {"host": 5},
        {"rank": "0"},
        {"rank": 1 << 80},
        {"clock": {}},
        {"cycle": "/x"},
        {"started_ns": None},
    ],
    ids=str,
)
def test_a_header_names_no_other_place(tmp_path, own):
    (tmp_path / "run").mkdir()
    written(tmp_path / "run", text_of(EVENT, **own))

    for command in ("xplane", "merge", "show"):
        done = CliRunner().invoke(main, ["profile", command, str(tmp_path / "run")])
        assert done.exit_code == 1, (command, done.output)
        assert "is not a trace that tenon.profiler wrote" in done.output, done.output
    assert os.listdir(tmp_path) == ["run"] and len(os.listdir(tmp_path / "run")) == 1


@pytest.mark.parametrize(
    "arguments", [{"Flops": "x"}, {"Number": []}, {"Source ops": 5}, {"Input Dims": {}}], ids=str
)
def test_arguments_of_other_types_end_without_a_traceback(tmp_path, arguments):
    events = [{**EVENT, "cat": kind, "args": arguments} for kind in ("cpu_op", "tenon_wait", "kernel")]
    written(tmp_path, text_of(*events))

    for command in ("xplane", "merge", "show"):
        done = CliRunner().invoke(main, ["profile", command, str(tmp_path)])
        assert done.exit_code == 0 or "Error: " in done.output, (command, done.exception)


@pytest.mark.parametrize(
    "content",
    [b" ", *(pytest.param(each, marks=pytest.mark.slow) for each in (b"\n", b"{}\n", b"x" * 100 + b"\n"))],
    ids=repr,
)
def test_what_a_compressed_file_may_become_is_limited(tmp_path, monkeypatch, content):
    monkeypatch.setattr(trace_reader, "FREE", 1 << 15)
    monkeypatch.setattr(trace_reader, "FACTOR", 5)
    monkeypatch.setattr(trace_reader, "LONGEST_LINE", 1 << 16)
    head = text_of(EVENT).removesuffix("\n]}\n").encode() + b",\n"
    path = written(tmp_path, gzip.compress(head + content * (8_000_000 // len(content)), 9))
    tracemalloc.start()

    with pytest.raises(TraceError):
        for _ in read_trace(path)[1]:
            pass

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_long_line_is_an_error(tmp_path):
    path = tmp_path / "x.pt.trace.json"
    path.write_bytes(b"x" * (8 << 20))

    with pytest.raises(TraceError, match="a line of more than"):
        read_trace(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_a_files_place_is_refused(tmp_path):
    os.mkfifo(tmp_path / "x.pt.trace.json")

    with pytest.raises(TraceError, match="not a regular file"):
        read_trace(tmp_path / "x.pt.trace.json")
