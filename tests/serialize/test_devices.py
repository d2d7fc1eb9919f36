"""Tensors on other devices are saved through the host and loaded to their devices."""

import io
from types import SimpleNamespace

import numpy as np
import pytest

from tenon.device import Device
from tenon.errors import CheckpointError
from tenon.kernels import backend as backends
from tenon.kernels.backend import Backend
from tenon.serialize import load, save
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.tensor import Tensor


class DeviceArray:
    """Memory that NumPy cannot access, with the attributes of CuPy's arrays: a base, flags, and an address."""

    def __init__(self, hidden, base=None):
        self.hidden = hidden
        self.base = base
        self.dtype, self.shape, self.strides = hidden.dtype, hidden.shape, hidden.strides
        self.size, self.nbytes, self.flags, self.ndim = hidden.size, hidden.nbytes, hidden.flags, hidden.ndim

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.hidden.__array_interface__["data"][0], False)}

    def view_of(self, hidden):
        return DeviceArray(hidden, self.base if self.base is not None else self)

    def __getitem__(self, index):
        return self.view_of(self.hidden[index])

    def reshape(self, shape):
        return self.view_of(self.hidden.reshape(shape))


def as_strided(array, shape, strides):
    return array.view_of(np.lib.stride_tricks.as_strided(array.hidden, shape, strides))


class FakeDevice(Backend):
    name = "fake"
    xp = SimpleNamespace(lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided)))
    array_type = DeviceArray

    def devices(self):
        return (Device("fake", 0), Device("fake", 1))

    def device_of(self, array):
        return Device("fake", 0)

    def from_host(self, array, device):
        return DeviceArray(array.copy())

    def to_host(self, array):
        return array.hidden.copy()


@pytest.fixture
def fake(monkeypatch):
    backend = FakeDevice()
    monkeypatch.setitem(backends._INSTANCES, "fake", backend)
    return backend


@pytest.fixture
def saved(fake):
    """A matrix on the device, its transpose, a row, and the matrix again, in both formats."""
    whole = fake.from_host(np.arange(12.0).reshape(3, 4), Device("fake", 0))
    tensors = {
        "whole": whole,
        "turned": whole.view_of(whole.hidden.T),
        "row": whole[1],
        "again": whole,
    }
    return {name: Tensor._of(raw, fake) for name, raw in tensors.items()}


@pytest.fixture(params=["pt", "safetensors"])
def path(request, saved, tmp_path):
    save(saved, tmp_path / f"m.{request.param}")
    return tmp_path / f"m.{request.param}"


def test_tensors_come_back_to_their_device_and_share_memory_there(path):
    found = load(path)

    assert {str(t.device) for t in found.values()} == {"fake:0"}
    found["whole"].raw.hidden[1, 2] = 99
    assert found["turned"].raw.hidden[2, 1] == 99
    assert found["row"].raw.hidden.tolist() == [4, 5, 99, 7]
    assert found["again"].raw.hidden[1, 2] == 99


@pytest.mark.parametrize("wanted", ["cpu", {"fake:0": "cpu"}, lambda storage, location: storage])
def test_tensors_can_be_brought_to_the_host(path, wanted):
    found = load(path, map_location=wanted)

    assert {t.device.type for t in found.values()} == {"cpu"}
    found["whole"].raw[1, 2] = 99
    assert found["turned"].raw[2, 1] == 99 and found["row"].raw[2] == 99


def test_a_device_that_is_not_here_is_named_with_the_remedy(path, monkeypatch):
    monkeypatch.delitem(backends._INSTANCES, "fake")

    with pytest.raises(CheckpointError, match=r"fake:0.*map_location='cpu'"):
        load(path)


def test_host_tensors_can_be_sent_to_a_device(fake, tmp_path):
    matrix = np.arange(6.0).reshape(2, 3)
    save([from_numpy(matrix), from_numpy(matrix.T), from_numpy(matrix[:0])], tmp_path / "m.pt")

    found = load(tmp_path / "m.pt", map_location="fake:0")

    assert [type(t.raw) for t in found] == [DeviceArray] * 3
    assert found[1].raw.hidden.tolist() == matrix.T.tolist()
    assert found[2].raw.shape == (0, 3)


def test_a_function_can_send_a_storage_to_a_device(fake):
    buffer = io.BytesIO()
    save(from_numpy(np.arange(3)), buffer)

    def move(storage, location):
        return Tensor._of(fake.from_host(storage.raw, Device("fake", 0)), fake)

    found = load(io.BytesIO(buffer.getvalue()), map_location=move)

    assert str(found.device) == "fake:0" and found.raw.hidden.tolist() == [0, 1, 2]


def test_an_error_in_a_map_location_function_is_the_callers_own(path):
    def broken(storage, location):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        load(path, map_location=broken)


@pytest.mark.cuda
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_cuda_tensors_come_back_tied(suffix, tmp_path):
    pytest.importorskip("cupy", reason="needs an NVIDIA GPU and CuPy")
    cuda = backends.backend_named("cuda")
    if not cuda.is_available():
        pytest.skip(cuda.is_available().reason)
    raw = cuda.from_host(np.arange(12, dtype=np.float32).reshape(3, 4), Device("cuda", 0))
    save({"whole": Tensor._of(raw, cuda), "turned": Tensor._of(raw.T, cuda)}, tmp_path / f"m.{suffix}")

    found = load(tmp_path / f"m.{suffix}")
    host = load(tmp_path / f"m.{suffix}", map_location="cpu")
    found["whole"].raw[1, 2] = 99

    assert str(found["turned"].device) == "cuda:0"
    assert float(found["turned"].raw[2, 1]) == 99
    assert host["turned"].raw.tolist() == np.arange(12.0).reshape(3, 4).T.tolist()
