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


@pytest.fixture(scope="module")
def alone():
    return results(1)


# Two nodes of two ranks reduce full buckets while backward goes on, which one node does not.
@pytest.mark.slow
@pytest.mark.parametrize(("size", "variables"), [(2, {}), (4, {"TENON_MPI_NODES": "2"})])
def test_ranks_give_what_one_process_computes(alone, size, variables):
    assert set(alone) == {"accumulation", "state", "join", "powersgd"}
    ranks = results(size, **variables)

    assert set(ranks) == set(alone)
    for label, values in ranks.items():
        np.testing.assert_allclose(values, alone[label], rtol=1e-6, atol=1e-8, err_msg=label)
