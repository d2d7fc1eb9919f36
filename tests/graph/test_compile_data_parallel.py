"""Compiled steps on two real ranks: the losses and weights of eager ones, on both ranks."""

import json
from pathlib import Path

import numpy as np
import pytest

from tenon.testing.suites.communicator import launch

PROGRAM = Path(__file__).parent / "programs" / "data_parallel.py"

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    "way, programs, tolerance",
    [
        ("step", 1, 1e-5),
        pytest.param("accumulate", 1, 1e-5, marks=pytest.mark.slow),
        pytest.param("model", 2, 1e-5, marks=pytest.mark.slow),
        pytest.param("scaled", 1, 3e-2, marks=pytest.mark.slow),
        pytest.param("together", 1, 3e-2, marks=pytest.mark.slow),
    ],
)
def test_two_ranks_train_compiled_as_eagerly(way, programs, tolerance):
    done = launch(2, [str(PROGRAM), way])

    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)
    assert ranks[0]["compiled"]["weights"] == ranks[1]["compiled"]["weights"], "the ranks drifted apart"
    assert ranks[0]["eager"]["losses"] != ranks[1]["eager"]["losses"], "every rank has its own batches"
    for rank in ranks:
        assert rank["compiled"]["programs"] == programs
        for what in ("losses", "norms", "weights"):
            np.testing.assert_allclose(rank["compiled"][what], rank["eager"][what], tolerance, tolerance)
