"""The parametrizations that come with tenon pass ``ParametrizationSuite``; each of its checks finds a planted bug."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.errors import TenonError
from tenon.testing import ParametrizationSuite


class TestWeightNorm(ParametrizationSuite):
    parametrization = "weight_norm"


class TestOrthogonal(ParametrizationSuite):
    parametrization = "orthogonal"
    keeps_value = False

    def holds(self, weight):
        return np.allclose(weight.T @ weight, np.eye(3), atol=1e-8)


class TestCayley(ParametrizationSuite):
    parametrization = "orthogonal"
    options: ClassVar = {"orthogonal_map": "cayley"}
    shape = (4, 4)
    keeps_value = False

    def holds(self, weight):
        return np.allclose(weight.T @ weight, np.eye(4), atol=1e-8)


class TestSpectralNorm(ParametrizationSuite):
    parametrization = "spectral_norm"
    options: ClassVar = {"n_power_iterations": 50}
    keeps_value = False

    def holds(self, weight):
        return np.linalg.norm(weight, 2) < 1 + 1e-3


class Positive(nn.Module):
    """Weights of e to the power of what is stored."""

    def forward(self, x):
        return x.exp()

    def right_inverse(self, weight):
        return weight.abs().log()


class TestPositive(ParametrizationSuite):
    parametrization = Positive
    keeps_value = False

    def holds(self, weight):
        return (weight > 0).all()


class Scaled(nn.Module):
    """Twice what is stored."""

    def forward(self, x):
        return 2 * x

    def right_inverse(self, weight):
        return weight / 2


class TestScaled(ParametrizationSuite):
    parametrization = Scaled


class Plain(Scaled):
    def forward(self, x):
        return x - 1


class Shifted(Scaled):
    def right_inverse(self, weight):
        return weight


class Flat(Scaled):
    def forward(self, x):
        return super().forward(x).reshape(-1)


class Narrow(Scaled):
    def forward(self, x):
        return super().forward(x).double()


class Detached(Scaled):
    def forward(self, x):
        return x + x.detach()


class Remembering(Scaled):
    def forward(self, x):
        if not hasattr(self, "kept"):
            self.kept = 2 * x
        return self.kept


class Noisy(Scaled):
    def forward(self, x):
        return 2 * x + torch.randn(())


class Counting(Scaled):
    def __init__(self):
        super().__init__()
        self.register_buffer("reads", torch.zeros(()))

    def forward(self, x):
        self.reads.add_(1)
        return 2 * x


class Hidden(Scaled):
    shift = 0.0

    def right_inverse(self, weight):
        self.shift = float(weight.detach().mean())
        return weight - self.shift

    def forward(self, x):
        return x + self.shift


SHARED = {}


class Sharing(Scaled):
    def forward(self, x):
        return 2 * SHARED.setdefault("x", x)


def leaving(module, name="weight"):
    """Sets an attribute before it looks whether there is a weight."""
    module.helper = nn.Linear(1, 1)
    nn.utils.parametrize.register_parametrization(module, name, Scaled())


@pytest.mark.parametrize(
    ("planted", "check"),
    [
        (Plain, "test_the_weight_has_the_property"),
        (Shifted, "test_the_value_is_kept"),
        (Shifted, "test_a_value_that_is_assigned_is_taken"),
        (Flat, "test_shape_and_dtype_are_those_of_the_weight"),
        (Narrow, "test_shape_and_dtype_are_those_of_the_weight"),
        (Detached, "test_gradients_are_those_of_the_formula"),
        (Remembering, "test_the_weight_follows_the_stored_tensors"),
        (Noisy, "test_reading_changes_nothing"),
        (Counting, "test_reading_changes_nothing"),
        (Hidden, "test_state_is_saved_and_loaded"),
        (Sharing, "test_copies_are_independent"),
        (Noisy, "test_removal_leaves_the_weight"),
        (leaving, "test_a_name_that_is_not_there_is_refused"),
    ],
)
def test_planted_bugs_are_found(planted, check):
    class Suite(ParametrizationSuite):
        parametrization = planted

        def holds(self, weight):
            return (weight > 0).all()

    SHARED.clear()
    with pytest.raises((AssertionError, TypeError, TenonError, pytest.fail.Exception)):
        getattr(Suite(), check)()
