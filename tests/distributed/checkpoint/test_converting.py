"""Distributed checkpoints as one file, and back."""

import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tenon as torch
from tenon import nn
from tenon.distributed import checkpoint as dcp
from tenon.distributed import init_device_mesh
from tenon.distributed.checkpoint import CheckpointException
from tenon.distributed.checkpoint.format_utils import (
    BroadcastingTorchSaveReader,
    DynamicMetaLoadPlanner,
    dcp_to_torch_save,
    main,
    torch_save_to_dcp,
)
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import fully_shard
from tenon.errors import CheckpointError

sys.path.insert(0, str(Path(__file__).parent))

from states import equal, save_whole, zeros


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_to_one_file_and_back(tmp_path, suffix):
    save_whole(tmp_path / "sharded")
    path = tmp_path / f"whole.{suffix}"
    dcp_to_torch_save(tmp_path / "sharded", path)
    loaded = torch.load(path)
    assert equal(loaded["model"]) and loaded["step"] == 3
    torch_save_to_dcp(path, tmp_path / "again")
    state = {"model": zeros(), "step": 0}
    dcp.load(state, checkpoint_id=tmp_path / "again")

    assert equal(state["model"]) and state["step"] == 3


def test_pytorch_reads_the_file(tmp_path):
    pytorch = pytest.importorskip("torch")
    save_whole(tmp_path / "sharded")
    dcp_to_torch_save(tmp_path / "sharded", tmp_path / "whole.pt")
    found = pytorch.load(tmp_path / "whole.pt", weights_only=True)

    assert np.array_equal(found["model"]["matrix"].numpy(), np.arange(35.0).reshape(7, 5))


def test_a_file_of_pytorch(tmp_path):
    pytorch = pytest.importorskip("torch")
    model = pytorch.nn.Linear(3, 2)
    pytorch.save({"model": model.state_dict()}, tmp_path / "model.pt")
    torch_save_to_dcp(tmp_path / "model.pt", tmp_path / "sharded")
    own = nn.Linear(3, 2)
    dcp.load({"model": own}, checkpoint_id=tmp_path / "sharded")

    assert np.array_equal(np.asarray(own.weight.detach().raw), model.weight.detach().numpy())


def test_what_cannot_be_converted(tmp_path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(CheckpointError, match="holds a list"):
        torch_save_to_dcp(tmp_path / "list.pt", tmp_path / "sharded")
    with pytest.raises(FileNotFoundError):
        torch_save_to_dcp(tmp_path / "none.pt", tmp_path / "sharded")
    with pytest.raises(CheckpointException):
        dcp_to_torch_save(tmp_path, tmp_path / "out.pt")
    assert not (tmp_path / "out.pt").exists() and not (tmp_path / "sharded").exists()


class Uneven(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 3), nn.Linear(3, 1)


def test_rank_0_reads_a_file_for_all(tmp_path):
    torch.manual_seed(0)
    source = Uneven()
    torch.save({"model": source.state_dict(), "step": 5}, tmp_path / "model.pt")

    def work(communicator, content):
        mesh = init_device_mesh("cpu", (communicator.size,))
        model = fully_shard(Uneven(), mesh=mesh)
        state = {"model": model, "step": 0} | content
        reader = BroadcastingTorchSaveReader()
        planner = DynamicMetaLoadPlanner()
        dcp.load(state, planner=planner, storage_reader=reader, checkpoint_id=tmp_path / "model.pt")
        whole = {name: p.full_tensor() for name, p in model.state_dict().items()}
        return state["step"], all(torch.equal(whole[n], p) for n, p in source.state_dict().items())

    assert run_ranks(4, work, {}) == [(5, True)] * 4
    with pytest.raises(CheckpointException, match=r"has no tensor 'other'"):
        run_ranks(2, work, {"other": torch.ones(1)})
    with pytest.raises(CheckpointException, match=r"Size mismatch between saved \[3, 5\]"):
        run_ranks(2, work, {"model": {"a": {"weight": torch.ones(5, 5)}}})


def test_as_a_command(tmp_path):
    save_whole(tmp_path / "sharded")
    command = CliRunner().invoke
    done = command(main, ["dcp_to_torch", str(tmp_path / "sharded"), str(tmp_path / "whole.safetensors")])
    assert done.exit_code == 0, done.output
    done = command(main, ["torch_to_dcp", str(tmp_path / "whole.safetensors"), str(tmp_path / "again")])
    assert done.exit_code == 0, done.output
    assert equal(dcp.load_whole(checkpoint_id=tmp_path / "again")["model"])
    done = command(main, ["dcp_to_torch", str(tmp_path / "none"), str(tmp_path / "out.pt")])
    assert done.exit_code == 1 and "no such folder" in done.output and "Traceback" not in done.output
