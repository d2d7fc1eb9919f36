"""Conformance of pruning methods: subclass, name the method, and pytest runs every check.

::

    class TestSmallest(PrunerSuite):
        pruner = "Smallest"

The method is created as ``Smallest(amount=..., **options)``: a fraction of the elements, or of the slices
along ``options["dim"]`` of a structured method, or a number of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from tenon.nn.masks import BasePruningMethod
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.utils import prune
from tenon.plugins import registry
from tenon.random import manual_seed
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.creation.factories import ones_like
from tenon.testing.assertions import host
from tenon.testing.suites.files import saved_and_loaded

AMOUNTS = (0.0, 0.25, 0.5, 1.0, 0, 1, 3)


class PrunerSuite:
    """Checks of ``pruner``: a name of ``tenon.nn.utils.prune``, or a class, that takes an ``amount``."""

    #: The method under test.
    pruner: ClassVar[str | type[BasePruningMethod]] = ""
    #: Arguments besides ``amount``.
    options: ClassVar[Mapping[str, Any]] = {}  # as its constructor states
    #: The shape of the weight that is pruned.
    shape: ClassVar[tuple[int, ...]] = (6, 8)

    # --- helpers of the checks ---

    @property
    def cls(self) -> type[BasePruningMethod]:
        """The method's class."""
        if isinstance(self.pruner, str):
            return registry.resolve_class("pruners", self.pruner, BasePruningMethod)  # type: ignore[type-abstract]
        return self.pruner

    def layer(self, seed: int = 0, dtype: str = "float32") -> Module:
        """Create a module with a ``weight`` of ``shape``, and its gradient, with values from ``seed``."""
        rng = np.random.default_rng(seed)
        layer = Module()
        layer.weight = Parameter(from_numpy(rng.standard_normal(self.shape).astype(dtype)))
        layer.weight.grad = from_numpy(rng.standard_normal(self.shape).astype(dtype))
        return layer

    def prune(self, layer: Module, amount: float, seed: int = 0) -> np.ndarray:
        """Prune ``layer.weight``, with the generator at ``seed``; return its mask."""
        manual_seed(seed)
        self.cls.apply(layer, "weight", amount=amount, **self.options)
        return host(layer.get_buffer("weight_mask"))

    def draws(self) -> bool:
        """Whether the method draws random numbers, so that the mask depends on the generator."""
        masks = [self.prune(self.layer(), 0.5, seed) for seed in range(4)]
        return any((mask != masks[0]).any() for mask in masks)

    def counted(self, mask: np.ndarray) -> tuple[int, int]:
        """Return how many elements, or slices of a structured method, ``mask`` removes, and of how many."""
        if self.cls.PRUNING_TYPE == "structured":
            dim = self.options.get("dim", -1) % mask.ndim
            slices = np.moveaxis(mask, dim, 0).reshape(mask.shape[dim], -1)
            assert all(len(set(row.tolist())) == 1 for row in slices), "a slice is removed in part"
            mask = slices[:, 0]
        return int((mask == 0).sum()), mask.size

    def compare(self, layer: Module, other: Module) -> None:
        """Assert that both get the same mask, or as many zeros if the method draws random numbers."""
        actual, expected = self.prune(layer, 0.5), self.prune(other, 0.5)
        if self.draws():
            assert self.counted(actual) == self.counted(expected)
        else:
            np.testing.assert_array_equal(actual, expected)

    # --- the checks ---

    @pytest.mark.parametrize("amount", AMOUNTS)
    def test_as_many_are_removed_as_the_amount_says(self, amount: float) -> None:
        """A float is a fraction, rounded; an integer is a number."""
        mask = self.prune(self.layer(), amount)
        removed, size = self.counted(mask)
        assert removed == (amount if isinstance(amount, int) else round(amount * size))

    def test_masks_are_zeros_and_ones_like_the_weight(self) -> None:
        """The mask has the weight's shape, and values 0 and 1 only."""
        mask = self.prune(self.layer(), 0.5)
        assert mask.shape == self.shape and set(np.unique(mask).tolist()) <= {0, 1}

    @pytest.mark.parametrize("amount", [-0.1, 1.5, -1, 10_000, "half", None])
    def test_amounts_that_make_no_sense_are_refused(self, amount: Any) -> None:  # of no valid type, too
        """A TypeError or ValueError, and the layer is as it was."""
        layer = self.layer()
        before = host(layer.weight).copy()
        with pytest.raises((TypeError, ValueError)):
            self.prune(layer, amount)
        assert list(layer.state_dict()) == ["weight"] and not layer._forward_pre_hooks
        np.testing.assert_array_equal(host(layer.weight), before)

    def test_the_same_weights_have_the_same_mask(self) -> None:
        """With the generator at the same place."""
        expected = self.prune(self.layer(), 0.5)
        np.testing.assert_array_equal(self.prune(self.layer(), 0.5), expected)

    def test_weights_that_lie_transposed_in_memory_have_the_same_mask(self) -> None:
        """Random ones have as many zeros."""
        layer, moved = self.layer(), self.layer()
        moved.weight = Parameter(layer.weight.detach().movedim(0, -1).contiguous().movedim(-1, 0))
        moved.weight.grad = layer.weight.grad
        self.compare(moved, layer)

    def test_float64_weights_have_the_same_mask(self) -> None:
        """The mask depends on the values, not on their dtype; random ones have as many zeros."""
        layer, wide = self.layer(), self.layer(dtype="float64")
        wide.weight = Parameter(layer.weight.detach().double())
        wide.weight.grad = layer.weight.grad.double()
        self.compare(wide, layer)

    def test_pruning_again_removes_more_of_what_is_left(self) -> None:
        """A second mask keeps all zeros of the first, and its amount is one of what was left."""
        layer = self.layer()
        first = self.prune(layer, 0.5)
        second = self.prune(layer, 0.5)
        assert not (second[first == 0]).any(), "what was removed is back"
        removed, size = self.counted(first)
        expected = round(0.5 * size) if self.cls.PRUNING_TYPE == "global" else round(0.5 * (size - removed))
        assert self.counted(second)[0] >= removed
        if self.cls.PRUNING_TYPE != "global":
            assert self.counted(second)[0] == removed + expected

    def test_compute_mask_changes_nothing_that_it_gets(self) -> None:
        """The scores and the mask before are left as they are."""
        layer = self.layer()
        weight, before = layer.weight.detach().clone(), ones_like(layer.weight.detach())
        scores, mask = host(weight).copy(), host(before).copy()
        manual_seed(0)
        self.cls(amount=0.5, **self.options).compute_mask(weight, before)  # type: ignore[call-arg]
        np.testing.assert_array_equal(host(weight), scores)
        np.testing.assert_array_equal(host(before), mask)

    def test_removed_elements_are_zero_and_get_no_gradient(self) -> None:
        """The weight is 0 where the mask is, and so is the gradient of the stored weight."""
        layer = self.layer()
        mask = self.prune(layer, 0.5)
        np.testing.assert_array_equal(host(layer.weight)[mask == 0], 0)
        layer.weight_orig.grad = None
        layer.weight.square().sum().backward()
        gradient = host(layer.weight_orig.grad)
        np.testing.assert_array_equal(gradient[mask == 0], 0)
        assert gradient[mask == 1].all()

    def test_remove_makes_the_mask_permanent(self) -> None:
        """Afterwards the weight is a parameter again, with the zeros in it."""
        layer = self.layer()
        self.prune(layer, 0.5)
        masked = host(layer.weight).copy()
        prune.remove(layer, "weight")
        assert isinstance(layer.weight, Parameter) and list(layer.state_dict()) == ["weight"]
        assert not layer._forward_pre_hooks
        np.testing.assert_array_equal(host(layer.weight), masked)

    def test_masks_are_saved_and_loaded(self) -> None:
        """A layer that was pruned in another way has the weights of the file afterwards."""
        layer, other = self.layer(), self.layer(1)
        self.prune(layer, 0.5)
        self.prune(other, 0.25)
        other.load_state_dict(saved_and_loaded(layer.state_dict()))
        np.testing.assert_array_equal(host(other.weight), host(layer.weight))
