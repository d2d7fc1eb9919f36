"""``tenon train`` with masked targets: the mean over all unmasked ones, for any number of ranks and passes."""

import numpy as np
import pytest

pytestmark = pytest.mark.mpi

MASKED = """
import numpy as np
import small
import tenon
from tenon.data import Splits, TensorDataset
from tenon.nn.functional import cross_entropy


def load(**options):
    splits = small.load(**options)
    parts = []
    for part in (splits.train, splits.test):
        x, y = part.tensors
        y = y.numpy().copy()
        y[: 2 * len(y) // 3] = -100
        y[5] = 1
        parts.append(TensorDataset(x, tenon.from_numpy(y)))
    return Splits(*parts)


def pair(outputs, targets):
    # What the built-in loss does by itself, as a loss of one's own says it.
    return cross_entropy(outputs, targets, reduction="sum"), (targets != -100).sum()
"""


@pytest.fixture
def masked(project):
    (project.folder / "masked.py").write_text(MASKED)
    return lambda *options, **ranks: project.train("my.toml", "--set", "data=masked:load", *options, **ranks)


@pytest.mark.slow
def test_ranks_and_passes_change_nothing(masked):
    one = masked()
    four = masked("--set", "accumulate=3", ranks=2)
    own = masked("--set", "loss=masked:pair", ranks=3)

    for run in (four, own):
        np.testing.assert_allclose(run.weights(), one.weights(), rtol=0, atol=2e-5)
        assert run.final["test_loss"] == pytest.approx(one.final["test_loss"], abs=1e-5)
    assert four.final["test_accuracy"] == pytest.approx(one.final["test_accuracy"], abs=1e-9)
    counted = 31 - 2 * 31 // 3 + 1
    assert one.final["test_accuracy"] * counted == pytest.approx(round(one.final["test_accuracy"] * counted))
