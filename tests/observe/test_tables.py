"""Attributes of events and tables that torch's users rely on."""

import warnings

import pytest

import tenon
import tenon.profiler
from tenon.errors import ArgumentError


def profiled(library, module):
    x = library.ones(4, 4)
    with module.profile(record_shapes=True, profile_memory=True) as prof:
        (x @ x).sum()
    return prof


@pytest.mark.oracle
def test_events_and_sums_answer_what_torchs_answer():
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = profiled(torch, torch.profiler)
    ours = profiled(tenon, tenon.profiler)
    names = ["cpu_time", "cpu_time_total", "self_cpu_time_total", "cpu_time_str", "cpu_time_total_str"]
    names += ["self_cpu_time_total_str", "device_time", "device_time_total", "self_device_time_total", "key"]
    names += ["count", "flops", "cpu_memory_usage", "self_cpu_memory_usage", "input_shapes", "stack"]
    names += ["device_time_str", "device_time_total_str", "self_device_time_total_str", "overload_name"]
    names += [
        "device_memory_usage",
        "self_device_memory_usage",
        "node_id",
        "is_async",
        "is_remote",
        "is_legacy",
    ]

    for one, other in (
        (ours.events(), theirs.events()),
        (ours.key_averages(True), theirs.key_averages(True)),
    ):
        (mine,) = [e for e in one if e.key == "tenon::matmul"]
        (its,) = [e for e in other if e.key == "aten::matmul"]
        assert [type(getattr(mine, n)) for n in names if n != "flops"] == [
            float if n.endswith(("device_time", "device_time_total")) else type(getattr(its, n))
            for n in names
            if n != "flops"
        ]
        assert (mine.key, mine.count, mine.input_shapes) == ("tenon::matmul", its.count, its.input_shapes)
        assert mine.cpu_memory_usage == its.cpu_memory_usage == 64
        assert mine.device_type.name == its.device_type.name == "CPU"
    (event,) = [e for e in ours.events() if e.key == "tenon::matmul"]
    assert event.time_range.elapsed_us() == pytest.approx(event.cpu_time_total, abs=1)
    assert event.time_range.start < event.time_range.end


@pytest.mark.parametrize(
    "name", ["cuda_time_total", "self_cuda_time_total", "cpu_time", "device_time", "count"]
)
def test_tables_are_sorted_by_what_torch_sorts_by(name):
    rows = profiled(tenon, tenon.profiler).key_averages()

    assert "tenon::matmul" in rows.table(sort_by=name, row_limit=5)
    assert str(rows) == rows.table()


def test_times_of_a_table_are_in_the_unit_that_is_asked_for():
    rows = profiled(tenon, tenon.profiler).key_averages()

    lines = rows.table(time_unit="ms").splitlines()

    assert next(line for line in lines if "tenon::matmul" in line).count("ms") == 3
    with pytest.raises(ArgumentError, match="time_unit='h' is not one of s, ms, us"):
        rows.table(time_unit="h")


def test_the_older_face_has_its_sums():
    with tenon.autograd.profiler.profile() as prof:
        tenon.ones(3) + 1

    assert prof.total_average().count == len(prof.function_events)
    assert prof.self_cpu_time_total == pytest.approx(prof.total_average().self_cpu_time_total)
    assert prof.key_averages(group_by_overload_name=True).table() == prof.key_averages().table()


#: Of torch.profiler and its classes, what docs/guide/profiler.md says is not here, and what are helpers.
ABSENT = {
    "profiler": {
        "ExecutionTraceObserver", "KinetoStepTracker", "RecordScope", "is_fbcode", "profiler",
        "Optimizer", "register_optimizer_step_post_hook", "Any", "TypeVarTuple", "Unpack", "os",
    },
    "profile": {"prepare_trace", "start_trace", "stop_trace"},
    "EventList": {"export_chrome_trace"},
}  # fmt: skip


@pytest.mark.oracle
def test_public_names_are_torchs_but_those_that_the_guide_names():
    torch = pytest.importorskip("torch")
    pairs = {
        "profiler": (torch.profiler, tenon.profiler),
        "profile": (torch.profiler.profile, tenon.profiler.profile),
        "EventList": (torch.autograd.profiler.EventList, tenon.autograd.profiler.EventList),
    }

    for name, (theirs, ours) in pairs.items():
        missing = {n for n in dir(theirs) if not n.startswith("_") and not hasattr(ours, n)}
        assert missing == ABSENT[name], name
    with pytest.raises(tenon.errors.UnsupportedError, match="emit_nvtx: ranges cannot be sent to NVTX"):
        tenon.autograd.profiler.emit_nvtx().__enter__()


def test_words_that_scripts_pass_to_torch_are_taken(tmp_path, training):
    handler = tenon.profiler.tensorboard_trace_handler(tmp_path / "runs", use_python_export=True)
    names = iter(("first", "second"))

    with tenon.profiler.profile(
        activities=[tenon.profiler.ProfilerActivity.CPU], use_cuda=False, on_trace_ready=handler, with_stack=True,
        custom_trace_id_callback=lambda: next(names),
    ) as prof:  # fmt: skip
        prof.preset_metadata_json("sizes", "[1, 2]")
        training.step()

    (path,) = (tmp_path / "runs").iterdir()
    assert tenon.profiler.read_trace(path)[0]["tenon"]["metadata"] == {"trace_id": "first"}
    assert prof.get_trace_id() == "first" and tenon.profiler.kineto_available()
    prof.events().export_stacks(tmp_path / "one", "self_cpu_time_total")
    prof.export_stacks(tmp_path / "two")
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text() != ""
    assert "self_cuda_time_total" in tenon.profiler.EventList.supported_export_stacks_metrics()
    assert {e.device_type for e in prof.events()} == {tenon.profiler.DeviceType.CPU}
    with tenon.autograd.profiler.profile(use_cuda=False, use_kineto=True, use_device=None) as older:
        training.step()
    assert "tenon::linear" in older.table()
    with pytest.raises(
        ArgumentError, match=r"expected some of ProfilerActivity\.CPU, ProfilerActivity\.CUDA"
    ):
        tenon.profiler.profile(activities=[{"CPU": ["aten::mm"]}])


def test_events_made_by_hand_are_nested_and_summed():
    from tenon.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg

    spans = [(1, 0, 4), (1, 1, 2), (1, 2, 6), (1, 3, 4), (2, 3, 4)]  # thread, begin, end
    events = EventList(
        FunctionEvent(id=i, name=f"on {t}", thread=t, start_us=a, end_us=b)
        for i, (t, a, b) in enumerate(spans)
    )
    total = FunctionEventAvg()

    events._populate_cpu_children()
    assert total.add(events[0]).add(events[2]) is total
    total.add(total)

    assert [[child.id for child in event.cpu_children] for event in events] == [[1], [], [3], [], []]
    assert [event.cpu_parent and event.cpu_parent.id for event in events] == [None, 0, None, 2, None]
    assert (total.key, total.count, total.cpu_time_total, total.cpu_time) == ("on 1", 4, 16, 4)
    assert total.self_cpu_time_total == 2 * (3 + 3)
