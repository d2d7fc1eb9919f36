"""Weights that only one rank changed are detected at the interval and named; equal ones are never reported."""

from pathlib import Path

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.replicas import replica_check
from tenon.errors import CollectiveMismatchError, ConfigError
from tenon.nn.parallel import DistributedDataParallel
from tenon.testing.suites.communicator import launch


def train(communicator, steps=4, edit=None, dtype=torch.float32, compiled=False, wrapper=None):
    """Train; rank 1 calls ``edit(model)`` before the second step. Returns the message of a mismatch, and its step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(dtype)
    parallel = DistributedDataParallel(model, **{"compare_weights": 2, **(wrapper or {})})
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    x = torch.ones(4, 64).to(dtype)

    def step():
        optimizer.zero_grad()
        parallel(x).sum().backward()
        optimizer.step()

    run = torch.compile(step) if compiled else step
    for number in range(1, steps + 1):
        if edit is not None and communicator.rank == 1 and number == steps - 1:
            edit(model)
        try:
            run()
        except CollectiveMismatchError as error:
            return number, str(error)
    return None


def nudge(model):
    with torch.no_grad():
        model[0].weight[3, 5] += 1e-3


def swap_rows(model):
    with torch.no_grad():
        model[0].weight.copy_(model[0].weight[torch.arange(63, -1, -1)])


@pytest.mark.parametrize("edit", [nudge, swap_rows])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_edit_on_one_rank_is_found_and_named_within_the_interval(edit, dtype):
    for number, message in run_ranks(3, train, 4, edit, dtype):
        assert number == 4
        assert "0.weight of rank 1 is not that of ranks 0, 2" in message
        assert "2.weight" not in message
        assert "every 2 steps" in message


def flip_bit(tensor, bit=18):
    """Flip one bit of the last element."""
    words = tensor.detach().numpy().reshape(-1).view(np.uint32)
    words[-1] ^= np.uint32(1 << bit)


def found_at(communicator, kind):
    """The step of a mismatch and its message: rank 1 changes one bit before step 7, every 5 are compared."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    model[0].weight.requires_grad_(kind != "frozen")
    options = {"static": {"static_graph": True}, "small buckets": {"bucket_cap_mb": 1e-5}}.get(kind, {})
    parallel = DistributedDataParallel(model, compare_weights=5, **options)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01, momentum=0.9)
    x = torch.from_numpy(np.random.default_rng(communicator.rank).standard_normal((4, 8), np.float32))

    def backward():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "mixed precision"):
            loss = parallel(x).float().square().sum()
        loss.backward()

    for step in range(1, 21):
        if step == 7 and communicator.rank == 1:
            momentum = optimizer.state[model[3].weight]["momentum_buffer"]
            flip_bit({"frozen": model[0].weight, "state": momentum}.get(kind, model[3].weight))
        optimizer.zero_grad()
        try:
            if kind == "accumulation":
                with parallel.no_sync():
                    backward()
            backward()
        except CollectiveMismatchError as error:
            return step, str(error)
        optimizer.step()


@pytest.mark.parametrize(
    "kind", ["plain", "frozen", "static", "small buckets", "mixed precision", "accumulation", "state"]
)
def test_one_bit_is_found_at_the_interval_in_every_kind_of_step(kind):
    for step, message in run_ranks(2, found_at, kind):
        assert step == 10
        assert ("0.weight of rank" if kind == "frozen" else "3.weight of rank") in message


def deterministic(communicator):
    """The message of a mismatch in steps of logical shards, before the second of which rank 1 edits a weight."""
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    parallel = DistributedDataParallel(model, deterministic="world", shards=4, compare_weights=2)
    x = torch.ones(4, 8)
    try:
        for step in range(2):
            if communicator.rank == 1 and step == 1:
                with torch.no_grad():
                    model.weight[0, 0] = 3.0
            for (part,) in parallel.shards(x, step=step):
                parallel.backward(parallel(part).sum(), len(part))
            parallel.finish()
    except CollectiveMismatchError as error:
        return str(error)


def test_an_edit_is_found_in_deterministic_steps():
    for message in run_ranks(2, deterministic):
        assert "weight of rank 1" in message or "weight of rank 0" in message
        assert "bias" not in message


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    "variables",
    [
        {"TENON_COMMUNICATOR": "mpi-shared"},
        {"TENON_COMMUNICATOR": "mpi-messages"},
        {"TENON_COMMUNICATOR": "mpi", "TENON_MPI_NODES": "2"},
    ],
    ids=["shared", "messages", "overlapping"],
)
def test_an_edit_is_found_in_eager_and_compiled_steps_of_processes(variables):
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import test_replica_check as t, tenon.distributed as dist\n"
        "c = dist.get_communicator()\n"
        "for compiled in (False, True):\n"
        "    number, message = t.train(c, 8, t.nudge, compiled=compiled)\n"
        "    assert number == 8 and '0.weight of rank 1 is not' in message, message\n"
        "    assert t.train(c, 8, compiled=compiled) is None\n"
    )
    done = launch(4, ["-c", program, str(Path(__file__).parent)], **variables)

    assert done.returncode == 0, done.stderr


def test_equal_weights_are_never_reported_and_the_interval_may_be_off():
    assert run_ranks(3, train, 6) == [None] * 3
    assert run_ranks(3, train, 4, nudge, torch.float32, False, {"compare_weights": 0}) == [None] * 3


def test_a_checksum_depends_on_every_byte_and_their_order():
    values = torch.arange(40_000, dtype=torch.float32)
    found = {replica_check._digest(values)}
    for index in (0, 17_000, 39_999):
        changed = values.clone()
        changed[index] = -1
        found.add(replica_check._digest(changed))
    found.add(replica_check._digest(torch.from_numpy(np.ascontiguousarray(values.numpy()[::-1]))))

    assert len(found) == 5


@pytest.mark.parametrize("text", ["often", "-1"])
def test_an_interval_that_is_not_a_number_of_steps_is_an_error(monkeypatch, text):
    monkeypatch.setenv("TENON_COMPARE_WEIGHTS", text)

    with pytest.raises(ConfigError, match="is not a number of steps"):
        replica_check.interval(None)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1.5, True, "3", -1])
def test_an_interval_of_another_type_is_an_error(value):
    with pytest.raises(ConfigError, match="is not a number of steps"):
        replica_check.interval(value)
