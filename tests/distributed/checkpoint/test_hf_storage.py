"""Folders of safetensors files, as models are published, load into any layout."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tenon as torch
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint import (
    CheckpointException,
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from tenon.distributed.checkpoint.hf_writer import _runs
from tenon.distributed.communication.threaded import run_ranks

sys.path.insert(0, str(Path(__file__).parent))

from states import LAYOUTS, WHOLE, equal, sharded, zeros

INDEX = "model.safetensors.index.json"


def load_into(folder, layout):
    size, shape, placements = layout

    def work(communicator):
        state = sharded(zeros(), shape, placements)
        dcp.load(state, storage_reader=HuggingFaceStorageReader(folder))
        return equal(state)

    assert run_ranks(size, work) == [True] * size


def save_in_two_files(folder):
    save_file({name: WHOLE[name].numpy() for name in ("matrix", "none")}, folder / "a.safetensors")
    torch.save({name: WHOLE[name] for name in ("short", "half")}, folder / "b.safetensors")


@pytest.mark.parametrize("layout", LAYOUTS[1::2], ids=str)
def test_files_of_a_folder_load_into_every_layout(tmp_path, layout):
    save_in_two_files(tmp_path)

    load_into(tmp_path, layout)


def test_an_index_says_which_files_are_read(tmp_path):
    save_in_two_files(tmp_path)
    save_file({"matrix": np.zeros((2, 2), np.float32)}, tmp_path / "consolidated.safetensors")
    files = {"matrix": "a.safetensors", "none": "a.safetensors", "short": "b.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": files}))

    load_into(tmp_path, LAYOUTS[1])


def test_parts_that_ranks_of_pytorch_saved_are_joined(tmp_path):
    torch.save({n: v for n, v in WHOLE.items() if n != "matrix"}, tmp_path / "rest.safetensors")
    for start in (0, 4):
        note = json.dumps({"matrix": {"saved_offsets": [start, 0]}})
        part = {"matrix": np.ascontiguousarray(WHOLE["matrix"].numpy()[start : start + 4])}
        save_file(part, tmp_path / f"shard-{start}.safetensors", {"DCP_SHARDING_INFO": note})

    load_into(tmp_path, LAYOUTS[4])


@pytest.mark.parametrize(
    "files, index, message",
    [
        ([], None, "has no safetensors files"),
        (["a", "b"], None, "'a.safetensors' both have 'x'"),
        (["a"], {"weight_map": {"x": "../a.safetensors"}}, "is damaged .*files of other folders"),
        (["a"], {}, "is damaged .*weight_map"),
        (["a"], {"weight_map": {"x": "c.safetensors"}}, "No such file"),
        (["a"], None, "Missing key in checkpoint state_dict: y"),
    ],
)
def test_what_cannot_be_loaded(tmp_path, files, index, message):
    for name in files:
        save_file({"x": np.zeros(2, np.float32)}, tmp_path / f"{name}.safetensors")
    if index is not None:
        (tmp_path / INDEX).write_text(json.dumps(index))

    with pytest.raises(CheckpointException, match=message):
        dcp.load({"x": torch.ones(2), "y": torch.ones(2)}, storage_reader=HuggingFaceStorageReader(tmp_path))


@pytest.mark.parametrize(
    ("begins", "message"),
    [
        ([4], "chunks overlap or leave gaps: they have 16 elements of 32"),
        ([0, 2], "they have 32 elements of 24"),
    ],
)
def test_parts_of_ranks_that_are_missing_or_overlap_are_refused(tmp_path, begins, message):
    for start in begins:
        note = json.dumps({"x": {"saved_offsets": [start, 0]}})
        part = {"x": np.ones((4, 4), np.float32)}
        save_file(part, tmp_path / f"shard-{start}.safetensors", {"DCP_SHARDING_INFO": note})
    state = {"x": torch.zeros(max(begins) + 4, 4)}

    with pytest.raises(CheckpointException, match=f"'x' is not whole: .*{message}"):
        dcp.load(state, storage_reader=HuggingFaceStorageReader(tmp_path))
    assert not state["x"].any()


def save_from(folder, layout, **options):
    size, shape, placements = layout

    def work(communicator):
        dcp.save(
            sharded(WHOLE, shape, placements), storage_writer=HuggingFaceStorageWriter(folder, **options)
        )

    run_ranks(size, work)


@pytest.mark.filterwarnings("ignore::tenon.errors.UncheckedFileWarning")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_layout_is_saved_as_whole_tensors(tmp_path, layout):
    save_from(tmp_path, layout)

    assert sorted(p.name for p in tmp_path.iterdir()) == ["model-00001-of-00001.safetensors", INDEX]
    assert equal(torch.load(tmp_path / "model-00001-of-00001.safetensors"))
    load_into(tmp_path, LAYOUTS[0])


def test_tensors_go_into_the_files_that_are_asked_for(tmp_path):
    save_from(tmp_path, LAYOUTS[1])
    save_from(tmp_path, LAYOUTS[3], fqn_to_index_mapping={"matrix": 2, "short": 1, "half": 3, "none": 2})

    files = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert sorted(p.name for p in tmp_path.iterdir()) == [*files, INDEX]
    np.testing.assert_array_equal(load_file(tmp_path / files[1])["matrix"], WHOLE["matrix"].numpy())
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"] == {"total_size": sum(v.nbytes for v in WHOLE.values())}
    assert index["weight_map"] == {n: files[i] for n, i in zip(WHOLE, (1, 0, 2, 1), strict=True)}
    load_into(tmp_path, LAYOUTS[2])


@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 3), (3, 1, 4), (2, 3, 2, 2)], ids=str)
def test_pieces_of_a_box_lie_where_its_elements_do(shape):
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    generator = np.random.default_rng(0)
    for _ in range(20):
        begins = [int(generator.integers(n + 1)) for n in shape]
        sizes = [int(generator.integers(n - o + 1)) for n, o in zip(shape, begins, strict=True)]
        box = whole[tuple(slice(o, o + s) for o, s in zip(begins, sizes, strict=True))]
        found = [range(start, start + count) for start, count in _runs(shape, begins, sizes)]
        assert [n for run in found for n in run] == box.reshape(-1).tolist()


@pytest.mark.parametrize(
    "state, options, message",
    [
        ({"x": torch.ones(2), "step": 3}, {}, "have tensors only, not step"),
        ({"x": torch.ones(2)}, {"fqn_to_index_mapping": {"y": 1}}, "has no file for x"),
        ({"x": torch.ones(2, dtype=torch.complex128)}, {}, "x: safetensors files have no .*complex128"),
    ],
)
def test_what_cannot_be_saved(tmp_path, state, options, message):
    with pytest.raises(CheckpointException, match=message):
        dcp.save(state, storage_writer=HuggingFaceStorageWriter(tmp_path, **options))
    assert not list(tmp_path.glob("model-*"))


def test_ranks_that_save_to_different_folders_are_told(tmp_path):
    def work(communicator):
        folder = tmp_path / str(communicator.rank)
        dcp.save({"x": torch.ones(2)}, storage_writer=HuggingFaceStorageWriter(folder))

    with pytest.raises(CheckpointException, match=r"different folders: rank 0 to .*, rank 1 to"):
        run_ranks(2, work)
    assert not list(tmp_path.glob("*/model*"))
