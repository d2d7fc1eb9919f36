"""Ops of an asynchronous device: launches on the host, kernels by marks in the device's stream."""

import json
from pathlib import Path

import pytest

import tenon
from tenon.plugins.manager import register, unregister
from tenon.profiler import profile, read_trace


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "backends"))
    import fake_device

    register(fake_device, "fake_device")
    yield "fake"
    unregister("fake_device")


def test_kernels_are_tied_to_their_launches(tmp_path, fake, training):
    x = tenon.ones(8, 8, device=fake).requires_grad_()

    with profile(record_shapes=True) as prof:
        (x @ x).sum().backward()
        training.step()

    prof.export_chrome_trace(tmp_path / "trace.json")
    events = list(read_trace(tmp_path / "trace.json")[1])
    kernels = [e for e in events if e.get("cat") == "kernel"]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "runtime"}
    ops = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op"}
    assert len(kernels) == len(launches) and sum(e["name"] == "tenon::matmul" for e in kernels) == 3
    for kernel in kernels:
        launch, op = launches[kernel["args"]["correlation"]], ops[kernel["args"]["External id"]]
        assert op["name"] == kernel["name"] and launch["ts"] == op["ts"]
        assert kernel["pid"] == kernel["args"]["device"] == 0
    assert sum(e["name"] == "tenon::linear" for e in kernels) == 0  # those ran on the host
    assert all(event.self_cpu_time_total >= 0 for event in prof.events())
    row = next(row for row in prof.key_averages() if row.key == "tenon::matmul")
    assert row.self_cpu_time_total > 0
    ran = sum(e["dur"] for e in kernels if e["name"] == "tenon::matmul")
    assert row.self_device_time_total == row.device_time_total == pytest.approx(ran, abs=0.01)
    assert "Self device" in prof.key_averages().table(sort_by="self_cuda_time_total")


def test_memory_of_a_device_is_apart_from_the_hosts_and_has_its_owner(tmp_path, fake):
    x, y = tenon.ones(8, 8, device=fake), tenon.ones(4)

    with profile(profile_memory=True) as prof:
        held = x @ x
        other = y + 1.0
        view = held.t()
        del view, held

    changes = [e for e in prof._all() if e.name == "[memory]" and not e.get("Program")]
    there = [e for e in changes if e.get("Device Id") == 0]
    assert [e.get("Bytes") for e in there] == [256, -256] and other.tolist() == [2] * 4
    assert [e.get("Total Allocated") for e in there] == [256, 0]
    assert all(e.get("Device Type") == 1 and e.get("Op") == "tenon::matmul" for e in there)
    assert [e.get("Bytes") for e in changes if e.get("Device Id") == -1] == [16]
    row = next(row for row in prof.key_averages() if row.key == "tenon::matmul")
    assert (row.self_device_memory_usage, row.self_cpu_memory_usage) == (256, 0)
    assert "Self Device Mem" in prof.key_averages().table(sort_by="self_device_memory_usage")
    prof.export_memory_timeline(tmp_path / "m.json", "cuda:0")
    assert [sum(each) for each in json.loads((tmp_path / "m.json").read_text())[1]] == [256, 0]


@pytest.mark.filterwarnings("ignore:The copy keyword is deprecated")
def test_torch_tb_profiler_lists_the_kernels(tmp_path, fake):
    data = pytest.importorskip("torch_tb_profiler.profiler.data")
    x = tenon.ones(8, 8, device=fake)
    with profile() as prof:
        for _ in range(3):
            x @ x

    prof.export_chrome_trace(tmp_path / "trace.json")

    found = data.RunProfileData.from_json("w", None, json.loads((tmp_path / "trace.json").read_text()))
    assert found.has_kernel and found.has_runtime
    assert [(row.name, row.op_name, row.calls) for row in found.kernel_list_groupby_name_op] == [
        ("tenon::matmul", "tenon::matmul", 3)
    ]
