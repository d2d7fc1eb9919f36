"""Conformance of recipes: subclass, name the recipe, and pytest runs every check.

::

    class TestDigits(RecipeSuite):
        recipe = "digits"
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from tenon.data.collate import fetch
from tenon.data.dataset import Splits
from tenon.distributed.replicas.accumulation import Loss, sum_and_count
from tenon.engine.types import Nested
from tenon.nn.module import Module
from tenon.random import manual_seed
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor
from tenon.testing.assertions import assert_same, host
from tenon.training.config import RunConfig, resolve
from tenon.training.recipe import (
    Recipe,
    build_data,
    build_loss,
    build_model,
    build_optimizer,
    build_scheduler,
    recipe_named,
)
from tenon.training.step import unpack


class RecipeSuite:
    """Checks of ``recipe``: the NAME of ``tenon train NAME``."""

    #: The recipe under test.
    recipe: ClassVar[str] = ""
    #: Settings besides its defaults, as ``--set`` gives them: a smaller model, fewer data.
    settings: ClassVar[Mapping[str, object]] = {}
    #: Steps on one batch, after which its loss has to be smaller.
    steps: ClassVar[int] = 10
    #: Samples of that batch.
    samples: ClassVar[int] = 16

    # --- helpers of the checks ---

    @property
    def found(self) -> Recipe:
        """The recipe."""
        return recipe_named(self.recipe)

    @property
    def config(self) -> RunConfig:
        """The configuration of ``tenon train NAME`` with ``settings``."""
        return resolve([dict(self.found.defaults), {"recipe": self.recipe}, dict(self.settings)])

    @functools.cached_property
    def data(self) -> Splits:
        """The data, built once for the checks that only read them."""
        return build_data(self.config, self.found)

    def model(self, seed: int = 0) -> Module:
        """Build the model, with the generator at ``seed``."""
        manual_seed(seed)
        return build_model(self.config, self.found)

    def batch(self) -> tuple[Nested, Nested]:
        """Return the inputs and targets of the first samples."""
        return unpack(fetch(self.data.train, range(min(self.samples, len(self.data.train)))))

    def loss_of(self, model: Module, loss: Loss) -> Tensor:
        """The mean loss of ``model`` over the batch."""
        inputs, targets = self.batch()
        total, count = sum_and_count(loss, model(inputs), targets)
        return total / count

    # --- the checks ---

    def test_the_defaults_are_a_configuration(self) -> None:
        """The settings are known and valid, and so are options of model, data, optimizer and schedule."""
        config = self.config
        model = self.model()
        build_loss(config)
        steps = math.ceil(len(self.data.train) / config.batch_size) * config.epochs
        build_scheduler(config, build_optimizer(config, model), steps)

    def test_it_is_described(self) -> None:
        """``summary`` is a line."""
        assert self.found.summary.strip() and "\n" not in self.found.summary

    def test_data_are_pairs_to_train_and_to_test(self) -> None:
        """Both parts have samples, which are pairs of input and target."""
        for name, part in (("train", self.data.train), ("test", self.data.test)):
            assert len(part) > 0, f"no samples in {name}"
            for index in (0, len(part) - 1):
                unpack(fetch(part, [index]))

    def test_data_are_the_same_each_time(self) -> None:
        """Ranks build their data by themselves: all must have the same samples in the same order."""
        again = build_data(self.config, self.found)
        for mine, other in ((self.data.train, again.train), (self.data.test, again.test)):
            assert len(mine) == len(other)
            for index in {0, len(mine) // 2, len(mine) - 1}:
                _assert_equal(fetch(mine, [index]), fetch(other, [index]))

    def test_test_samples_are_not_those_of_training(self) -> None:
        """Of ten test samples at least one is not among the first 5,000 of training."""
        train, test = self.data.train, self.data.test
        known = {_bytes(fetch(train, [index])) for index in range(min(len(train), 5000))}
        chosen = sorted({len(test) * part // 10 for part in range(10)})
        assert not all(_bytes(fetch(test, [index])) in known for index in chosen), (
            "test samples are trained on"
        )

    def test_the_seed_decides_the_weights(self) -> None:
        """Equal seeds give equal weights, and another seed others."""
        first, second, third = (self.model(seed).state_dict() for seed in (0, 0, 1))
        assert list(first) == list(second) and first, "the model has no state"
        for name, value in first.items():
            np.testing.assert_array_equal(host(second[name]), host(value), err_msg=name)
        assert any((host(third[name]) != host(value)).any() for name, value in first.items())

    def test_every_parameter_gets_a_gradient(self) -> None:
        """One backward pass reaches all parameters that are trained, with finite numbers."""
        model = self.model().train()
        self.loss_of(model, build_loss(self.config)).backward()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, f"{name} has no gradient"
                assert np.isfinite(host(parameter.grad)).all(), f"the gradient of {name} is not finite"

    def test_steps_on_a_batch_lower_its_loss(self) -> None:
        """The configured optimizer fits ``samples`` samples better after ``steps`` steps."""
        model, loss = self.model().train(), build_loss(self.config)
        optimizer = build_optimizer(self.config, model)
        before = self._evaluated(model, loss)
        for _ in range(self.steps):
            optimizer.zero_grad()
            self.loss_of(model, loss).backward()
            optimizer.step()
        after = self._evaluated(model, loss)
        assert after < before, f"the loss was {before} and is {after}"

    def test_evaluation_is_repeatable(self) -> None:
        """In evaluation mode, the same inputs have the same outputs, and change nothing of the model."""
        model, loss = self.model(), build_loss(self.config)
        state = {name: host(value).copy() for name, value in model.state_dict().items()}
        assert self._evaluated(model, loss) == self._evaluated(model, loss)
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(host(value), state[name], err_msg=name)

    def _evaluated(self, model: Module, loss: Loss) -> float:
        was_training = model.training
        model.eval()
        with no_grad():
            value = float(self.loss_of(model, loss))
        model.train(was_training)
        return value


def _flat(value: Any) -> list[np.ndarray]:  # a sample of any structure
    if isinstance(value, Mapping):
        return [array for each in value.values() for array in _flat(each)]
    if isinstance(value, (tuple, list)):
        return [array for each in value for array in _flat(each)]
    return [host(value)]


def _bytes(value: Nested) -> bytes:
    return b"".join(array.tobytes() for array in _flat(value))


def _assert_equal(a: Nested, b: Nested) -> None:
    for one, other in zip(_flat(a), _flat(b), strict=True):
        assert_same(one, other, where="a sample differs between two builds")
