"""The routes of the dashboard: the numbers of each view, and no access outside of the log directory."""

import gzip
import json
import os
import subprocess
import sys
import zlib

import pytest
import traces
from traces import span

pytest.importorskip("tensorboard")

from tenon_dashboard.dashboard import _STATIC, _VIEWS


def test_runs_are_listed_with_their_ranks_and_cycles(routes, tmp_path):
    for rank in range(2):
        traces.write(tmp_path / "one", [], rank, 2)
    for ns in (5, 6):
        traces.write(tmp_path / "a" / "b", [], ns=ns)
    (tmp_path / "one" / "merged.trace.json.gz").write_bytes(b"")

    found = routes(tmp_path).json("/runs")["runs"]

    assert found == [
        {"name": "a/b", "ranks": [0]},
        {"name": "a/b (cycle 2)", "ranks": [0]},
        {"name": "one", "ranks": [0, 1]},
    ]


def test_the_tab_is_active_once_there_is_a_trace(routes, tmp_path, asked):
    assert not routes(tmp_path).dashboard.is_active()
    assert not routes(tmp_path / "missing").dashboard.is_active()
    assert asked.dashboard.is_active()
    assert asked.dashboard.frontend_metadata().tab_name == "tenon"


def test_overview_and_distributed_tell_the_straggler(asked):
    overview = asked.view("overview")

    assert overview["parts"] == ["compute", "communication", "wait", "data", "optimizer", "other"]
    fast, slow = overview["ranks"][0], overview["ranks"][2]
    assert fast["duration"] == slow["duration"] == 4_550_000 and fast["steps"] == 5
    assert fast["parts"] == [2_500_000, 200_000, 1_350_000, 150_000, 300_000, 50_000]
    assert slow["parts"] == [3_750_000, 200_000, 100_000, 150_000, 300_000, 50_000]
    assert [step["step"] for step in overview["steps"]] == [0, 1, 2, 3, 4]
    assert overview["advice"][0].startswith(
        "Rank 0 waits 30 % of each step in all_reduce: rank 2 comes last to 100 % of the collectives, 1.25 ms"
        " late"
    )
    distributed = asked.view("distributed")
    assert distributed["arrivals"][2] == {"rank": 2, "last": 5, "late": 1_250_000, "calls": 5}
    assert distributed["arrivals"][0] == {"rank": 0, "last": 0, "late": 0, "calls": 5}
    (reduce,) = distributed["collectives"]
    assert (reduce["calls"], reduce["bytes"], reduce["transfer"]) == (20, 20_000_000, 4_000_000)
    assert reduce["wait"] == {"0": 6_750_000, "1": 6_750_000, "2": 500_000, "3": 6_750_000}
    assert distributed["aligned"] and distributed["world_size"] == 4


def test_arrivals_are_of_the_ranks_of_each_group(routes, tmp_path):
    for rank in range(4):
        pair = [0, 1] if rank < 2 else [2, 3]
        groups = [([0, 1, 2, 3], "0-3", 30.0 * (rank == 3)), (pair, f"{pair[0]}-{pair[1]}", 10.0 * rank)]
        events = [
            traces.span(
                "user_annotation", "gloo:all_reduce", 100 * place + late, 50, Number=0, Ranks=r, Group=g
            )
            for place, (r, g, late) in enumerate(groups)
        ]
        traces.write(tmp_path / "run", events, rank, 4)

    rows = routes(tmp_path).view("distributed")["arrivals"]

    assert [(row["last"], row["late"], row["calls"]) for row in rows] == [
        (0, 0, 2), (1, 5000, 2), (0, 0, 2), (2, 20_000, 2),
    ]  # fmt: skip


def test_operators_add_up_over_ranks_and_can_be_those_of_one(asked):
    every = {row[0]: row for row in asked.view("operators")["rows"]}
    one = asked.view("operators", rank="2")

    assert every["tenon::linear"][3:] == [100, 11_250_000, 11_250_000, 100 * 262_144, 100 * 16384]
    assert {row[0]: row for row in one["rows"]}["tenon::linear"][3:5] == [25, 3_750_000]
    assert one["flops_per_second"] == 5e10 and one["known"] == [0, 1, 2, 3]


