"""Readers of data files: contents, and errors for invalid files."""

import gzip
import struct

import numpy as np
import pytest

import tenon
from tenon.data import readers
from tenon.errors import DataError


def idx(array, code):
    return bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("kind", "code"), [(">u1", 8), (">i1", 9), (">i2", 11), (">i4", 12), (">f4", 13), (">f8", 14)]
)
def test_idx_files_are_read_in_their_dtype(tmp_path, kind, code, packed):
    array = np.arange(12).reshape(2, 3, 2).astype(kind)
    data = idx(array, code)
    (tmp_path / "x").write_bytes(gzip.compress(data) if packed else data)

    found = readers.read_idx(tmp_path / "x")

    assert str(found.dtype) == f"torch.{np.dtype(kind).newbyteorder('=').name}"
    np.testing.assert_array_equal(found.numpy(), array)


def test_damaged_idx_files_say_what_is_wrong(tmp_path):
    path, good = tmp_path / "x", idx(np.zeros((2, 3), ">u1"), 8)
    for data, text in [
        (good[:-1], r"5 bytes of numbers; its header says \[2, 3\]"),
        (good[:6], "cut off or damaged"),
        (b"PNG!", "not an IDX file: it begins with 50 4e"),
        (b"", "begins with nothing"),
        (gzip.compress(good)[:-9], "damaged gzip file"),
    ]:
        path.write_bytes(data)
        with pytest.raises(DataError, match=text):
            readers.read_idx(path)
    with pytest.raises(FileNotFoundError):
        readers.read_idx(tmp_path / "none")


def test_csv_rows_have_their_target_by_name_or_place(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,label,b\n1,2,3.5\n4,0,-1e3\n\n")

    by_name, by_place = readers.read_csv(path, "label"), readers.read_csv(path, 1)
    without = readers.read_csv(path)

    assert [t.tolist() for t in by_name.tensors] == [[[1.0, 3.5], [4.0, -1000.0]], [2, 0]]
    assert [t.tolist() for t in by_place.tensors] == [t.tolist() for t in by_name.tensors]
    assert str(by_name.tensors[1].dtype) == "torch.int64" and without[0][0].tolist() == [1.0, 2.0, 3.5]
    path.write_text("1;2.5\n3;4\n")
    assert readers.read_csv(path, -1, delimiter=";").tensors[1].tolist() == [2.5, 4.0]


def test_csv_that_is_not_a_table_of_numbers_names_the_cell(tmp_path):
    path = tmp_path / "x.csv"
    for text, match in [
        ("a,b\n1,2\n3,x\n", r"row 3, column 'b': 'x' is not a number"),
        ("1,2\n3\n", r"row 2: 1 cells, but 2 columns"),
        ("\n", "has no rows"),
    ]:
        path.write_text(text)
        with pytest.raises(DataError, match=match):
            readers.read_csv(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="has no column 'c'; it has 'a', 'b'"):
        readers.read_csv(path, "c")


def test_npz_arrays_are_a_data_set_and_objects_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.eye(3), y=np.arange(3), more=np.zeros(2))
    np.savez(tmp_path / "bad.npz", x=np.array([object()], dtype=object))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:80])

    assert readers.read_npz(tmp_path / "x.npz", "x", "y")[2][1].item() == 2
    with pytest.raises(DataError, match="has no array 'z'; it has x, y, more"):
        readers.read_npz(tmp_path / "x.npz", "z")
    with pytest.raises(DataError, match="Size mismatch"):
        readers.read_npz(tmp_path / "x.npz")
    with pytest.raises(DataError, match="nothing is unpickled"):
        readers.read_npz(tmp_path / "bad.npz")
    with pytest.raises(DataError, match=r"cut\.npz"):
        readers.read_npz(tmp_path / "cut.npz")


def test_lines_of_text_files_are_read_when_asked_for(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes("eins\nzwei ü\r\n\nvier".encode())
    second.write_bytes(b"five\n\xff\n")

    lines = readers.TextLines(first, second)

    assert [lines[i] for i in range(5)] == ["eins", "zwei ü", "", "vier", "five"] and len(lines) == 6
    assert lines[-2] == "five"
    with pytest.raises(DataError, match=r"b\.txt, line 2: .*Save the file as UTF-8"):
        lines[5]
    with pytest.raises(IndexError):
        lines[6]


def test_folders_of_images_are_classes(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for name, color in [
        ("dog/2.png", (255, 0, 0)),
        ("cat/deep/1.bmp", (0, 51, 0)),
        ("dog/1.png", (0, 0, 255)),
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (4, 2), color).save(tmp_path / name)
    (tmp_path / "dog" / "notes.txt").write_text("no image")

    found = readers.ImageFolder(tmp_path)
    pixels, label = found[0]

    assert found.classes == ["cat", "dog"] and found.targets == [0, 1, 1]
    assert pixels.shape == (3, 2, 4) and pixels[1, 0, 0].item() == pytest.approx(0.2) and label == 0
    sizes = readers.ImageFolder(tmp_path, lambda picture: picture.size, lambda label: -label)
    assert sizes[1] == ((4, 2), -1)
    (tmp_path / "dog" / "1.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"1\.png cannot be read as an image"):
        found[1]
    (tmp_path / "fish").mkdir()
    with pytest.raises(DataError, match="has no image of fish"):
        readers.ImageFolder(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        readers.ImageFolder(tmp_path / "none")
    assert isinstance(tenon.data.default_collate([found[0], found[0]])[0], tenon.Tensor)
