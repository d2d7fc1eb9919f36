"""SyncBatchNorm, ZeRO, accumulation, join and hooks together on real ranks, against one process."""

from pathlib import Path

import numpy as np
import pytest

from tenon.testing.suites.communicator import launch

PROGRAM = Path(__file__).parent / "programs" / "data_parallel_features.py"

pytestmark = pytest.mark.mpi


def results(size, **variables):
    done = launch(size, [str(PROGRAM)], **variables)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        label, different, *values = line.split()
        assert different == "1", f"{label}: ranks differ"
        found[label] = np.array([float(value) for value in values])
    return found


def test_two_and_four_ranks_come_to_what_one_process_computes():
    alone = results(1)

    assert set(alone) == {"accumulation", "state", "join", "powersgd"}
    # Two nodes of two ranks reduce full buckets while backward goes on, which one node does not.
    for ranks in (results(2), results(4, TENON_MPI_NODES="2")):
        for label, values in ranks.items():
            np.testing.assert_allclose(values, alone[label], rtol=1e-6, atol=1e-8, err_msg=label)
