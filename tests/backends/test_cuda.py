"""CUDA on a real device: every op's samples, the programs, training, transfers, memory.

``pytest -m cuda`` runs what is here; without a device all of it skips with the backend's own reason.
"""

import numpy as np
import pytest
from devices import compare
from programs import PROGRAMS
from training import OPTIMIZERS, train

import tenon
from tenon import nn
from tenon.errors import IndexRangeError, OutOfMemoryError
from tenon.kernels.backend import backend_named
from tenon.testing.suites.backend import BackendSuite

AVAILABLE = backend_named("cuda").is_available()
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not AVAILABLE.ok, reason=AVAILABLE.reason),
    pytest.mark.together,
]


class TestCudaBackend(BackendSuite):
    backend = "cuda"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_same_on_cuda(name):
    compare(PROGRAMS[name], "cuda")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_on_cuda_takes_the_same_steps(optimizer):
    expected, model, _ = train("cpu", optimizer)

    actual, other, _ = train("cuda", optimizer)

    assert actual == pytest.approx(expected, rel=1e-3)
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(
            other.state_dict()[name].cpu().numpy(), value.numpy(), rtol=1e-2, atol=1e-4
        )


def test_two_runs_end_with_the_same_bits():
    first, second = (train("cuda", "Adam", steps=6)[1].state_dict() for _ in range(2))

    assert all(tenon.equal(first[k], second[k]) for k in first)


def test_the_modules_note_on_devices():
    linear = nn.Linear(5, 3, device="cuda", dtype=tenon.float64)
    assert linear.weight.device == tenon.device("cuda", 0) and linear.weight.dtype is tenon.float64

    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    weight = net[0].weight
    net.to(device="cuda", dtype=tenon.float64)

    out = net(tenon.randn(4, device="cuda", dtype=tenon.float64))
    assert weight is net[0].weight and weight.is_cuda and out.is_cuda
    assert "device='cuda:0'" in repr(out)
    net.cpu()
    assert not net[0].weight.is_cuda


@pytest.mark.parametrize(
    "kind", [tenon.float32, tenon.float16, tenon.bfloat16, tenon.int64, tenon.bool, tenon.complex64]
)
def test_transfers_keep_values_dtypes_and_layout(kind):
    x = tenon.arange(24).reshape(2, 3, 4).to(kind)

    for part in (x, x.permute(2, 0, 1), x[:, ::2], x[..., 1], x.new_empty(0, 3)):
        there = part.to("cuda")

        assert there.is_cuda and there.dtype is kind and there.shape == part.shape
        assert tenon.equal(there.cpu(), part)
        assert tenon.equal(
            (there.permute(*reversed(range(there.ndim))) * 1).cpu(),
            part.permute(*reversed(range(part.ndim))) * 1,
        )


def test_indices_outside_raise_instead_of_wrapping():
    x, rows = tenon.arange(12.0, device="cuda").reshape(4, 3), tenon.tensor([0, 9], device="cuda")

    with pytest.raises(IndexRangeError):
        x[rows]
    with pytest.raises(IndexRangeError):
        x[rows] = 0.0


def test_singular_matrices_raise():
    with pytest.raises(RuntimeError, match="linalg"):
        tenon.linalg.cholesky(-tenon.eye(3, device="cuda"))


def test_memory_is_counted_and_given_back():
    tenon.cuda.empty_cache()
    before = tenon.cuda.memory_allocated()
    tenon.cuda.reset_peak_memory_stats()

    x = tenon.zeros(1024, 1024, device="cuda")
    held = tenon.cuda.memory_allocated()
    y = x + 1
    del x, y

    assert held - before == 4 * 1024 * 1024
    assert tenon.cuda.max_memory_allocated() - before >= 2 * 4 * 1024 * 1024
    assert tenon.cuda.memory_allocated() == before
    assert tenon.cuda.memory_reserved() >= before
    free, total = tenon.cuda.mem_get_info()
    assert 0 < free <= total


def test_training_steps_leave_no_memory_behind():
    train("cuda", "Adam", steps=2)
    before = tenon.cuda.memory_allocated()

    train("cuda", "Adam", steps=20)

    assert tenon.cuda.memory_allocated() <= before + 1024 * 1024


def test_a_full_device_says_so_and_goes_on():
    _, total = tenon.cuda.mem_get_info()

    with pytest.raises(OutOfMemoryError, match=r"cuda:0 is full.*smaller batches"):
        tenon.empty(total // 4 + 1, dtype=tenon.float32, device="cuda")

    assert tenon.ones(3, device="cuda").sum().item() == 3


def test_the_cuda_module_describes_the_device():
    assert tenon.cuda.is_available() and tenon.cuda.device_count() >= 1
    assert tenon.cuda.get_device_name() and tenon.cuda.get_device_capability() >= (5, 0)
    with tenon.cuda.device(0):
        assert tenon.cuda.current_device() == 0
    start, end = tenon.cuda.Event(enable_timing=True), tenon.cuda.Event(enable_timing=True)
    start.record()
    tenon.randn(512, 512, device="cuda").matmul(tenon.randn(512, 512, device="cuda"))
    end.record()
    tenon.cuda.synchronize()
    assert start.elapsed_time(end) > 0


@pytest.mark.skipif(tenon.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_devices_work_side_by_side():
    x, y = tenon.ones(3, device="cuda:0"), tenon.ones(3, device="cuda:1", requires_grad=True)

    (x.to("cuda:1") * y).sum().backward()

    assert str(y.grad.device) == "cuda:1" and (x + 1).device == tenon.device("cuda", 0)
    with pytest.raises(RuntimeError, match="same device"):
        x + y.detach()


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_saved_tensors_come_back_to_cuda(suffix, tmp_path):
    state = nn.Linear(3, 2, device="cuda").state_dict()
    tenon.save(dict(state), tmp_path / f"m.{suffix}")

    back, home = (
        tenon.load(tmp_path / f"m.{suffix}"),
        tenon.load(tmp_path / f"m.{suffix}", map_location="cpu"),
    )

    assert {str(t.device) for t in back.values()} == {"cuda:0"} and {
        str(t.device) for t in home.values()
    } == {"cpu"}
    assert all(tenon.equal(home[k], v.cpu()) for k, v in state.items())
