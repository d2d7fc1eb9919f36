"""A truncated or modified file never loads with other values than were saved."""

import contextlib
import io
import json
import random
import re
import struct
import warnings

import numpy as np
import pytest

from tenon import serialization
from tenon.errors import CheckpointError, UncheckedFileWarning
from tenon.serialize import load, save, unchecked, verify
from tenon.tensors.creation.create import from_numpy

SUFFIXES = (".pt", ".safetensors")


def contents() -> dict:
    weight = np.arange(24, dtype=np.float32).reshape(4, 6)
    return {
        "weight": from_numpy(weight),
        "tied": from_numpy(weight.T),
        "steps": from_numpy(np.arange(5)),
        "epoch": 3,
        "lr": 0.1,
        "name": "model",
    }


def plain(found: dict) -> dict:
    return {name: value.raw.tolist() if hasattr(value, "raw") else value for name, value in found.items()}


@pytest.fixture(params=SUFFIXES)
def saved(request, tmp_path):
    path = tmp_path / f"model{request.param}"
    save(contents(), path)
    return path


def test_a_file_cut_short_anywhere_is_refused_with_its_name(saved):
    whole = saved.read_bytes()
    cuts = sorted({0, 1, 7, 8, 9, len(whole) - 1, *random.Random(1).sample(range(len(whole)), 120)})

    for cut in cuts:
        saved.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match=re.escape(saved.name)):
            load(saved)


def test_a_single_flipped_bit_is_noticed_or_harmless(saved):
    whole = saved.read_bytes()
    expected = plain(contents())
    noticed = 0
    positions = range(len(whole)) if len(whole) < 2500 else random.Random(2).sample(range(len(whole)), 2500)

    for position in positions:
        changed = bytearray(whole)
        changed[position] ^= 1 << (position % 8)
        try:
            found = load(io.BytesIO(bytes(changed)))
        except CheckpointError:
            noticed += 1
        else:
            assert plain(found) == expected, f"bit {position % 8} of byte {position} changed what was loaded"

    assert noticed > len(positions) // 3  # the others hit what fills up records to 64 bytes


def test_every_flipped_bit_of_the_weights_is_noticed(saved):
    whole = saved.read_bytes()
    data = np.arange(24, dtype=np.float32).tobytes()
    start = whole.index(data)

    for position in range(start, start + len(data)):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        saved.write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"cannot be trusted.*nothing was loaded"):
            load(saved)
        with pytest.raises(CheckpointError, match="damaged"):
            verify(saved)


def test_an_overwritten_stretch_is_noticed(saved):
    whole = saved.read_bytes()

    for start in range(0, len(whole) - 64, 64):
        changed = whole[:start] + bytes(64) + whole[start + 64 :]
        if changed == whole or b"Z" * 40 in whole[start : start + 64]:
            continue  # alignment padding of a zip archive carries nothing
        with contextlib.suppress(CheckpointError):
            assert plain(load(io.BytesIO(changed))) == plain(contents())


def test_two_swapped_arrays_are_noticed(tmp_path):
    path = tmp_path / "swap.safetensors"
    save({"a": from_numpy(np.zeros(4)), "b": from_numpy(np.ones(4))}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-64] + whole[-32:] + whole[-64:-32])

    with pytest.raises(CheckpointError, match="SHA-256"):
        load(path)


def test_a_manifest_from_another_file_is_noticed(tmp_path):
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    save({"a": from_numpy(np.zeros(4))}, one)
    save({"a": from_numpy(np.ones(4))}, two)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second[:-32] + first[-32:])

    with pytest.raises(CheckpointError, match="SHA-256"):
        load(one)


def test_trailing_bytes_are_noticed(tmp_path):
    path = tmp_path / "long.safetensors"
    save({"a": from_numpy(np.zeros(4))}, path)
    path.write_bytes(path.read_bytes() + b"x")

    with pytest.raises(CheckpointError, match="33 are there"):
        load(path)


def test_verify_accepts_what_was_saved(saved):
    assert verify(saved) is None


def test_a_file_of_the_old_format_cut_short_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "old.pt"
    torch.save({"a": torch.arange(9.0)}, path, _use_new_zipfile_serialization=False)
    whole = path.read_bytes()

    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match=r"old\.pt"):
            load(path)


def test_a_name_that_is_no_longer_text_is_reported(tmp_path):
    path = tmp_path / "model.pt"
    save(contents(), path)
    whole = path.read_bytes()
    name = whole.rindex(b"byteorder")  # in the list at the end of the file
    path.write_bytes(whole[:name] + b"\xff" + whole[name + 1 :])

    with pytest.raises(CheckpointError, match=r"damaged \(.*can't decode byte 0xff"):
        load(path)


def old(place):
    save(contents(), place / "old.pt", _use_new_zipfile_serialization=False)
    return place / "old.pt"


def foreign(place):
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path = place / "foreign.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return path


def without_crc(place):
    serialization.set_crc32_options(False)
    try:
        save(contents(), place / "without.pt")
    finally:
        serialization.set_crc32_options(True)
    return place / "without.pt"


@pytest.mark.parametrize("made", [old, foreign, without_crc])
def test_a_file_without_checksums_says_so_once_and_at_the_line_that_loads_it(made, tmp_path, monkeypatch):
    monkeypatch.setattr(unchecked, "_said", False)
    path = made(tmp_path)

    with pytest.warns(UncheckedFileWarning, match=f"{path.name}' has no checksums, as") as said:
        load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(path)

    assert [warning.filename for warning in said] == [__file__]


def test_a_file_of_ours_has_checksums_and_says_nothing(saved, monkeypatch):
    monkeypatch.setattr(unchecked, "_said", False)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(saved)


def test_files_without_checksums_are_refused_where_the_warning_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(unchecked, "_said", False)
    path = old(tmp_path)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UncheckedFileWarning)
        for _ in range(2):
            with pytest.raises(UncheckedFileWarning):
                load(path)
