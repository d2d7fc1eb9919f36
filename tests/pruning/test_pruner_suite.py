"""The pruning methods that come with tenon pass ``PrunerSuite``, and each of its checks finds a planted bug."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import tenon as torch
from tenon.errors import TenonError
from tenon.extend import BasePruningMethod, Criterion
from tenon.nn.masks import check_amount, checked_count
from tenon.testing import PrunerSuite


class TestRandomUnstructured(PrunerSuite):
    pruner = "RandomUnstructured"


class TestL1Unstructured(PrunerSuite):
    pruner = "L1Unstructured"


class TestRandomStructured(PrunerSuite):
    pruner = "RandomStructured"
    options: ClassVar = {"dim": 0}


class TestLnStructured(PrunerSuite):
    pruner = "LnStructured"
    options: ClassVar = {"n": 2, "dim": 1}


class TestMagnitude(PrunerSuite):
    pruner = "Magnitude"


class TestTaylor(PrunerSuite):
    pruner = "Taylor"


class Right(Criterion):
    """Removes the smallest elements."""

    def score(self, weight, gradient):
        return weight.abs()


class TestOwn(PrunerSuite):
    pruner = Right


class OneMore(Right):
    def compute_mask(self, t, default_mask):
        mask = super().compute_mask(t, default_mask)
        mask.view(-1)[t.reshape(-1).argmax()] = 0
        return mask


class Half(Right):
    def compute_mask(self, t, default_mask):
        return super().compute_mask(t, default_mask) * 0.5


class Trusting(BasePruningMethod):
    """Takes whatever amount it is given."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount):
        self.amount = amount

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[: int(t.numel() * (self.amount if isinstance(self.amount, float) else 0.1))] = 0
        return mask


class Drawing(Right):
    drawn = np.random.default_rng(0)

    def compute_mask(self, t, default_mask):
        noise = torch.from_numpy(self.drawn.standard_normal(t.shape)).to(t.dtype)
        return super().compute_mask(noise, default_mask)


class ByMemory(Right):
    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        order = torch.from_numpy(module.weight.detach().numpy().ravel(order="K").copy())
        return super().apply(module, name, amount, order.abs().view(module.weight.shape))


class ByDtype(Right):
    def score(self, weight, gradient):
        return weight.abs() if weight.dtype is torch.float32 else 10 - weight.abs()


class Afresh(Right):
    PRUNING_TYPE = "global"

    def compute_mask(self, t, default_mask):
        return (
            super().compute_mask(-t, torch.ones_like(t))
            if default_mask.min() == 0
            else super().compute_mask(t, default_mask)
        )


class InPlace(Right):
    def compute_mask(self, t, default_mask):
        default_mask.copy_(super().compute_mask(t, default_mask))
        return default_mask


class Parts(BasePruningMethod):
    """Claims to be structured, and removes single elements."""

    PRUNING_TYPE = "structured"
    dim = 0

    def __init__(self, amount, dim=0):
        check_amount(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[: checked_count(self.amount, t.shape[0]) * t.shape[1] - 3] = 0
        return mask


class Stuck(Right):
    """``remove`` has no effect."""

    def remove(self, module):
        pass


class Lost(Right):
    """The weight ignores the mask."""

    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        method = super().apply(module, name, amount, importance_scores)
        module.weight_mask = torch.ones_like(module.weight_mask)
        cls.mask = method.compute_mask(module.weight_orig.detach().abs(), torch.ones_like(module.weight_mask))
        return method


class Unsaved(Right):
    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        method = super().apply(module, name, amount, importance_scores)
        module.register_buffer("weight_mask", module.weight_mask, persistent=False)
        return method


@pytest.mark.parametrize(
    ("planted", "check", "arguments"),
    [
        (OneMore, "test_as_many_are_removed_as_the_amount_says", (0.25,)),
        (Parts, "test_as_many_are_removed_as_the_amount_says", (0.5,)),
        (Half, "test_masks_are_zeros_and_ones_like_the_weight", ()),
        (Trusting, "test_amounts_that_make_no_sense_are_refused", (-1,)),
        (Trusting, "test_amounts_that_make_no_sense_are_refused", ("half",)),
        (Drawing, "test_the_same_weights_have_the_same_mask", ()),
        (ByMemory, "test_weights_that_lie_transposed_in_memory_have_the_same_mask", ()),
        (ByDtype, "test_float64_weights_have_the_same_mask", ()),
        (Afresh, "test_pruning_again_removes_more_of_what_is_left", ()),
        (InPlace, "test_compute_mask_changes_nothing_that_it_gets", ()),
        (Stuck, "test_remove_makes_the_mask_permanent", ()),
        (Unsaved, "test_masks_are_saved_and_loaded", ()),
    ],
)
def test_planted_bugs_are_found(planted, check, arguments):
    class Suite(PrunerSuite):
        pruner = planted

    with pytest.raises((AssertionError, TypeError, TenonError, pytest.fail.Exception)):
        getattr(Suite(), check)(*arguments)


def test_a_mask_that_the_weight_ignores_is_found():
    class Suite(PrunerSuite):
        pruner = Lost

        def prune(self, layer, amount):
            super().prune(layer, amount)
            return Lost.mask.numpy()

    with pytest.raises(AssertionError):
        Suite().test_removed_elements_are_zero_and_get_no_gradient()
