"""What of CUDA can be tested anywhere: why it cannot be used, what then happens, and the backend's own logic."""

import importlib
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from strict_arrays import Place
from stub_cuda import Library, RuntimeFailure, stub_backend
from training import train

import tenon
from tenon import nn
from tenon.device import Device
from tenon.engine.op import table
from tenon.errors import BackendUnavailableError, DeviceError, OutOfMemoryError
from tenon.kernels import backend as backends
from tenon_cuda import library
from tenon_cuda.backend import CudaBackend
from tenon_cuda.marks import Mark

HERE = CudaBackend().is_available()
without_cuda = pytest.mark.skipif(HERE.ok, reason="this machine has a CUDA device")


def cupy(version="14.2.0", driver=13000, built=12090, count=1, refusal=None, compiler=None):
    """The part of CuPy that ``library.examine`` reads."""

    def devices():
        if refusal is not None:
            raise refusal
        return count

    def nvrtc():
        if compiler is not None:
            raise compiler
        return 13, 0

    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeFailure,
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: built,
        getDeviceCount=devices,
    )
    return SimpleNamespace(
        __version__=version, cuda=SimpleNamespace(runtime=runtime, nvrtc=SimpleNamespace(getVersion=nvrtc))
    )


def fails(error):
    def importing():
        raise error

    return importing


@pytest.mark.parametrize(
    ("installation", "reason"),
    [
        (cupy(driver=0), r"no NVIDIA driver.*--gpus all"),
        (cupy(count=0), r"no device is visible.*CUDA_VISIBLE_DEVICES"),
        (cupy(refusal=RuntimeFailure(100, "cudaErrorNoDevice")), r"no device is visible"),
        (cupy(driver=11080, refusal=RuntimeFailure(35, "insufficient")), r"built for CUDA 12\.9.*supports only 11\.8.*Update"),
        (cupy(refusal=RuntimeFailure(803, "driver mismatch")), r"driver mismatch.*nvidia-smi"),
        (cupy(compiler=OSError("libnvrtc.so.13: no such file")), r"NVRTC.*libnvrtc\.so\.13.*pip install"),
        (cupy(version="12.3.0"), r"12\.3\.0 is too old, 14\.2 or newer.*pip install"),
        (cupy(refusal=ValueError("odd")), r"CUDA cannot be used: ValueError: odd"),
    ],
)  # fmt: skip
def test_each_reason_is_told_with_a_remedy(installation, reason):
    answer = library.examine(lambda: True, lambda: installation)

    assert not answer.ok
    assert __import__("re").search(reason, answer.reason), answer.reason


def test_a_missing_and_a_broken_cupy_are_distinguished():
    missing = library.examine(lambda: False, fails(AssertionError("not asked")))
    broken = library.examine(lambda: True, fails(ImportError("libcublas.so.12: cannot open")))

    assert (
        missing == (False, missing.reason)
        and "not installed" in missing.reason
        and "tenon-platform[cuda12]" in missing.reason
    )
    assert "cannot be imported" in broken.reason and "libcublas.so.12" in broken.reason


def test_a_working_installation_is_described():
    answer = library.examine(lambda: True, lambda: cupy(count=2))

    assert answer.ok and answer.reason == "CuPy 14.2.0, CUDA 12.9, driver for 13.0, 2 device(s)"


@without_cuda
@pytest.mark.parametrize(
    "use",
    [
        lambda: tenon.zeros(2, device="cuda"),
        lambda: tenon.ones(2).cuda(),
        lambda: tenon.ones(2).to("cuda:1"),
        lambda: tenon.randn(2, device="cuda", dtype=tenon.float64),
        lambda: nn.Linear(2, 2, device="cuda"),
        lambda: tenon.tensor([1], device="cuda"),
        lambda: tenon.cuda.current_device(),
        lambda: tenon.cuda.set_device(0),
        lambda: tenon.cuda.synchronize(),
        lambda: tenon.cuda.get_device_name(),
        lambda: tenon.cuda.init(),
        lambda: tenon.cuda.mem_get_info(),
        lambda: tenon.cuda.Event().record(),
    ],
)
def test_using_cuda_where_there_is_none_is_one_clear_error(use):
    with pytest.raises(DeviceError) as caught:
        use()

    assert HERE.reason in str(caught.value) and "cuda" in str(caught.value)


@without_cuda
def test_a_module_that_cannot_move_stays_as_it_was():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    kept = {k: (id(v), v.clone()) for k, v in [*model.named_parameters(), *model.named_buffers()]}

    for move in (lambda: model.to("cuda"), lambda: model.cuda(), lambda: model.to("cuda", tenon.float64)):
        with pytest.raises(DeviceError):
            move()

    now = dict([*model.named_parameters(), *model.named_buffers()])
    for name, (identity, value) in kept.items():
        assert id(now[name]) == identity and now[name].dtype == value.dtype and tenon.equal(now[name], value)


