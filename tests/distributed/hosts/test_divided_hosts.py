"""Ranks of several hosts have parts of a model: runs end as on one rank, and go on on another mesh."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "training" / "parallel"))

from divided_runs import sections, settings, write_project

pytestmark = [pytest.mark.mpi, pytest.mark.manual]

MESHES = [
    {"shard": 4},
    {"data": 2, "shard": 2},
    {"shard": 2, "tensor": 2},
    {"tensor": 4, "tensor_plan": '{"blocks.*.up"="colwise","blocks.*.down"="rowwise"}'},
    {"pipeline": 2, "data": 2},
    {"pipeline": 2, "tensor": 2},
    {"pipeline": 4},
]


@pytest.fixture
def folder(tmp_path):
    write_project(tmp_path)
    (tmp_path / "hosts").write_text("node1:2\nnode2:2\n")
    return tmp_path


def train(hosts, folder, name, *options, ranks=4):
    launcher = ["mpirun", "-f", "hosts", "-n", str(ranks)] if ranks > 1 else []
    done = hosts.run(*launcher, "tenon", "train", "my.toml", "--run", name, *options, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    model = sections(folder / name)["model"]
    return np.concatenate([model[key].reshape(-1).double().numpy() for key in sorted(model)])


@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_a_mesh_over_two_hosts_does_not_change_the_run(hosts, folder, sizes):
    whole = train(hosts, folder, "whole", ranks=1)
    divided = train(hosts, folder, "divided", *settings(**sizes))
    np.testing.assert_allclose(divided, whole, rtol=0, atol=2e-5)


def test_a_run_of_two_hosts_goes_on_on_another_mesh_and_on_one_host(hosts, folder):
    whole = train(hosts, folder, "whole", "--set", "epochs=3", ranks=1)
    train(hosts, folder, "run", *settings(shard=2, tensor=2), "--set", "epochs=1")
    train(hosts, folder, "run", *settings(shard=1, tensor=1, pipeline=2, data=2), "--set", "epochs=2")
    last = train(hosts, folder, "run", *settings(pipeline=1, data=1, shard=2), "--set", "epochs=3", ranks=2)
    np.testing.assert_allclose(last, whole, rtol=0, atol=2e-5)
