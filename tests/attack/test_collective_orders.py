"""Tensors in another order on one rank are found however they reach a collective; own tensors are legal."""

import json
import sys
from pathlib import Path

import pytest

from tenon.distributed.communication.threaded import run_ranks
from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

import collective_orders as orders


def check(messages, deviating):
    """All ranks raise one error that names the rank in every case, and none in legal programs."""
    assert {name: told[name] for told in messages for name in orders.LEGAL if told[name] is not None} == {}
    assert [name for name in orders.CASES if any(told[name] is None for told in messages)] == []
    for name in orders.CASES:
        assert len({told[name] for told in messages}) == 1, name
        assert f"rank {deviating} at" in messages[0][name], messages[0][name]


@pytest.mark.parametrize(("size", "deviating"), [(2, 1), (3, 0)])
def test_tensors_in_another_order_are_found_and_tensors_of_ones_own_are_legal(size, deviating):
    messages = run_ranks(size, lambda communicator: orders.told(communicator.rank == deviating))

    check(messages, deviating)
    message = messages[0]["nested_containers"]
    assert "`t` (s['p'][" in message and "`t` (s['q'][0])" in message
    assert "they had the same tensors in different orders" in message


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("communicator", ["mpi-shared", "mpi-messages"])
def test_ranks_as_processes_find_the_same(tmp_path, communicator):
    done = launch(3, [orders.__file__, str(tmp_path), "2"], TENON_COMMUNICATOR=communicator)

    assert done.returncode == 0, done.stderr
    check([json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)], 2)
