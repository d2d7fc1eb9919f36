"""Data files that are made to cost much, or are none: one DataError with the path, at a cost that their size bounds."""

import gzip
import io
import os
import random
import struct
import tracemalloc
import warnings
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


#: How each file is read, and what makes its content, some of it for a second.
HOSTILE = {
    "a bomb of gzip": (readers.read_idx, lambda: gzip.compress(bytes(40_000_000))),
    "torn deflate": (readers.read_idx, lambda: gzip.compress(os.urandom(1000))[:40] + b"\xff" * 100),
    "an array of 200 axes": (readers.read_idx, lambda: bytes([0, 0, 8, 200]) + struct.pack(">200I", *[1] * 200) + b"x"),
    "an empty array of huge axes": (readers.read_idx, lambda: bytes([0, 0, 8, 4]) + struct.pack(">4I", 0, *[2**32 - 1] * 3)),
    "many rows and one wide": (readers.read_csv, lambda: b"," * 100_000 + b"1\n" + b"1\n" * 100_000),
    "a bomb of csv": (readers.read_csv, lambda: gzip.compress(b"1\n" * 20_000_000)),
    "no UTF-8": (readers.read_csv, lambda: b"1,\xff\n"),
    "a long cell": (readers.read_csv, lambda: b"1" * 200_000),
    "a declared size": (readers.read_npz, lambda: zipped({"a.npy": npy((1 << 40,))})),
    "a deflate bomb": (readers.read_npz, lambda: zipped({"a.npy": npy((5_000_000,), numbers=bytes(40_000_000))}, 8)),
    "records that overlap": (readers.read_npz, lambda: overlapping(1000)),
    "another compression": (readers.read_npz, lambda: zipped({"a.npy": npy((1,), numbers=bytes(8))}, zipfile.ZIP_LZMA)),
    "a header that is no dict": (readers.read_npz, lambda: zipped({"a.npy": b"\x93NUMPY\x01\x00\x40\x1f" + b"(" * 8000})),
    "objects": (readers.read_npz, lambda: zipped({"a.npy": npy((1,), "|O", bytes(8))})),
    "not an array": (readers.read_npz, lambda: zipped({"a.npy": b"x"})),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_an_error_at_a_bounded_cost(tmp_path, monkeypatch, case):
    read, make = HOSTILE[case]
    content = make()
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
@pytest.mark.parametrize("read", [readers.read_idx, readers.read_csv, readers.read_npz, readers.TextLines])
def test_a_pipe_in_a_files_place_is_refused(tmp_path, read):
    os.mkfifo(tmp_path / "x")

    with pytest.raises(DataError, match="not a regular file"):
        read(tmp_path / "x")


def test_lines_of_a_file_that_was_cut_off_or_replaced_by_a_pipe_are_errors(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("one\ntwo\n")
    lines = readers.TextLines(path)

    os.truncate(path, 5)
    with pytest.raises(DataError, match=r"x\.txt, line 2: the file has been cut off since"):
        lines[1]
    assert lines[0] == "one"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="not a regular file"):
        lines[0]


@pytest.fixture
def image(tmp_path):
    """``image(content)``: the first sample of a folder of images whose only file has that content."""
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    path = tmp_path / "images" / "dog" / "1.png"
    path.parent.mkdir(parents=True)

    def image(content):
        path.write_bytes(content)
        return readers.ImageFolder(tmp_path / "images")[0][0]

    return image


def encoded(kind, size=(30, 20), **options):
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", size, (9, 8, 7)).save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "PPM", "BMP", "TIFF", "WEBP", "GIF"])
def test_images_are_told_by_their_content_and_damage_of_any_kind_is_an_error(image, kind):
    good = encoded(kind)
    draw = random.Random(kind)
    assert image(good).shape == (3, 20, 30)
    ends = set()

    for _ in range(150):
        content = bytearray(good)
        for _ in range(draw.choice((1, 4))):
            place = draw.randrange(min(len(content), draw.choice((40, 10_000))))
            content[place : place + 4] = draw.randbytes(4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about pixels and metadata
            try:
                ends.add(image(content).ndim)
            except DataError as error:
                ends.add(DataError)
                assert "1.png cannot be read as an image: " in str(error) and len(str(error)) < 1000

    assert ends == {DataError, 3}


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "GIF"])
def test_an_image_whose_pixels_take_far_more_than_its_file_is_refused_before_it_is_decoded(
    image, kind, monkeypatch
):
    monkeypatch.setattr("tenon.data.readers.images.FREE", 1 << 20)
    content = encoded(kind, (2500, 2500), **({"compression": "tiff_adobe_deflate"} if kind == "TIFF" else {}))
    assert len(content) < 120_000
    tracemalloc.start()

    with pytest.raises(
        DataError, match=r"2,500 x 2,500 pixels would take more than 100 times its \d+,\d+ bytes"
    ):
        image(content)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 << 20


def test_programs_that_pillow_would_run_are_no_images(image):
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n"

    with pytest.raises(DataError, match="cannot identify image file"):
        image(content)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_an_images_place_is_refused(image, tmp_path):
    image(encoded("PNG"))
    (tmp_path / "images" / "dog" / "1.png").unlink()
    os.mkfifo(tmp_path / "images" / "dog" / "1.png")

    with pytest.raises(DataError, match="not a regular file"):
        readers.ImageFolder(tmp_path / "images")[0]