@without_cuda
def test_the_cuda_module_answers_without_a_device():
    state = tenon.get_rng_state()

    tenon.cuda.manual_seed(3)
    tenon.cuda.manual_seed_all(3)
    tenon.cuda.empty_cache()
    tenon.cuda.set_device(-1)
    with tenon.cuda.device(None), tenon.cuda.device(-1):
        pass

    assert tenon.equal(tenon.get_rng_state(), state)
    assert tenon.cuda.is_available() is False and tenon.cuda.device_count() == 0
    assert tenon.cuda.is_initialized() is False and tenon.cuda.is_bf16_supported() is False
    assert (
        tenon.cuda.memory_allocated()
        == tenon.cuda.memory_reserved()
        == tenon.cuda.max_memory_allocated()
        == 0
    )
    assert tenon.cuda.availability() == HERE


def test_asking_loads_cupy_but_importing_does_not():
    program = (
        "import sys, tenon, tenon.cuda, tenon_cuda.backend as b\n"
        "b.CudaBackend()\n"
        "tenon.zeros(2); assert 'cupy' not in sys.modules\n"
        "tenon.cuda.is_available()"
    )

    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


@pytest.fixture
def one():
    yield stub_backend()
    Place.current = 0


@pytest.fixture
def two():
    yield stub_backend(2)
    Place.current = 0


def test_arrays_know_their_device_and_kernels_run_on_it(two):
    x = two.from_host(np.ones(3), Device("cuda", 1))

    y = two.kernels[table.add](x, x)

    assert two.device_of(x) == two.device_of(y) == Device("cuda", 1)
    assert two.device_of(two.from_host(np.ones(3), Device("cuda"))) == Device("cuda", 0)
    assert two.current_device() == 0 and two.devices() == (Device("cuda", 0), Device("cuda", 1))
    assert two.to_host(y).tolist() == [2, 2, 2]


def test_arrays_on_two_devices_do_not_mix(two):
    x, y = (two.from_host(np.ones((2, 3)), Device("cuda", i)) for i in (0, 1))

    with pytest.raises(DeviceError, match=r"same device.*add got \[2, 3\] on cuda:0, \[2, 3\] on cuda:1"):
        two.kernels[table.add](x, y)


