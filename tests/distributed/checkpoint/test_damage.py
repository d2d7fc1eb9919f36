"""Checkpoints that are damaged, incomplete, or not what they seem: what is wrong is named, nothing is loaded."""

import json
import os
import random
import shutil
import sys
from pathlib import Path

import pytest

import tenon as torch
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint import CheckpointException
from tenon.distributed.checkpoint.manifest import _canonical
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import Shard

sys.path.insert(0, str(Path(__file__).parent))

from states import LAYOUTS, save_whole, sharded, values, zeros


@pytest.fixture
def folder(tmp_path):
    save_whole(tmp_path / "saved", LAYOUTS[3])
    return tmp_path / "saved"


def shards(folder):
    return sorted(path for path in folder.iterdir() if path.name.startswith("shard-"))


def refused(folder, ranks=2):
    """The text of the error of loading; no rank's state has changed."""

    def work(communicator):
        state = {"model": sharded(zeros(), (ranks,), [Shard(0)]), "step": 0}
        with pytest.raises(CheckpointException) as caught:
            dcp.load(state, checkpoint_id=folder)
        assert state["step"] == 0
        assert all((array == 77).all() for array in values(state["model"]).values())
        return str(caught.value)

    return run_ranks(ranks, work)[0]


def test_a_missing_file(folder):
    path = shards(folder)[1]
    path.unlink()

    assert f"{path.name!r} is missing".replace("'", "") in refused(folder).replace("'", "")


def test_a_torn_file(folder):
    path = shards(folder)[2]
    path.write_bytes(path.read_bytes()[:-1])

    assert "it is torn" in refused(folder)


def test_a_flipped_bit_in_every_part_of_a_file(folder):
    path = shards(folder)[0]
    content = path.read_bytes()
    rng = random.Random(0)
    places = [0, 9, 100, len(content) // 2, len(content) - 1, *rng.sample(range(len(content)), 20)]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        text = refused(folder)
        assert path.name in text, (place, text)
    path.write_bytes(content)
    state = {"model": zeros()}
    dcp.load(state, checkpoint_id=folder)


def test_a_file_of_another_save_under_this_name(folder, tmp_path):
    save_whole(tmp_path / "other", LAYOUTS[3])
    first, second = shards(folder)[0], shards(folder)[1]
    shutil.copy(second, first)  # as large, and a valid file
    assert first.stat().st_size == second.stat().st_size

    assert "is foreign" in refused(folder)


def test_a_file_of_another_program_under_this_name(folder):
    path = shards(folder)[0]
    import struct

    header = b'{"x":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}'
    size = path.stat().st_size
    for length in range(size):
        text = header % (length, length)
        if 8 + len(text) + length == size:
            path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(length))
            break

    assert "it has no checksums" in refused(folder)


def test_what_is_not_needed_may_be_missing(folder):
    for path in shards(folder)[2:]:
        path.unlink()
    found = dcp.load_whole("model.short", checkpoint_id=folder)["model"]["short"]

    assert found.tolist() == [[0, 1], [2, 3]]


