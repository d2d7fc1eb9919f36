"""Ops of a device that goes on by itself: launches on the host, kernels by marks in the device's stream."""

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
