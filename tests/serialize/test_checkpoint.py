"""Folders of training checkpoints: the newest valid one is found, and never deleted."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from tenon.errors import (
    CheckpointDeviceError,
    CheckpointError,
    CheckpointVersionError,
    CheckpointWarning,
    CheckpointWriteError,
)
from tenon.serialize import load, migrate, save, verify
from tenon.serialize.checkpoint import (
    checkpoints,
    keep_last,
    latest_valid,
    read_checkpoint,
    read_latest,
    write_checkpoint,
)
from tenon.serialize.migrate import CHECKPOINT, Migrations
from tenon.tensors.creation.create import from_numpy


def write(folder, step: int, suffix: str = "safetensors"):
    path = folder / f"step-{step}.{suffix}"
    write_checkpoint(path, {"model": {"w": from_numpy(np.full(50, step, np.float32))}, "step": step})
    return path


def damage(path) -> None:
    whole = bytearray(path.read_bytes())
    whole[-100 if path.suffix == ".safetensors" else whole.index(b"FB", whole.index(b"data/0")) + 100] ^= 1
    path.write_bytes(whole)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_sections_come_back(suffix, tmp_path):
    path = write(tmp_path, 3, suffix)

    found = read_checkpoint(path)

    assert list(found) == ["model", "step"]
    assert found["step"] == 3 and found["model"]["w"].raw.tolist() == [3] * 50


def test_a_checkpoint_carries_its_schema(tmp_path):
    assert load(write(tmp_path, 1))["tenon.checkpoint"] == {"schema": CHECKPOINT.current}


def test_something_else_is_not_a_checkpoint(tmp_path):
    save({"w": from_numpy(np.ones(1))}, tmp_path / "weights.pt")

    with pytest.raises(CheckpointError, match=r"weights\.pt.*tenon\.load"):
        read_checkpoint(tmp_path / "weights.pt")


def test_names_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ValueError, match="ends in"):
        write_checkpoint(tmp_path / "model.ckpt", {})
    with pytest.raises(ValueError, match=r"'tenon\.checkpoint'"):
        write_checkpoint(tmp_path / "m.pt", {"tenon.checkpoint": 1})
    with pytest.raises(ValueError, match="section"):
        write_checkpoint(tmp_path / "m.pt", {3: 1})
    assert list(tmp_path.iterdir()) == []


def test_files_are_ordered_by_number_not_by_name_or_date(tmp_path):
    paths = [write(tmp_path, step) for step in (10, 9, 100)]
    os.utime(paths[1], (2e9, 2e9))
    (tmp_path / ".step-999.safetensors.0123456789ab.tmp").touch()
    (tmp_path / "notes.txt").touch()

    assert [p.name for p in checkpoints(tmp_path)] == [f"step-{n}.safetensors" for n in (100, 10, 9)]


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path):
    assert latest_valid(tmp_path) is None
    assert latest_valid(tmp_path / "nowhere") is None
    assert read_latest(tmp_path) is None
    assert keep_last(tmp_path, 1) == []


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_damaged_files_are_passed_over_by_name(suffix, tmp_path):
    paths = [write(tmp_path, step, suffix) for step in (1, 2, 3)]
    damage(paths[2])
    paths[1].write_bytes(paths[1].read_bytes()[:-10])

    with pytest.warns(CheckpointWarning) as warned:
        assert latest_valid(tmp_path) == paths[0]
    assert [str(w.message).split("'")[1] for w in warned] == [f"step-3.{suffix}", f"step-2.{suffix}"]
    with pytest.warns(CheckpointWarning) as warned:
        path, sections = read_latest(tmp_path)
    assert len(warned) == 2
    assert path == paths[0] and sections["step"] == 1


def test_the_newest_valid_file_is_found_without_a_warning(tmp_path):
    write(tmp_path, 1)
    newest = write(tmp_path, 2)

    assert latest_valid(tmp_path) == newest
    assert read_latest(tmp_path)[1]["step"] == 2


def test_files_that_another_process_deletes_meanwhile_are_passed_over(tmp_path, monkeypatch):
    gone, newest = write(tmp_path, 1), write(tmp_path, 2)
    listdir, known_valid = os.listdir, verify

    def list_then_delete(folder):
        names = listdir(folder)
        gone.unlink(missing_ok=True)
        return names

    def delete_then_verify(path):
        newest.unlink(missing_ok=True)
        write(tmp_path, 3)
        known_valid(path)

    monkeypatch.setattr(os, "listdir", list_then_delete)
    assert checkpoints(tmp_path) == [newest] and latest_valid(tmp_path) == newest
    monkeypatch.setattr("tenon.serialize.checkpoint.verify", delete_then_verify)
    assert latest_valid(tmp_path).name == read_latest(tmp_path)[0].name == "step-3.safetensors"


def test_keep_last_deletes_the_oldest(tmp_path):
    paths = [write(tmp_path, step) for step in range(5)]

    assert keep_last(tmp_path, 2) == [paths[2], paths[1], paths[0]]
    assert checkpoints(tmp_path) == [paths[4], paths[3]]
    assert keep_last(tmp_path, 2) == []


def test_keep_last_says_what_it_cannot_delete(tmp_path, monkeypatch):
    paths = [write(tmp_path, step) for step in range(3)]

    def refuse(path, missing_ok=False):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CheckpointWriteError, match=r"could not delete .*Read-only file system") as raised:
        keep_last(tmp_path, 1)

    assert raised.value.errno == errno.EROFS
    assert all(path.exists() for path in paths)


def test_keep_last_never_deletes_the_last_valid_one(tmp_path):
    paths = [write(tmp_path, step) for step in range(4)]
    for path in paths[2:]:
        damage(path)

    with pytest.warns(CheckpointWarning, match=r"'step-1\.safetensors' is kept"):
        removed = keep_last(tmp_path, 1)

    assert removed == [paths[2], paths[0]]
    assert checkpoints(tmp_path) == [paths[3], paths[1]]


def test_keep_last_deletes_nothing_if_nothing_is_valid(tmp_path):
    paths = [write(tmp_path, step) for step in range(3)]
    for path in paths:
        damage(path)

    assert keep_last(tmp_path, 1) == []
    assert len(checkpoints(tmp_path)) == 3


def test_keep_last_wants_to_keep_something(tmp_path):
    with pytest.raises(ValueError, match="1 or more"):
        keep_last(tmp_path, 0)


def test_an_old_checkpoint_is_brought_up_to_date_step_by_step(tmp_path, monkeypatch):
    path = write(tmp_path, 7)
    future = Migrations("training checkpoint", current=3)
    monkeypatch.setattr("tenon.serialize.checkpoint.CHECKPOINT", future)

    @future.step(since=1)
    def rename(sections):
        return {**{k: v for k, v in sections.items() if k != "step"}, "position": sections["step"]}

    @future.step(since=2)
    def nest(sections):
        return {"model": sections["model"], "loader": {"position": sections["position"]}}

    found = read_checkpoint(path)

    assert found["loader"] == {"position": 7}
    assert set(found) == {"model", "loader"}


def test_a_checkpoint_from_the_future_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tenon.serialize.checkpoint.CHECKPOINT", Migrations("training checkpoint", current=9))
    path = write(tmp_path, 1)
    monkeypatch.undo()

    with pytest.raises(CheckpointError, match=r"schema version 9.*Upgrade tenon"):
        read_checkpoint(path)


def test_a_whole_checkpoint_that_cannot_be_read_here_is_not_passed_over(tmp_path, monkeypatch):
    write(tmp_path, 1)
    monkeypatch.setattr("tenon.serialize.checkpoint.CHECKPOINT", Migrations("training checkpoint", current=9))
    write(tmp_path, 2)
    monkeypatch.undo()

    with pytest.raises(CheckpointVersionError, match=r"step-2\.safetensors"):
        read_latest(tmp_path)
    with pytest.raises(CheckpointDeviceError, match="nonesuch"):
        read_latest(tmp_path, map_location="nonesuch")


def test_a_missing_step_is_an_error():
    with pytest.raises(CheckpointError, match="no step leads from version 1"):
        Migrations("plan", current=2).upgrade({}, 1, "'x'")


def test_steps_are_registered_once_and_for_past_versions_only():
    plans = Migrations("plan", current=2)
    plans.step(since=1)(lambda d: d)

    with pytest.raises(ValueError, match="already has"):
        plans.step(since=1)(lambda d: d)
    with pytest.raises(ValueError, match="needs no step"):
        plans.step(since=2)(lambda d: d)


@pytest.mark.parametrize("version", [None, 0, -1, "1", True, 1.0])
def test_impossible_versions_are_refused(version):
    with pytest.raises(CheckpointError, match="impossible schema version"):
        migrate.CHECKPOINT.upgrade({}, version, "'x'")
