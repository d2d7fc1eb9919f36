"""Trace files: their format, truncated files of killed programs, and what torch-tb-profiler reads of them."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

import tenon
from tenon.cli import main
from tenon.errors import TraceError
from tenon.profiler import merge, profile, read_trace, schedule, tensorboard_trace_handler
from tenon_profiler import recording

PROGRAMS = Path(__file__).parent / "programs"
FULL = {"record_shapes": True, "profile_memory": True, "with_modules": True, "with_flops": True}


def written(training, folder, **options):
    """The path of a trace of three steps, with a span of loading data in each."""
    from tenon.data import DataLoader, TensorDataset

    handler = tensorboard_trace_handler(folder, **options)
    loader = iter(DataLoader(TensorDataset(training.x.repeat(4, 1)), batch_size=32))
    with profile(
        schedule=schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=handler,
        with_stack=True,
        **FULL,
    ) as prof:
        for _ in range(4):
            next(loader)
            training.step()
            prof.step()
    (path,) = Path(folder).iterdir()
    return path


@pytest.mark.parametrize("zipped", [False, True])
def test_a_trace_is_one_json_object_with_an_event_a_line(tmp_path, training, zipped):
    path = written(training, tmp_path, use_gzip=zipped)

    host = re.escape(os.uname().nodename)
    assert re.fullmatch(rf"{host}_0\.\d+\.pt\.trace\.json" + (r"\.gz" if zipped else ""), path.name)
    text = (gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()).decode()
    whole = json.loads(text)
    lines = text.splitlines()
    assert lines[0].endswith('"traceEvents": [') and lines[-1].startswith('], "tenonEnd": ')
    assert [json.loads(line.removesuffix(",")) for line in lines[1:-1]] == whole["traceEvents"]
    assert whole["schemaVersion"] == 1 and whole["tenon"]["format"] == 1
    assert whole["tenon"]["machine"]["flops_per_second"] > 1e6
    header, events = read_trace(path)
    assert header["tenon"] == whole["tenon"]
    assert list(events) == whole["traceEvents"]


def test_traces_of_the_first_format_are_read():
    for rank, path in enumerate(sorted((PROGRAMS.parent / "data" / "digits").iterdir())):
        header, events = read_trace(path)

        assert (header["tenon"]["rank"], header["distributedInfo"]["world_size"]) == (rank, 2)
        names = [event["name"] for event in events]
        assert names.count("gloo:all_reduce") == 8 and names[-1] == "Record Window End"
        assert {"ProfilerStep#2", "ProfilerStep#3", "tenon::convolution"} <= set(names)


def test_events_have_the_fields_that_the_format_states(tmp_path, training):
    _, found = read_trace(written(training, tmp_path))
    events = list(found)

    spans = [e for e in events if e["ph"] == "X"]
    for event in spans:
        assert {"cat", "name", "pid", "tid", "ts", "dur", "args"} <= event.keys()
        assert isinstance(event["tid"], int) and event["dur"] >= 0
    identities = [e["args"]["External id"] for e in spans if e["cat"] != "python_function"]
    assert len(set(identities)) == len(identities)
    linear = next(e for e in spans if e["name"] == "tenon::linear")
    assert linear["cat"] == "cpu_op" and linear["args"]["Module"] == "Net.body.0"
    assert linear["args"]["Input type"] == ["float"] * 3 and linear["args"]["Bytes"] > 0
    assert re.fullmatch(r".*conftest\.py\(\d+\): forward;.*", linear["args"]["Call stack"])
    module = next(e for e in spans if e["name"] == "nn.Module: Linear_0")
    assert {"Python id", "Python parent id", "Python module id"} <= module["args"].keys()
    memory = next(e for e in events if e["name"] == "[memory]")
    assert {"Bytes", "Addr", "Device Type", "Device Id", "Total Allocated", "Op"} <= memory["args"].keys()
    names = {e["name"] for e in spans}
    assert {"ProfilerStep#1", "backward", "Optimizer.step#SGD.step", "AddmmBackward0"} <= names
    assert "enumerate(DataLoader)#Iteration.__next__" in names


def test_spans_of_a_thread_nest(tmp_path, training):
    _, found = read_trace(written(training, tmp_path))

    spans = sorted((e for e in found if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"]))
    stack = []
    for event in spans:
        end = event["ts"] + event["dur"]
        while stack and stack[-1] < end - 1e-3 and stack[-1] <= event["ts"] + 1e-3:
            stack.pop()
        assert not stack or end <= stack[-1] + 2e-3, event
        stack.append(end)


def test_an_exported_trace_says_what_the_streamed_one_says(tmp_path, training):
    with profile(on_trace_ready=tensorboard_trace_handler(tmp_path / "run"), **FULL) as prof:
        prof.add_metadata("note", "a test")
        prof.add_metadata_json("sizes", "[1, 2]")
        training.step()

    prof.export_chrome_trace(tmp_path / "other.json.gz")

    (streamed,) = (tmp_path / "run").iterdir()
    first, events = read_trace(streamed)
    second, others = read_trace(tmp_path / "other.json.gz")
    assert list(events) == list(others)
    assert first["tenon"]["pid"] == second["tenon"]["pid"]
    assert second["tenon"]["metadata"] == {"note": "a test", "sizes": [1, 2]}


@pytest.mark.parametrize("streams", [True, False])
def test_events_beyond_the_limit_are_read_back_from_the_file(tmp_path, training, monkeypatch, streams):
    monkeypatch.setattr(recording, "LIMIT", 60)
    monkeypatch.setattr(recording, "WAITING", 100)
    handler = tensorboard_trace_handler(tmp_path) if streams else None

    with profile(schedule=schedule(wait=0, warmup=0, active=20, repeat=1), on_trace_ready=handler) as prof:
        for _ in range(20):
            training.step()
            prof.step()

    assert len(prof._done.events) == 0
    assert {row.key: row.count for row in prof.key_averages()}["tenon::linear"] == 40
    prof.export_chrome_trace(tmp_path / "all.json")
    assert sum(e["name"] == "tenon::linear" for e in read_trace(tmp_path / "all.json")[1]) == 40


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_was_flushed_outlives_the_program(tmp_path, number):
    program = subprocess.Popen(
        [sys.executable, PROGRAMS / "endless.py", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    for _ in program.stdout:
        if sum(path.stat().st_size for path in tmp_path.iterdir()) > 20_000:
            break
    program.send_signal(number)
    program.stdout.close()
    program.wait(timeout=300)

    (path,) = tmp_path.iterdir()
    assert path.name.endswith(".part") == (number == signal.SIGKILL)
    steps = [e["name"] for e in read_trace(path)[1] if e["name"].startswith("ProfilerStep#")]
    assert len(steps) > 20
    assert steps == [f"ProfilerStep#{i}" for i in range(len(steps))]
    shown = CliRunner().invoke(main, ["profile", "show", str(tmp_path)])
    assert shown.exit_code == 0 and re.search(r"^ *linear ", shown.output, re.M)


@pytest.mark.manual
@pytest.mark.parametrize("what", ["shapes", "memory"])
def test_a_million_ops_are_profiled_in_less_than_300_megabytes(tmp_path, what):
    done = subprocess.run(
        [sys.executable, PROGRAMS / "million.py", tmp_path, what],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    assert int(done.stdout) < 300
    (path,) = tmp_path.iterdir()
    found = Counter(e["name"] for e in read_trace(path)[1])
    assert found["tenon::add"] == 1_000_000
    assert found["[memory]"] == (2_000_000 if what == "memory" else 0)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1, 2]", b'{"traceEvents": []}', b'[], "traceEvents": [\n', b"\x1f\x8bnonsense"]
)
def test_what_is_not_a_trace_is_reported(tmp_path, content):
    path = tmp_path / "x.pt.trace.json"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=r"x\.pt\.trace\.json is not a trace"):
        read_trace(path)


@pytest.mark.parametrize("others", [None, ("0,2", "1,3"), ("0-3 #2", "0-3 #2")])
def test_unknown_hosts_are_aligned_by_their_collectives(tmp_path, others):
    for rank, late in ((0, 0.0), (1, 5000.0)):
        clock = {"id": f"host {rank}", "offset_ns": 0, "error_ns": 0, "aligned": False}
        own = {"format": 1, "rank": rank, "host": f"h{rank}", "pid": 1, "clock": clock, "started_ns": 10**18}
        lines = [json.dumps({"baseTimeNanoseconds": 10**18, "tenon": own})[:-1] + ', "traceEvents": [']
        calls = [(100.0 * number, {"Number": number}) for number in range(5)]
        if others is not None:  # the same numbers again, which these two ranks come to in another order
            calls = [(ts, args | {"Group": "0-3"}) for ts, args in calls]
            second = [(ts + 5e5, args | {"Group": others[rank]}) for ts, args in calls]
            calls = second + calls if rank else calls + second
        for ts, args in calls:
            event = {"ph": "X", "cat": "tenon_wait", "name": "wait: all_reduce", "pid": 1, "tid": 1}
            event |= {"ts": ts + late, "dur": 7.0, "args": args}
            lines.append(json.dumps(event) + ",")
        (tmp_path / f"h{rank}_{rank}.1.pt.trace.json").write_text("\n".join(lines))

    _, events = read_trace(merge(tmp_path))

    waits = [(e["pid"], e["ts"]) for e in events if e["ph"] == "X"]
    assert sorted(ts for pid, ts in waits if pid == 0) == sorted(ts for pid, ts in waits if pid == 1)


@pytest.fixture
def parse():
    data = pytest.importorskip("torch_tb_profiler.profiler.data")
    return lambda path: data.RunProfileData.from_json("w", None, json.loads(_text(path)))


def _text(path):
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_torch_tb_profiler_fills_its_views(tmp_path, training, parse):
    from torch_tb_profiler.profiler.event_parser import ProfileRole
    from torch_tb_profiler.profiler.module_op import aggegate_module_view

    found = parse(written(training, tmp_path))

    assert found.steps_names == ["1", "2", "3"]
    costs = found.avg_costs.costs
    assert costs[ProfileRole.Total] > costs[ProfileRole.CpuOp] > 0
    assert costs[ProfileRole.DataLoader] > 0
    operators = {op.name: op for op in found.op_list_groupby_name}
    assert operators["tenon::linear"].calls == 6 and operators["AddmmBackward0"].calls == 6
    assert any(op.input_shape != "[]" for op in found.op_list_groupby_name_input)
    assert found.stack_lists_group_by_name["tenon::linear"]
    assert found.memory_snapshot.get_peak_memory()
    (root,) = aggegate_module_view(found.tid2tree, found.events)
    assert root.name == "Net_0" and root.occurences == 3
    assert {child.name for child in root.children} == {"Sequential_0", "Linear_1"}


@pytest.mark.slow
def test_two_ranks_fill_the_distributed_view_and_share_a_clock(two_ranks, parse):
    paths = sorted(two_ranks.glob("*.pt.trace.json.gz"))
    assert [re.search(r"_(\d)\.\d+\.pt", path.name)[1] for path in paths] == ["0", "1"]

    ranks = [parse(path) for path in paths]
    for rank, found in enumerate(ranks):
        assert found.distributed_info == {"backend": "gloo", "rank": rank, "world_size": 2}
        assert found.has_communication and found.comm_node_list
    counts = [len(found.comm_node_list) for found in ranks]
    assert counts[0] == counts[1] > 0

    waits = []
    for path in paths:
        header, events = read_trace(path)
        assert header["tenon"]["clock"]["aligned"]
        spans = {
            (e["name"], e["args"]["Number"]): (e["ts"], e["ts"] + e["dur"])
            for e in events
            if e.get("cat") == "tenon_wait" and "Number" in e["args"]
        }
        waits.append(spans)
    shared = waits[0].keys() & waits[1].keys()
    assert len(shared) >= 4
    for key in shared:
        (begun, ended), (begun_there, ended_there) = waits[0][key], waits[1][key]
        assert max(begun, begun_there) < min(ended, ended_there) + 1000, "nobody leaves before all have come"


def test_a_collective_is_its_wait_and_its_transfer(two_ranks):
    path = sorted(two_ranks.glob("*.pt.trace.json.gz"))[0]
    events = list(read_trace(path)[1])

    collectives = [e for e in events if e["name"] == "gloo:all_reduce"]
    assert collectives and all(e["args"]["Ranks"] == [0, 1] for e in collectives)
    assert {e["args"]["Group"] for e in collectives} == {"0-1"}
    for event in collectives:
        parts = event["args"]["Wait us"] + event["args"]["Transfer us"]
        assert parts == pytest.approx(event["dur"], abs=0.01)
    assert any("model 1" in e["args"].get("Label", "") and e["args"]["Bytes"] > 1000 for e in collectives)


def test_the_merged_trace_holds_all_ranks(two_ranks):
    header, found = read_trace(two_ranks / "merged.trace.json.gz")
    events = list(found)

    assert len(header["tenon"]["merged"]) == 2
    assert {e["pid"] for e in events} == {0, 1}
    for rank in (0, 1):
        own = [e["name"] for e in events if e["pid"] == rank]
        assert (
            own.count("ProfilerStep#2") == 1 and "Optimizer.step#Adam.step" in own
        ) or "tenon::convolution" in own
    assert json.loads(gzip.decompress((two_ranks / "merged.trace.json.gz").read_bytes()))["traceEvents"]


def test_the_overview_in_the_terminal_is_of_all_ranks(two_ranks):
    done = CliRunner().invoke(
        main, ["profile", "show", str(two_ranks), "--limit", "30"], env={"COLUMNS": "80"}
    )

    assert done.exit_code == 0, done.output
    assert "Where a step's time goes" in done.output and "Ops of rank 0" in done.output
    rows = [line for line in done.output.splitlines() if re.match(r" [01] +\d", line)]
    assert len(rows) == 2 and all(row.count("%") == 6 for row in rows)
    assert "communication" in done.output and "ConvolutionBackward0" in done.output and "…" not in done.output
    missing = CliRunner().invoke(main, ["profile", "show", str(two_ranks), "--rank", "7"])
    assert missing.exit_code == 1 and "has no trace of rank 7" in missing.output


def test_a_profile_without_steps_is_one_step_in_the_terminal(tmp_path):
    with profile(profile_memory=True, on_trace_ready=tensorboard_trace_handler(tmp_path)):
        x = tenon.ones(64, 64)
        x = x @ x
        del x

    shown = CliRunner().invoke(main, ["profile", "show", str(tmp_path)], env={"COLUMNS": "80"}).output
    (row,) = (line.split() for line in shown.splitlines() if re.match(r" 0 +\d", line))
    assert row[1] == "1" and float(row[2]) > 0
    assert sum(float(cell.rstrip("%")) for cell in row[4:]) == pytest.approx(100, abs=0.5)
    assert re.search(r"^ matmul .*16\.00 KB", shown, re.M) and re.search(r"^ \[memory\] ", shown, re.M)


@pytest.mark.slow
def test_a_run_too_short_for_its_profile_ends_well(tmp_path):
    options = ["--profile", "--set", "profile.skip_first=100", "--set", "epochs=1", "--set", "batch_size=512"]

    done = CliRunner().invoke(main, ["train", "digits", "--run", str(tmp_path / "run"), *options])

    assert done.exit_code == 0, done.output
    assert not list((tmp_path / "run").glob("*trace*"))
    assert "profile: no step was recorded, because the run ended before its step" in done.output


def test_a_single_run_is_profiled_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(
        'recipe = "digits"\nepochs = 1\nbatch_size = 512\n[profile]\nactive = 1\nskip_first = 1\nwarmup = 0\n'
    )

    done = CliRunner().invoke(main, ["train", "small.toml"])

    assert done.exit_code == 0, done.output
    assert f"profile: tensorboard --logdir {tmp_path / 'runs'}, tab tenon" in done.output
    (path,) = tmp_path.glob("runs/*/*.pt.trace.json.gz")
    assert not list(tmp_path.glob("runs/*/merged*"))
    assert "tenon::convolution" in {e["name"] for e in read_trace(path)[1]}
    assert tenon.engine.watchers.WATCHERS.span is None
