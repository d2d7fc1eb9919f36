"""Compiled data-parallel steps compute gradients in the memory in which ranks reduce them."""

import json
from pathlib import Path

import numpy as np
import pytest

from tenon.testing.suites.communicator import launch

PROGRAM = Path(__file__).parent / "programs" / "gradients_in_place.py"

pytestmark = pytest.mark.mpi


@pytest.mark.slow
def test_programs_make_gradients_in_the_bucket_and_leave_those_that_somebody_keeps():
    done = launch(2, [str(PROGRAM)])

    assert done.returncode == 0, done.stderr
    for late, early, zeroed in json.loads(done.stdout):
        assert late["in the bucket"] and early["in the bucket"]
        for found in (late, early, zeroed):
            assert found["programs"] == 1
            assert found["kept"], "a program wrote over gradients of an eager step"
            for weight, eager in zip(found["weights"], found["eager"], strict=True):
                np.testing.assert_allclose(weight, eager, rtol=1e-5, atol=1e-6)