def test_a_damaged_manifest(folder):
    path = folder / "manifest.json"
    content = path.read_bytes()
    rng = random.Random(1)
    for place in [0, 5, len(content) // 2, *rng.sample(range(len(content) - 1), 30)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.randrange(7)
        if json_or_none(damaged) == json.loads(content):
            continue
        path.write_bytes(damaged)
        assert "manifest.json" in refused(folder, 1), place
    for end in (0, 10, len(content) // 2):
        path.write_bytes(content[:end])
        assert "manifest.json" in refused(folder, 1)


def json_or_none(content):
    try:
        return json.loads(content)
    except ValueError:
        return None


def rewritten(folder, change):
    """Change the manifest, and give it the checksum of what it is then."""
    import hashlib

    path = folder / "manifest.json"
    document = json.loads(path.read_text())["checkpoint"]
    change(document)
    digest = hashlib.sha256(_canonical(document).encode()).hexdigest()
    path.write_text(json.dumps({"sha256": digest, "checkpoint": document}))


HOSTILE = {
    "a path": lambda d: d["files"][0].__setitem__(0, "../../etc/passwd"),
    "an absolute path": lambda d: d["files"][0].__setitem__(0, "/etc/passwd"),
    "a size that is no number": lambda d: d["files"][0].__setitem__(1, "9"),
    "a tensor of petabytes": lambda d: d["entries"].update(
        {"x": {"dtype": "float32", "shape": [1 << 50], "requires_grad": False,
               "chunks": [[[0], [1 << 50], 0, "x"]]}}
    ),
    "chunks that overlap": lambda d: d["entries"]["model.matrix"]["chunks"][1][0].__setitem__(0, 0),
    "chunks that leave gaps": lambda d: d["entries"]["model.matrix"]["chunks"].pop(),
    "a chunk out of bounds": lambda d: d["entries"]["model.matrix"]["chunks"][0][1].__setitem__(0, 99),
    "a negative shape": lambda d: d["entries"]["model.matrix"]["shape"].__setitem__(0, -7),
    "a shape of 1e5 axes": lambda d: d["entries"]["model.matrix"].__setitem__("shape", [1] * 100_000),
    "another dtype": lambda d: d["entries"]["model.matrix"].__setitem__("dtype", "object"),
    "a file that is not listed": lambda d: d["entries"]["model.matrix"]["chunks"][0].__setitem__(2, 44),
    "a newer schema": lambda d: d.__setitem__("schema", 9),
    "a list in place of entries": lambda d: d.__setitem__("entries", []),
    "no files": lambda d: d.pop("files"),
    "a position in a list of 1e9": lambda d: d["paths"].__setitem__("step", ["step", 10**9]),
    "an empty path": lambda d: d["paths"].__setitem__("step", []),
    "another name in the file": lambda d: d["entries"]["model.matrix"]["chunks"][0].__setitem__(3, "no"),
    "another tensor of the file": lambda d: d["entries"]["model.matrix"]["chunks"][0].__setitem__(
        3, "model.half[0:1,0:4]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_manifest(folder, change):
    rewritten(folder, change)
    text = refused(folder, 1)

    assert len(text) < 2000
    with pytest.raises(CheckpointException):
        dcp.load_whole(checkpoint_id=folder)


@pytest.mark.slow
def test_many_chunks_are_checked_in_linear_time(folder):
    def change(document):
        chunks = [[[0, 0], [1, 1], 0, "x"]] * 20_000
        document["entries"]["x"] = {
            "dtype": "float32", "shape": [100, 200], "requires_grad": False, "chunks": chunks,
        }  # fmt: skip

    rewritten(folder, change)

    assert "overlap" in refused(folder, 1)


def test_folders_that_are_no_checkpoints(tmp_path):
    def text(path):
        with pytest.raises(CheckpointException) as caught:
            dcp.load({"a": 1}, checkpoint_id=path)
        return str(caught.value)

    assert "no such folder" in text(tmp_path / "absent")
    assert "it is not a checkpoint" in text(tmp_path)
    (tmp_path / ".metadata").write_bytes(b"")
    assert "was saved by PyTorch" in text(tmp_path)
    torch.save({"a": 1}, tmp_path / "file.pt")
    assert "is a file. Load it with tenon.load" in text(tmp_path / "file.pt")
    (tmp_path / "manifest.json").mkdir()
    assert "manifest.json" in text(tmp_path)


def test_a_save_that_did_not_finish_is_told_from_no_save(folder):
    (folder / "manifest.json").unlink()

    assert "the save did not finish" in refused(folder)


def test_the_former_checkpoint_stays_until_the_new_one_is_complete(folder, monkeypatch):
    before = sorted(os.listdir(folder))

    def work(communicator):
        original = dcp.FileSystemWriter._write

        def failing(writer, plan, planner):
            if communicator.rank == 1:
                raise OSError(28, "No space left on device", "shard")
            return original(writer, plan, planner)

        writer = dcp.FileSystemWriter(folder)
        writer._write = lambda plan, planner: failing(writer, plan, planner)
        state = {"model": sharded(zeros(), (2,), [Shard(0)]), "step": 4}
        with pytest.raises(CheckpointException) as caught:
            dcp.save(state, storage_writer=writer)
        assert list(caught.value.failures) == [1]
        assert "No space left on device" in str(caught.value)

    run_ranks(2, work)
    state = {"model": zeros(), "step": 0}
    dcp.load(state, checkpoint_id=folder)
    assert state["step"] == 3
    assert set(before) < set(os.listdir(folder))
    save_whole(folder, LAYOUTS[3])
    assert len(os.listdir(folder)) == len(before)


def test_a_file_that_the_coordinator_does_not_see(tmp_path):
    class Elsewhere(dcp.FileSystemWriter):
        def write_data(self, plan, planner):
            result = super().write_data(plan, planner)
            for path in shards(self.path):
                path.unlink()
            return result

    with pytest.raises(CheckpointException, match="is not there for the coordinator"):
        dcp.save({"a": torch.ones(2)}, storage_writer=Elsewhere(tmp_path))


def test_another_job_replaces_the_checkpoint_while_ranks_read_it(folder):
    def work(communicator):
        reader = dcp.FileSystemReader(folder)
        original = reader.read_metadata

        def read():
            found = original()
            if communicator.rank:
                save_whole(folder.parent / "new", LAYOUTS[1])
                found.storage_meta.load_id = "another"
            return found

        reader.read_metadata = read
        with pytest.raises(CheckpointException, match="the ranks read different checkpoints"):
            dcp.load({"step": 0}, storage_reader=reader)

    run_ranks(2, work)
