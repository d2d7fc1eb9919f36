"""Data files that are made to cost much, or are none: one DataError with the path, at a cost that their size bounds."""

import gzip
import io
import os
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from tenon.data import readers
from tenon.data.readers import arrays
from tenon.errors import DataError


def npy(shape, kind="<f8", numbers=b""):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue() + numbers


def zipped(entries, method=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return stream.getvalue()


def overlapping(count):
    """An archive whose directory names one record ``count`` times."""
    content = zipped({"a.npy": npy((100_000,), numbers=bytes(800_000))})
    start = content.rindex(b"PK\x01\x02")
    end = content.rindex(b"PK\x05\x06")
    entries = b"".join(content[start:end].replace(b"a.npy", f"{i:05}".encode()) for i in range(count))
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entries), start, 0)
    return content[:start] + entries + tail


HOSTILE = {
    "a bomb of gzip": (readers.read_idx, gzip.compress(bytes(40_000_000))),
    "torn deflate": (readers.read_idx, gzip.compress(os.urandom(1000))[:40] + b"\xff" * 100),
    "an array of 200 axes": (readers.read_idx, bytes([0, 0, 8, 200]) + struct.pack(">200I", *[1] * 200) + b"x"),
    "an empty array of huge axes": (readers.read_idx, bytes([0, 0, 8, 4]) + struct.pack(">4I", 0, *[2**32 - 1] * 3)),
    "many rows and one wide": (readers.read_csv, b"," * 400_000 + b"1\n" + b"1\n" * 400_000),
    "a bomb of csv": (readers.read_csv, gzip.compress(b"1\n" * 20_000_000)),
    "no UTF-8": (readers.read_csv, b"1,\xff\n"),
    "a long cell": (readers.read_csv, b"1" * 200_000),
    "a declared size": (readers.read_npz, zipped({"a.npy": npy((1 << 40,))})),
    "a deflate bomb": (readers.read_npz, zipped({"a.npy": npy((5_000_000,), numbers=bytes(40_000_000))}, 8)),
    "records that overlap": (readers.read_npz, overlapping(1000)),
    "another compression": (readers.read_npz, zipped({"a.npy": npy((1,), numbers=bytes(8))}, zipfile.ZIP_LZMA)),
    "a header that is no dict": (readers.read_npz, zipped({"a.npy": b"\x93NUMPY\x01\x00\x40\x1f" + b"(" * 8000})),
    "objects": (readers.read_npz, zipped({"a.npy": npy((1,), "|O", bytes(8))})),
    "not an array": (readers.read_npz, zipped({"a.npy": b"x"})),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_an_error_at_a_bounded_cost(tmp_path, monkeypatch, case):
    read, content = HOSTILE[case]
    monkeypatch.setattr(arrays, "FREE", 1 << 20)
    monkeypatch.setattr("tenon.serialize.limits.FREE", 1 << 20)
    path = tmp_path / "hostile.file"
    path.write_bytes(content)
    tracemalloc.start()

    with pytest.raises(DataError, match=r"hostile\.file"):
        read(path)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (8 << 20) + 400 * len(content)


def test_numbers_too_large_for_an_integer_are_no_labels(tmp_path):
    (tmp_path / "x.csv").write_text("1,inf\n2,1e30\n")

    assert readers.read_csv(tmp_path / "x.csv", 1).tensors[1].tolist() == pytest.approx([float("inf"), 1e30])


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_keep_their_order_and_dtype(tmp_path, order):
    array = np.array(np.arange(12, dtype="<i2").reshape(3, 4), order=order)
    np.savez_compressed(tmp_path / "x.npz", a=array)

    np.testing.assert_array_equal(readers.read_npz(tmp_path / "x.npz").tensors[0].numpy(), array)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("read", [readers.read_idx, readers.read_csv, readers.read_npz])
def test_a_pipe_in_a_files_place_is_refused(tmp_path, read):
    os.mkfifo(tmp_path / "x")

    with pytest.raises(DataError, match="not a regular file"):
        read(tmp_path / "x")
