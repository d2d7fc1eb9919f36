"""Reductions of several pieces, some of them in flight at a time: the same bits, blocking and overlapped."""

import pytest

from tenon.testing.suites.communicator import launch

pytestmark = pytest.mark.mpi

PROGRAM = """
import numpy as np

from tenon.distributed import get_communicator
from tenon.distributed.communication.reduction import ReduceOp, combine
from tenon_mpi.messages import PIECE_BYTES

communicator = get_communicator()
count = 4 * PIECE_BYTES // 4 + 7  # five pieces, the last one small
arrays = [np.random.default_rng(rank).standard_normal(count).astype(np.float32) for rank in range(communicator.size)]
expected = np.empty_like(arrays[0])
combine(arrays, ReduceOp.SUM, expected)
mine = arrays[communicator.rank]
at_once = communicator.all_reduce(mine).wait()
beside = [mine.copy() for _ in range(2)]
for work in [communicator.start_all_reduce(array) for array in beside]:
    work.wait()
same = communicator.overlaps and all(bool((found == expected).all()) for found in (at_once, *beside))
everywhere = communicator.all_gather_bytes(str(same).encode())
if communicator.rank == 0:
    print(*(one.decode() for one in everywhere))
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_pieces_in_flight_do_not_mix(size):
    done = launch(size, ["-c", PROGRAM], TENON_COMMUNICATOR="mpi-messages", TENON_MPI_NODES=str(size))

    assert done.stdout.split() == ["True"] * size, done.stdout + done.stderr