def test_modules_are_a_tree_whose_containers_hold_what_is_inside(asked):
    nodes = {node["path"]: node for node in asked.view("modules", rank="0")["nodes"]}

    assert list(nodes) == ["Net", "Net.layers", "Net.layers.0", "Net.layers.1"]
    assert nodes["Net"]["forward"] == nodes["Net.layers"]["forward"] == 5_000_000
    assert nodes["Net"]["own_forward"] == 0 and nodes["Net.layers"]["calls"] == 0
    assert nodes["Net"]["backward"] == 7_500_000 and nodes["Net.layers.1"]["backward"] == 3_750_000
    assert nodes["Net"]["bytes"] == nodes["Net.layers.0"]["bytes"] == 5 * 4096


def test_memory_is_on_the_runs_clock(routes, tmp_path):
    for rank in range(2):
        head = traces.header(rank, 2) | {"baseTimeNanoseconds": traces.BASE + rank * 1_000_000}
        traces.write(
            tmp_path / "run", [traces.memory(5, 10, 1, 10), traces.memory(6, -10, 1, 0)], rank, head=head
        )

    first, second = routes(tmp_path).view("memory")["devices"]

    assert first["peak_at"] == 0 and second["peak_at"] == 1_000_000
    assert routes(tmp_path).view("memory", rank="1")["devices"][0]["peak_at"] == 1_000_000
    assert second["curve"] == [[1_000_000, 10, 10], [1_001_000, 0, 0]]


def test_the_trace_has_all_ranks_on_one_clock_and_is_searched(asked):
    whole = asked.json("/trace", run="run", pixels=1000)
    found = asked.json("/search", run="run", text="ADAMW_step", after=4_550_000)
    before = asked.json("/search", run="run", text="adamw_step", after=4_550_000, back=1)

    assert [lane["rank"] for lane in whole["lanes"]] == [0, 1, 2, 3]
    assert (whole["begin"], whole["end"]) == (0, 5 * 4_550_000)
    assert [span[0] for span in whole["lanes"][3]["levels"][0]] == [i * 4_550_000 for i in range(5)]
    names = whole["names"]
    assert {names[s[2]] for s in whole["lanes"][0]["levels"][0]} == {f"ProfilerStep#{i}" for i in range(5)}
    assert found["count"] == 20 and found["found"]["start"] == 2 * 4_550_000 - 350_000
    assert before["found"]["start"] == 4_550_000 - 350_000 and before["found"]["name"] == "tenon::adamw_step"
    detail = asked.json("/span", run="run", rank=0, detail=found["found"]["detail"])["detail"]
    assert detail == {"Phase": "optimizer", "Bytes": "4000000"}
    assert asked.json("/search", run="run", text="nothing like this")["count"] == 0
    other = asked.json("/search", run="run", text="adamw_step", rank="2")
    assert (other["count"], other["found"]["rank"]) == (5, 2)


@pytest.mark.parametrize(
    "name", ["..", "../run", "/etc", "run/../run", "run\x00", "", "run/node_0.1000.pt.trace.json.gz"]
)
def test_a_run_that_was_not_found_by_walking_does_not_exist(asked, name):
    for route in ("/view", "/trace", "/search", "/span"):
        answer = asked.answer(route, run=name, view="overview", text="x")
        assert answer.status_code == 404 and "No run" in json.loads(answer.get_data())["error"]


def test_only_the_packages_own_files_are_sent(asked):
    static = [route for route in asked.apps if route.startswith("/static/")]

    assert sorted(static) == sorted(f"/static/{path.name}" for path in _STATIC.iterdir())
    for route in static:
        answer = asked.answer(route)
        assert answer.status_code == 200 and answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("route", "query"),
    [
        ("/view", {"view": "__class__"}),
        ("/trace", {"begin": "1e9"}),
        ("/trace", {"begin": "9" * 30}),
        ("/span", {"detail": "-"}),
        ("/span", {"detail": "--5"}),
        ("/trace", {"pixels": "--5"}),
        ("/search", {"text": "relu", "after": "-5-"}),
    ],
)
def test_questions_that_make_no_sense_are_refused(asked, route, query):
    answer = asked.answer(route, run="run", **query)

    assert answer.status_code == 404 and json.loads(answer.get_data())["error"]


