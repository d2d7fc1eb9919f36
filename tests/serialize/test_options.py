"""Global options of reading and writing files, and access to single records."""

import io
import mmap
import pickle
import sys
import zipfile

import pytest

import tenon
from tenon import serialization
from tenon.errors import ArgumentError, CheckpointError
from tenon.utils.serialization import config

torch = pytest.importorskip("torch")


def saved(obj, **options):
    tenon.save(obj, file := io.BytesIO(), **options)
    return io.BytesIO(file.getvalue())


def test_skipped_data_are_zeros_in_a_file_and_anything_in_memory():
    state = {"weight": tenon.ones(2, 3), "ids": tenon.arange(4)}
    with serialization.skip_data():
        hollow = saved(state)
    assert not serialization._serialization_tls.skip_data

    for read in (tenon.load, torch.load):
        hollow.seek(0)
        found = read(hollow)
        assert found["weight"].tolist() == [[0.0] * 3] * 2 and found["ids"].tolist() == [0] * 4
    with serialization.skip_data():
        shapes = tenon.load(saved(state))
    with serialization.skip_data(), pytest.warns(UserWarning, match="is a no-op"):
        saved(tenon.ones(2, device="meta"))
    assert shapes["weight"].shape == (2, 3) and shapes["ids"].dtype is tenon.int64


def test_files_without_checksums_are_read_and_say_so():
    try:
        serialization.set_crc32_options(False)
        assert not serialization.get_crc32_options() and not config.save.compute_crc32
        file = saved({"t": tenon.ones(3)})
    finally:
        serialization.set_crc32_options(True)

    assert tenon.load(file)["t"].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(zipfile.BadZipFile, match="Bad CRC-32"):
        zipfile.ZipFile(file).read("archive/data/0")


def test_records_are_aligned_as_asked_and_read_one_by_one():
    config.save.storage_alignment = 4096
    try:
        file = saved(tenon.nn.Linear(3, 2).state_dict())
    finally:
        config.save.storage_alignment = 64

    with serialization._open_zipfile_reader(file) as reader:
        assert reader.get_record(".storage_alignment") == b"4096"
        assert reader.get_record("byteorder").decode() == sys.byteorder
        assert reader.get_record_offset("data/1") % 4096 == 0
        tree, start = reader.get_record("data.pkl"), reader.get_record_offset("data/0")
        weight = reader.get_record("data/0")
        assert file.getvalue()[start : start + 24] == weight
        assert reader.has_record("version") and not reader.has_record("other")
        with pytest.raises(CheckpointError, match="failed locating file other"):
            reader.get_record("other")
    with serialization._open_zipfile_writer(made := io.BytesIO()) as writer:
        writer.write_record("data.pkl", tree, len(tree))
        writer.write_record("byteorder", sys.byteorder, len(sys.byteorder))
        writer.write_record("data/0", weight, 24)
        writer.write_record_metadata("data/1", 8)
    for read in (tenon.load, torch.load):
        made.seek(0)
        found = read(made)
        assert found["weight"].numpy().tobytes() == weight and found["bias"].tolist() == [0.0, 0.0]
    with pytest.raises(CheckpointError, match="failed reading zip archive"):
        serialization._open_zipfile_reader(io.BytesIO(b"no zip")).__enter__()


def test_mapped_tensors_change_the_file_if_it_is_shared(tmp_path):
    tenon.save({"a": tenon.zeros(3), "b": tenon.ones(2)}, path := tmp_path / "state.pt")

    tenon.load(path, mmap=True)["a"][0] = 5
    assert tenon.load(path)["a"].tolist() == [0.0, 0.0, 0.0]
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        shared = tenon.load(path, mmap=True)
        shared["a"][0] = 5
        assert tenon.load(path, mmap=True)["a"].tolist() == [5.0, 0.0, 0.0]
        assert shared["a"].storage().tolist() == [5.0, 0.0, 0.0] and shared["a"].storage_offset() == 0
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE

    with pytest.raises(ValueError, match="f must be a file path"):
        tenon.load(io.BytesIO(path.read_bytes()), mmap=True)
    torch.save(torch.ones(2), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match="mmap can only be used with files"):
        tenon.load(tmp_path / "old.pt", mmap=True)
    with pytest.raises(ArgumentError, match="expected mmap"):
        serialization.set_default_mmap_options(77)


def test_the_environment_has_a_say_in_what_may_be_loaded(monkeypatch):
    file = saved(tenon.nn.Linear(2, 3))

    def load(**options):
        file.seek(0)
        return tenon.load(file, **options)

    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load()
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load(weights_only=False)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(ArgumentError, match="Only one of"):
        load()
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load(weights_only=True)
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert isinstance(load(), tenon.nn.Linear)


@pytest.mark.parametrize("new", [True, False])
def test_files_that_do_not_say_that_they_are_seekable_fill_memory_themselves(new):
    class File:
        def __init__(self, data):
            self.filled, inner = 0, io.BytesIO(data)
            self.read, self.readline, self.seek, self.tell = (
                inner.read,
                inner.readline,
                inner.seek,
                inner.tell,
            )
            self._inner = inner

        def readinto(self, view):
            count = self._inner.readinto(view)
            self.filled += count
            return count

    data = saved(tenon.arange(4.0), _use_new_zipfile_serialization=new).getvalue()
    at = data.index(tenon.arange(4.0).numpy().tobytes())

    assert tenon.load(file := File(data)).tolist() == [0.0, 1.0, 2.0, 3.0] and file.filled >= 16
    for cut in (data[: at + 9], data[:at]):
        with pytest.raises(CheckpointError):
            tenon.load(File(cut))
    if new:
        with pytest.raises(CheckpointError, match="Bad CRC-32"):
            tenon.load(File(data[:at] + b"!" + data[at + 1 :]))
