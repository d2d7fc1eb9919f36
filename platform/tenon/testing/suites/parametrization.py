"""Conformance of parametrizations: subclass, name the parametrization, and pytest runs every check.

::

    class TestPositive(ParametrizationSuite):
        parametrization = "positive"

        def holds(self, weight):
            return (weight > 0).all()

A parametrization is a function ``attach(module, name="weight", **options)``, or a module class, which is then
registered by ``register_parametrization(module, name, cls(**options))``.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.utils import parametrize
from tenon.optim.optimizer import Optimizer
from tenon.plugins import registry
from tenon.random import manual_seed
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.tensor import Tensor
from tenon.testing.assertions import host
from tenon.testing.suites.files import saved_and_loaded


class ParametrizationSuite:
    """Checks of ``parametrization``: a name of ``tenon.nn.utils.parametrizations``, a function or a class."""

    #: The parametrization under test.
    parametrization: ClassVar[str | Callable[..., object]] = ""
    #: Options besides the module and the name.
    options: ClassVar[Mapping[str, Any]] = {}  # as the parametrization states
    #: The shape of the weight.
    shape: ClassVar[tuple[int, int]] = (4, 3)
    #: Whether a weight that is parametrized, or assigned, keeps its value: ``right_inverse`` is exact.
    keeps_value: ClassVar[bool] = True
    #: Whether the weight is the same each time that it is read in evaluation mode.
    is_function: ClassVar[bool] = True

    def holds(self, weight: np.ndarray) -> bool:
        """Whether ``weight`` has the property that the parametrization is for; to be overridden."""
        pytest.skip(f"{type(self).__name__} defines no holds(weight) to check weights with")

    # --- helpers of the checks ---

    def layer(self, seed: int = 0) -> Linear:
        """Create a linear layer of float64 with a weight of ``shape``, with values from ``seed``."""
        rows, columns = self.shape
        layer = Linear(columns, rows, dtype=None).double()
        values = np.random.default_rng(seed).standard_normal(self.shape)
        layer.weight = Parameter(from_numpy(values))
        return layer

    def attach(self, layer: Module) -> Module:
        """Parametrize ``layer.weight``; return ``layer``."""
        manual_seed(0)
        found = inspect.getattr_static(self, "parametrization")  # a function would become a method
        found = found.__func__ if isinstance(found, staticmethod) else found
        if isinstance(found, str):
            found = registry.resolve("parametrizations", found)
        if isinstance(found, type):
            parametrize.register_parametrization(layer, "weight", found(**self.options))
        else:
            found(layer, "weight", **self.options)
        return layer

    def attached(self, seed: int = 0) -> Any:  # a Module whose attributes are tensors
        """Create a layer with a parametrized weight, in evaluation mode."""
        return self.attach(self.layer(seed)).eval()

    def originals(self, layer: Module) -> list[Tensor]:
        """Return the stored tensors that are trained."""
        return [p for name, p in layer.named_parameters() if name.startswith("parametrizations.weight.")]

    # --- the checks ---

    def test_the_weight_has_the_property(self) -> None:
        """``holds`` is true of the weight, and still after steps of an optimizer."""
        layer = self.attached()
        assert self.holds(host(layer.weight))
        layer.train()
        optimizer = registry.resolve_class("optimizers", "SGD", Optimizer)(layer.parameters(), lr=0.1)
        inputs = from_numpy(np.random.default_rng(1).standard_normal((5, self.shape[1])))
        for _ in range(5):
            optimizer.zero_grad()
            layer(inputs).square().sum().backward()
            optimizer.step()
        layer.eval()
        assert self.holds(host(layer.weight)), "not after training"

    def test_the_value_is_kept(self) -> None:
        """A weight has the value that it had before, unless ``keeps_value`` is False."""
        if not self.keeps_value:
            pytest.skip("keeps_value is False")
        layer = self.layer()
        before = host(layer.weight).copy()
        np.testing.assert_allclose(host(self.attach(layer).eval().weight), before, rtol=1e-8, atol=1e-10)

    def test_a_value_that_is_assigned_is_taken(self) -> None:
        """What the weight of another layer is can be assigned, and is the weight then."""
        if not self.keeps_value:
            pytest.skip("keeps_value is False")
        layer, value = self.attached(), host(self.attached(1).weight).copy()
        layer.weight = from_numpy(value)
        np.testing.assert_allclose(host(layer.weight), value, rtol=1e-8, atol=1e-10)

    def test_shape_and_dtype_are_those_of_the_weight(self) -> None:
        """Also after the layer was converted to float32."""
        layer = self.attached()
        assert tuple(layer.weight.shape) == self.shape and host(layer.weight).dtype == np.float64
        layer.float()
        assert tuple(layer.weight.shape) == self.shape and host(layer.weight).dtype == np.float32

    def test_gradients_are_those_of_the_formula(self) -> None:
        """The gradients of the stored tensors are those that differences of the weight give."""
        layer = self.attached()
        weights = from_numpy(np.random.default_rng(2).standard_normal(self.shape))
        (layer.weight * weights).sum().backward()
        assert self.originals(layer), "no stored tensor is a parameter"
        for number, original in enumerate(self.originals(layer)):
            assert original.grad is not None, f"original{number} has no gradient"
            expected = _slopes(functools.partial(_projection, layer, weights), original)
            np.testing.assert_allclose(host(original.grad), expected, rtol=1e-4, atol=1e-6)

    def test_the_weight_follows_the_stored_tensors(self) -> None:
        """A change of a stored tensor shows in the weight that is read next."""
        layer = self.attached()
        before = host(layer.weight).copy()
        values = np.random.default_rng(3).standard_normal
        for original in self.originals(layer):
            original.data = original.detach() + from_numpy(values(tuple(original.shape)))
        assert (host(layer.weight) != before).any()

    def test_reading_changes_nothing(self) -> None:
        """In evaluation mode, the weight is the same when it is read again."""
        if not self.is_function:
            pytest.skip("is_function is False")
        layer = self.attached()
        state = {name: host(value).copy() for name, value in layer.state_dict().items()}
        np.testing.assert_array_equal(host(layer.weight), host(layer.weight))
        for name, value in layer.state_dict().items():
            np.testing.assert_array_equal(host(value), state[name], err_msg=name)

    def test_state_is_saved_and_loaded(self) -> None:
        """A layer that loads the file has the same weight."""
        layer, other = self.attached(), self.attached(1)
        other.load_state_dict(saved_and_loaded(layer.state_dict()))
        np.testing.assert_allclose(host(other.weight), host(layer.weight), rtol=1e-12)

    def test_copies_are_independent(self) -> None:
        """A deep copy has the same weight, and keeps it when the original changes."""
        layer = self.attached()
        other = copy.deepcopy(layer)
        before = host(layer.weight).copy()
        for original in self.originals(layer):
            original.data = original.detach() * 2 + 1
        np.testing.assert_array_equal(host(other.weight), before)

    def test_removal_leaves_the_weight(self) -> None:
        """Without its parametrization the layer has a parameter of the same value."""
        layer = self.attached()
        before = host(layer.weight).copy()
        parametrize.remove_parametrizations(layer, "weight")
        assert isinstance(layer.weight, Parameter) and sorted(layer.state_dict()) == ["bias", "weight"]
        np.testing.assert_array_equal(host(layer.weight), before)

    def test_a_name_that_is_not_there_is_refused(self) -> None:
        """An error, and the module is as it was."""
        module = Module()
        module.bias = Parameter(from_numpy(np.ones(3)))
        with pytest.raises((ValueError, AttributeError)):
            self.attach(module)
        assert list(module.state_dict()) == ["bias"] and list(module.children()) == []


def _projection(layer: Any, weights: Tensor) -> float:  # its weight is a tensor
    return float((layer.weight * weights).sum())


def _slopes(value: Callable[[], float], x: Tensor, step: float = 1e-5) -> np.ndarray:
    """The derivative of ``value`` by each element of ``x``, by differences."""
    kept = host(x.detach()).copy()
    result = np.zeros_like(kept)
    for index in np.ndindex(kept.shape):
        found = []
        for sign in (1, -1):
            moved = kept.copy()
            moved[index] += sign * step
            x.data = from_numpy(moved)
            found.append(value())
        result[index] = (found[0] - found[1]) / (2 * step)
    x.data = from_numpy(kept)
    return result