HOSTILE = [
    "../../etc/passwd",
    "\x00",
    "<script>alert(1)</script>",
    "9" * 400,
    "-9",
    "NaN",
    "１２",
    "%2e%2e/x",
    "",
    "[]",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_in_any_question_breaks_an_answer_or_comes_back_as_a_page(asked, text):
    names = ("run", "view", "rank", "begin", "end", "pixels", "text", "after", "back", "detail", "unknown")
    for route in ("/runs", "/view", "/trace", "/search", "/span"):
        for name in names:
            query = {"run": "run", "view": "overview", "text": "relu"} | {name: text}
            answer = asked.answer(route, **query)
            found = json.loads(answer.get_data())
            assert answer.status_code == (404 if "error" in found else 200), (route, name, found)
            assert answer.content_type == "application/json" and "root:" not in answer.get_data(as_text=True)


def test_answers_are_json_that_nothing_runs(asked):
    answer = asked.answer("/view", run="run", view="overview")

    assert answer.content_type == "application/json"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_links_that_lead_out_of_the_log_directory_are_refused(routes, tmp_path):
    outside = traces.write(tmp_path / "outside", [span("cpu_op", "secret", 0, 1)])
    inside = traces.write(tmp_path / "logs" / "real", [span("cpu_op", "open", 0, 1)])
    linked = tmp_path / "logs" / "linked"
    linked.mkdir()
    (linked / "node_0.1.pt.trace.json.gz").symlink_to(outside)
    (linked / "node_1.1.pt.trace.json.gz").symlink_to(inside)
    (tmp_path / "logs" / "folder").symlink_to(tmp_path / "outside")
    os.mkfifo(linked / "node_2.1.pt.trace.json.gz")

    found = routes(tmp_path / "logs").json("/runs")["runs"]

    assert found == [{"name": "linked", "ranks": [1]}, {"name": "real", "ranks": [0]}]


@pytest.mark.parametrize("megabytes", [1.5, 2.5, 3.5])
def test_files_that_end_within_a_first_look_or_after_it_are_read_whole(routes, tmp_path, megabytes):
    events = [span("cpu_op", "op", i, 1, Text="x" * 900) for i in range(int(1000 * megabytes))]
    traces.write(tmp_path / "run", events)

    view = routes(tmp_path).view("operators")

    assert view["rows"][0][3] == len(events) and view["files"][0]["finished"]


def test_a_bad_file_is_named_and_the_other_ranks_are_shown(routes, tmp_path):
    traces.training_run(tmp_path / "run", ranks=2, steps=2, ops=4)
    (tmp_path / "run" / "node_5.9.pt.trace.json.gz").write_bytes(b"\x1f\x8b nonsense")

    view = routes(tmp_path).view("overview")

    assert view["known"] == [0, 1] and len(view["steps"]) == 2
    assert [file["error"] for file in view["files"][:2]] == [None, None]
    assert "damaged gzip" in view["files"][2]["error"]


@pytest.mark.parametrize("view", sorted(_VIEWS))
def test_every_view_of_a_run_whose_only_file_is_empty_or_bad_is_an_answer(routes, tmp_path, view):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "node_0.1.pt.trace.json.gz").write_bytes(b"no trace")

    answer = routes(tmp_path).view(view)

    assert answer["known"] == [] and "begins with" in answer["files"][0]["error"]


@pytest.mark.parametrize("moment", ["ts", "dur"])
def test_a_time_beyond_all_clocks_is_skipped_and_counted(routes, tmp_path, moment):
    traces.write(
        tmp_path / "run", [span("cpu_op", "good", 0, 1), span("cpu_op", "bad", 0, 1) | {moment: 1e307}]
    )

    view = routes(tmp_path).view("operators")

    assert [row[3] for row in view["rows"]] == [1] and view["files"][0]["error"] is None
    assert view["files"][0]["skipped"] == {f"`{moment}` is not a number": 1}


@pytest.mark.parametrize("view", sorted(_VIEWS))
def test_every_view_of_a_trace_without_events_is_an_answer(routes, tmp_path, view):
    traces.write(tmp_path / "run", [])

    answer = routes(tmp_path).view(view)

    assert answer["known"] == [0] and answer["files"][0]["error"] is None


def test_a_run_that_goes_on_is_read_on_and_its_worker_ends_with_the_file(routes, tmp_path):
    events, end = traces.training_step(0, 0.0)
    more, _ = traces.training_step(1, end)
    text, packer = traces.text(events + more).encode(), zlib.compressobj(wbits=31)
    cut = text.index(b"ProfilerStep#0") + 200
    path = tmp_path / "run" / "node_0.1.pt.trace.json.gz.part"
    path.parent.mkdir()
    path.write_bytes(packer.compress(text[:cut]) + packer.flush(zlib.Z_SYNC_FLUSH))
    asked = routes(tmp_path)
    first = asked.view("overview")
    (reading,) = asked.dashboard._readers.get([str(path)], 1.0)
    worker = reading._worker

    with path.open("ab") as file:
        file.write(packer.compress(text[cut:-5]) + packer.flush(zlib.Z_SYNC_FLUSH))
    second, same = asked.view("overview"), reading._worker
    with path.open("ab") as file:
        file.write(packer.compress(text[-5:]) + packer.flush())
    third = asked.view("overview")

    assert [step["step"] for step in first["steps"]] == [0] and not first["files"][0]["finished"]
    assert [step["step"] for step in second["steps"]] == [0, 1] and same is worker
    assert third["files"][0]["finished"] and reading._worker is None


