"""What torch's users ask of events and tables."""

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

    for one, other in (
        (ours.events(), theirs.events()),
        (ours.key_averages(True), theirs.key_averages(True)),
    ):
        (mine,) = [e for e in one if e.key == "tenon::matmul"]
        (its,) = [e for e in other if e.key == "aten::matmul"]
        assert [type(getattr(mine, n)) for n in names if n != "flops"] == [
            type(getattr(its, n)) if "device" not in n else float for n in names if n != "flops"
        ]
        assert (mine.key, mine.count, mine.input_shapes) == ("tenon::matmul", its.count, its.input_shapes)
        assert mine.cpu_memory_usage == its.cpu_memory_usage == 64
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
    with pytest.raises(ArgumentError, match="time_unit='h' is none of s, ms, us"):
        rows.table(time_unit="h")


def test_the_older_face_has_its_sums():
    with tenon.autograd.profiler.profile() as prof:
        tenon.ones(3) + 1

    assert prof.total_average().count == len(prof.function_events)
    assert prof.self_cpu_time_total == pytest.approx(prof.total_average().self_cpu_time_total)
    assert prof.key_averages(group_by_overload_name=True).table() == prof.key_averages().table()
