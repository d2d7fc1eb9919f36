"""Damaged traces and hostile questions: every answer of the dashboard is JSON with a status, and no worker dies.

Traces and questions are made from a seed: values of other kinds, numbers beyond all ranges, changed and cut bytes.
A failure names its run. More: ``ATTACK_RUNS=2000 ATTACK_SEED=7 pytest -n 0 tests/attack/test_dashboard.py``.
"""

import gzip
import io
import json
import math
import os
import random
import socket
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "dashboard"))

import traces

RUNS, SEED = int(os.environ.get("ATTACK_RUNS", "5")), int(os.environ.get("ATTACK_SEED", "0"))
#: The most seconds that one answer may take, reading included.
SECONDS = 10.0
VALUES = (
    None, True, [], {}, [1], {"a": 1}, "x", "", -1, 0, 1e308, 2e305, -1e308, 1e-320, 2**63, 2**70, 10**400, math.nan,
    math.inf, -math.inf, "\ud800", "a" * 5000, [[[]]], 1.5, "NaN",
)  # fmt: skip
KEYS = ("ts", "dur", "args", "ph", "cat", "name", "pid", "tid", "id", "tenon", "rank")
RAW = (
    "NaN",
    "Infinity",
    "1e999",
    '"\\ud800"',
    '{"a":' * 50 + "1" + "}" * 50,
    "[" * 2000 + "]" * 2000,
    "9" * 5000,
)
WORDS = (
    "", "x", "-", "--5", "-0", "0", "1", "7", "9" * 17, "-" + "9" * 17, "9" * 30, "1e5", "NaN", "../..", "\x00", "é", "all",
    "r0", "500", "1000000", "overview", "relu",
)  # fmt: skip
VIEWS = ("overview", "operators", "modules", "memory", "kernels", "distributed")


def places(value):
    """Every place of a nest: its container, and the key or index."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


def damaged(text, draw):
    """The bytes of a file with the trace ``text``, changed somewhere."""
    if draw.random() < 0.3:
        data = bytearray(text.encode())
        for _ in range(draw.choice((1, 3, 10))):
            data[draw.randrange(len(data))] = draw.randrange(256)
        data = data[: draw.randrange(len(data))] if draw.random() < 0.3 else data
    else:
        trace = json.loads(text)
        for _ in range(draw.choice((1, 1, 2, 5))):
            container, key = draw.choice([*places(trace)])
            if isinstance(container, dict) and draw.random() < 0.2:
                container[draw.choice(KEYS)] = draw.choice(VALUES)
            else:
                container[key] = draw.choice(VALUES)
        lines = ",\n".join(json.dumps(each) for each in trace.pop("traceEvents", None) or [])
        data = f'{json.dumps(trace)[:-1]}, "traceEvents": [\n{lines}\n]}}'
        colon = data.find(": ", draw.randrange(len(data)))
        comma = data.find(",", colon)
        if draw.random() < 0.3 and 0 <= colon < comma:
            data = data[: colon + 2] + draw.choice(RAW) + data[comma:]
        data = data.encode("utf-8", "surrogatepass")
    packed = gzip.compress(bytes(data), 1)
    return packed[: draw.randrange(len(packed))] if draw.random() < 0.1 else packed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of two ranks with damaged traces, all from one good run."""
    top = tmp_path_factory.mktemp("damaged")
    traces.training_run(top / "good", ranks=2, steps=3, ops=6, slow=1)
    good = [gzip.decompress(path.read_bytes()).decode() for path in sorted((top / "good").glob("*.gz"))]
    for number in range(RUNS):
        draw = random.Random(f"{SEED} {number}")
        (top / f"r{number}").mkdir()
        for rank, text in enumerate(good):
            (top / f"r{number}" / f"node_{rank}.1.pt.trace.json.gz").write_bytes(damaged(text, draw))
    return top


@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <_io.FileIO"
)  # the worker's process ends with its file
def test_a_worker_reads_any_trace_or_names_its_fault(folder):
    pytest.importorskip("tensorboard")
    from tenon_dashboard import worker

    for path in sorted(folder.rglob("*.gz")):
        asking, asked = socket.socketpair()
        with asking, asked, asked.makefile("rb", buffering=0) as requests:
            asking.sendall(b"look\nread\n")
            asking.shutdown(socket.SHUT_WR)
            out = io.BytesIO()

            try:
                worker.serve(str(path), requests, out)
            except Exception as error:
                error.add_note(f"reading {path.parent.name}/{path.name} of seed {SEED}")
                raise
        first = json.loads(out.getvalue().split(b"\n", 1)[0])
        assert "error" in first or "digest" in first, path


def test_any_question_about_a_damaged_run_has_an_answer(folder):
    base_plugin = pytest.importorskip("tensorboard.plugins.base_plugin")
    from werkzeug.test import Client

    from tenon_dashboard.dashboard import Dashboard

    dashboard = Dashboard(base_plugin.TBContext(logdir=str(folder)))
    apps = dashboard.get_plugin_apps()

    def ask(route, **query):
        began = time.monotonic()
        answer = Client(apps[route]).get(route, query_string=query)
        assert answer.status_code in (200, 404), (SEED, route, query)
        assert time.monotonic() - began < SECONDS, (SEED, route, query)
        return json.loads(answer.get_data())

    try:
        for number in range(RUNS):
            run, draw = f"r{number}", random.Random(f"{SEED} questions {number}")
            while any(file["reading"] for file in ask("/view", run=run, view="overview")["files"]):
                pass
            for view in VIEWS:
                ask("/view", run=run, view=view)
                files = ask("/view", run=run, view=view, rank=draw.choice(WORDS))["files"]
                assert not [file["error"] for file in files if "more memory or time" in str(file["error"])], (
                    run
                )
            for _ in range(5):
                words = {
                    name: draw.choice(WORDS) for name in ("begin", "end", "pixels", "rank", "after", "detail")
                }
                for route in ("/trace", "/search", "/span"):
                    ask(route, run=run, text=draw.choice(WORDS), **words)
                ask(
                    "/search",
                    run=run,
                    text="relu",
                    rank=draw.choice("01"),
                    after=str(draw.randrange(9)),
                    back="1",
                )
                ask("/span", run=run, rank=draw.choice("01"), detail=str(draw.randrange(60)))
    finally:
        dashboard.close()