def read_within(megabytes, path):
    """The response of a worker that may use at most so much memory."""
    program = """
import sys
from tenon_dashboard import worker
worker.MEMORY_LIMIT = int(sys.argv[1]) << 20
worker.limit()
worker.serve(sys.argv[2], sys.stdin.buffer, sys.stdout.buffer)
"""
    command = [sys.executable, "-c", program, str(megabytes), str(path)]
    one = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, input=b"read\n", capture_output=True, timeout=300, env=one)


@pytest.mark.slow
def test_a_compressed_bomb_is_refused_within_its_memory(tmp_path):
    bomb = '{"traceEvents": [{"ph": "X", "name": "' + "A" * 60_000_000
    path = tmp_path / "node_0.1.pt.trace.json.gz"
    path.write_bytes(gzip.compress(bomb.encode(), 1))

    done = read_within(400, path)

    last = json.loads(done.stdout.splitlines()[-1])
    assert "longer than" in last["error"] and done.returncode == 0


@pytest.mark.slow
def test_a_reader_that_needs_too_much_memory_says_so(tmp_path):
    events = [span("cpu_op", f"op{i}", i, 1, Number=i, Text="x" * 1000) for i in range(20_000)]
    path = traces.write(tmp_path, events)

    done = read_within(150, path)

    assert json.loads(done.stdout.splitlines()[-1]) == {"error": "needs more than 150 MiB of memory"}


def test_workers_load_neither_tenon_nor_tensorboard():
    program = (
        "import sys, tenon_dashboard.worker; print([m for m in ('tenon', 'tensorboard') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_modules_of_a_compiled_program_have_the_time_of_their_kernels(routes, tmp_path):
    kernel = {"Kernel": 1, "Source ops": ["linear"]}
    events = [
        span("cpu_op", "tenon::linear", 10, 20, Module="Net.a.0", Phase="forward", **kernel),
        span("cpu_op", "tenon::linear", 30, 30, Module="Net.a.1", Phase="forward", **kernel),
        span("cpu_op", "tenon::program", 5, 60, Program="<tenon program 1>", Module="Net", Phase="forward"),
        span("python_function", "nn.Module: Net_0", 0, 70, Module="Net", Phase="forward"),
    ]
    traces.write(tmp_path / "run", events)

    nodes = routes(tmp_path).view("modules")["nodes"]

    assert [(n["path"], n["forward"], n["own_forward"]) for n in nodes] == [
        ("Net", 70_000, 20_000),
        ("Net.a", 50_000, 0),
        ("Net.a.0", 20_000, 20_000),
        ("Net.a.1", 30_000, 30_000),
    ]


def test_a_slow_first_step_is_told_and_does_not_hide_what_is_usual(routes, tmp_path):
    events, at = [], 0.0
    for number in range(5):
        step, end = traces.training_step(number, at)
        if number == 0:  # 40 ms of Python at its end
            step[-1]["dur"] += 40_000
            end += 40_000
        events, at = events + step, end
    traces.write(tmp_path / "run", events)

    (told,) = routes(tmp_path).view("overview")["advice"]

    assert told.startswith("Step 0 took 13 times the median, on rank 0: the first one warms up or compiles.")


def test_a_run_of_more_spans_than_fit_does_without_some_timelines(routes, tmp_path, monkeypatch):
    from tenon_dashboard import readers

    traces.training_run(tmp_path / "run", ranks=3, steps=2, ops=10)
    asked = routes(tmp_path)
    whole = asked.json("/trace", run="run")
    size = sum(reading.bytes for reading in asked.dashboard._readers._readings.values())
    monkeypatch.setattr(readers, "MOST_BYTES", size - 1)

    cropped = asked.json("/trace", run="run")

    assert [lane["rank"] for lane in whole["lanes"]] == [0, 1, 2]
    assert [lane["rank"] for lane in cropped["lanes"]] == [0, 1]
    assert [file["cropped"] for file in cropped["files"]] == [False, False, True]
    assert asked.view("overview")["known"] == [0, 1, 2]
