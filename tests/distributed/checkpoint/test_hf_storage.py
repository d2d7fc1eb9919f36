"""Folders of safetensors files, as models are published, load into any layout."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import tenon as torch
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint import CheckpointException, HuggingFaceStorageReader
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