def test_setting_the_device_changes_what_cuda_means(two):
    two.set_device(1)

    assert two.current_device() == 1
    assert two.device_of(two.empty((2,), np.dtype(np.float32), Device("cuda"))) == Device("cuda", 1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_full_device_is_reported_with_numbers_and_what_to_do(count):
    backend = stub_backend(count)
    backend.library.exhausted = True
    x = backend.from_host(np.ones(3), Device("cuda", 0))

    with pytest.raises(
        OutOfMemoryError, match=r"empty: cuda:0 is full: .*4,096 bytes.*has 1,000.*smaller batches"
    ):
        backend.empty((1024,), np.dtype(np.float32), Device("cuda", 0))
    with pytest.raises(MemoryError, match=r"copy: cuda:0 is full"):
        backend.kernels[table.copy](x, x)


def test_the_peak_of_memory_is_watched(one):
    lib = one.library
    lib.allocate(300)
    lib._pool.used = 100

    stats = one.memory()
    one.reset_peak()

    assert (stats.used, stats.peak, stats.total) == (100, 300, 1000)
    assert one.memory().peak == 100
    assert one.reserved() == 300
    one.release()
    assert one.reserved() == 100
    assert one.mem_info(0) == (600, 1000)


def test_an_allocator_of_the_users_own_stays():
    backend = stub_backend()
    mine = lambda size: None  # noqa: E731
    backend.source.imported()._set(mine)

    assert backend.library.cuda.get_allocator() is mine


def test_marks_measure_in_nanoseconds(one):
    first, second = one.mark(), one.mark()

    assert isinstance(first, Mark)
    assert second - first == 1_000_000
    assert int(second) - int(first) == 1_000_000


def test_the_library_is_loaded_only_where_it_can_be_used():
    class Absent:
        def examine(self):
            return library.examine(lambda: False)

    backend = CudaBackend()
    backend.source = Absent()

    with pytest.raises(BackendUnavailableError, match="CuPy is not installed"):
        backend.empty((2,), np.dtype(np.float32), Device("cuda"))
    assert not backend.initialized and backend.devices() == ()


@pytest.fixture
def as_cuda(monkeypatch):
    """``device="cuda"`` served by the stub, with two devices."""
    backend = stub_backend(2)
    monkeypatch.setitem(backends._INSTANCES, "cuda", backend)
    monkeypatch.setattr(backends, "_CHECKED", set())
    yield backend
    Place.current = 0


def test_the_cuda_module_speaks_for_the_backend(as_cuda):
    assert tenon.cuda.is_available() and tenon.cuda.device_count() == 2
    assert not tenon.cuda.is_initialized() and tenon.cuda.memory_allocated() == 0
    tenon.cuda.init()
    assert tenon.cuda.is_initialized()
    assert tenon.cuda.get_device_name(1) == "Stub 9000" and tenon.cuda.get_device_capability() == (9, 0)
    with tenon.cuda.device(1):
        assert tenon.cuda.current_device() == 1
        assert str(tenon.ones(2, device="cuda").device) == "cuda:1"
    assert tenon.cuda.current_device() == 0
    tenon.cuda.set_device("cuda:1")
    assert tenon.cuda.current_device() == 1
    tenon.cuda.synchronize()
    tenon.cuda.reset_peak_memory_stats()
    assert tenon.cuda.mem_get_info() == (600, 1000)
    with pytest.raises(DeviceError, match=r"invalid device ordinal: cuda:5 requested, 2"):
        tenon.cuda.set_device(5)
    with pytest.raises(DeviceError, match="Expected a cuda device, but got: cpu"):
        tenon.cuda.synchronize("cpu")


def test_tensors_move_between_cuda_devices_and_keep_gradients(as_cuda):
    x = tenon.ones(3, device="cuda:0", requires_grad=True)

    y = (x.to("cuda:1") * 2).to("cpu").sum()
    y.backward()

    assert str(x.grad.device) == "cuda:0" and x.grad.tolist() == [2, 2, 2]
    assert x.is_cuda and x.get_device() == 0 and x.to("cuda:1").get_device() == 1
    assert "device='cuda:0'" in repr(x)
    with pytest.raises(DeviceError, match=r"same device.*cuda:0.*cuda:1"):
        x + tenon.ones(3, device="cuda:1")


def test_seeding_cuda_seeds_the_one_stream(as_cuda):
    importlib.import_module(
        "tenon.cuda.random"
    )  # a submodule of its own becomes an attribute when it is imported
    tenon.cuda.manual_seed(5)
    first = tenon.randn(3, device="cuda").tolist()

    tenon.manual_seed(5)

    assert tenon.randn(3).tolist() == pytest.approx(first)


def test_events_measure_between_records(as_cuda):
    start, end = tenon.cuda.Event(enable_timing=True), tenon.cuda.Event(enable_timing=True)
    with pytest.raises(DeviceError, match="recorded"):
        start.elapsed_time(end)

    start.record()
    end.record()
    end.synchronize()

    assert start.elapsed_time(end) == 1.0
    with pytest.raises(DeviceError, match="enable_timing=True"):
        tenon.cuda.Event().elapsed_time(end)


def test_the_stub_has_only_what_cupy_has():
    from strict_arrays import NAMES

    used = {f"cupy.cuda.{n}" for n in vars(Library(1).cuda) if n != "runtime"}
    used |= {f"cupy.cuda.runtime.{n}" for n in vars(Library(1).cuda.runtime)}
    used |= {"cupy.asnumpy", "cupy.get_default_memory_pool", "cupy.cuda.runtime.driverGetVersion"}
    used |= {"cupy.cuda.runtime.runtimeGetVersion", "cupy.cuda.runtime.CUDARuntimeError"}

    assert used <= set(NAMES)


def test_a_forward_pass_stays_on_a_device_that_is_not_current_and_so_does_a_backward_made_current(as_cuda):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).to("cuda:1")
    x = tenon.randn(5, 3, device="cuda:1", requires_grad=True)

    for _ in range(2):  # the second time adds to what is there
        loss = (model(x) * x + x).square().mean()
        assert str(loss.device) == "cuda:1"
        with tenon.cuda.device(1):
            loss.backward()

    assert tenon.cuda.current_device() == 0
    assert {str(t.grad.device) for t in (x, *model.parameters())} == {"cuda:1"}


def test_training_steps_run_where_the_device_is_current(as_cuda):
    with tenon.cuda.device(1):
        losses, model, optimiser = train("cuda", "Adam")

    assert losses == pytest.approx(train("cpu", "Adam")[0], rel=1e-4)
    moments = [v for s in optimiser.state.values() for k, v in s.items() if k != "step"]
    assert {str(t.device) for t in (*model.parameters(), *moments)} == {"cuda:1"}
