"""The recipe that comes with tenon passes ``RecipeSuite``, and each of its checks finds a planted bug."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.data import Splits, TensorDataset
from tenon.errors import TenonError
from tenon.extend import Recipe, hookimpl
from tenon.plugins.manager import host
from tenon.testing import RecipeSuite


class TestDigits(RecipeSuite):
    recipe = "digits"
    settings: ClassVar = {"model_options": {"width": 4}}


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return self.layers(x)


def load(count=40):
    random = np.random.default_rng(0)
    x = random.standard_normal((count, 4)).astype(np.float32)
    x, y = torch.from_numpy(x), torch.from_numpy(x[:, :3].argmax(1))
    return Splits(TensorDataset(x[:30], y[:30]), TensorDataset(x[30:], y[30:]))


GOOD = {
    "model": Net,
    "data": load,
    "defaults": {"epochs": 2, "optimizer": {"name": "Adam"}},
    "summary": "rows",
}


class TestGood(RecipeSuite):
    recipe = "planted"

    @pytest.fixture(autouse=True)
    def _registered(self):
        with planted():
            yield


class planted:
    """A plugin with the recipe ``GOOD``, of which some parts are others."""

    def __init__(self, **parts):
        self.recipe = Recipe(**{**GOOD, **parts})

    def __enter__(self):
        recipe = self.recipe

        class Plugin:
            @hookimpl
            def tenon_recipes(self):
                return {"planted": recipe}

        self.plugin = Plugin()
        host().register(self.plugin, "planted")

    def __exit__(self, *error):
        host().unregister(self.plugin)


def shuffled():
    splits = load()
    order = torch.from_numpy(np.random.permutation(30))
    return Splits(TensorDataset(*(t[order] for t in splits.train.tensors)), splits.test)


def leaking():
    splits = load()
    return Splits(splits.train, TensorDataset(*(t[:10] for t in splits.train.tensors)))


def alone():
    splits = load()
    return Splits(TensorDataset(splits.train.tensors[0]), splits.test)


class Frozen(Net):
    def __init__(self):
        super().__init__()
        random = np.random.default_rng(0)
        for p in self.parameters():
            p.data = torch.from_numpy(random.standard_normal(tuple(p.shape)).astype(np.float32))


class Unseeded(Net):
    def __init__(self):
        super().__init__()
        self.layers[0].bias.data = torch.from_numpy(np.random.standard_normal(8).astype(np.float32))


class Unused(Net):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)


class Rising(Net):
    def forward(self, x):
        return -super().forward(x).detach() + 0 * super().forward(x)


class Noisy(Net):
    def forward(self, x):
        return super().forward(x) + torch.randn(3)


class Learning(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return super().forward(x)


@pytest.mark.parametrize(
    ("parts", "check"),
    [
        ({"defaults": {"optimizer": {"name": "Adam", "rate": 1.0}}}, "test_the_defaults_are_a_configuration"),
        ({"defaults": {"model_options": {"depth": 3}}}, "test_the_defaults_are_a_configuration"),
        ({"defaults": {"epoch": 3}}, "test_the_defaults_are_a_configuration"),
        ({"summary": ""}, "test_it_is_described"),
        ({"data": alone}, "test_data_are_pairs_to_train_and_to_test"),
        ({"data": shuffled}, "test_data_are_the_same_each_time"),
        ({"data": leaking}, "test_test_samples_are_not_those_of_training"),
        ({"model": Frozen}, "test_the_seed_decides_the_weights"),
        ({"model": Unseeded}, "test_the_seed_decides_the_weights"),
        ({"model": Unused}, "test_every_parameter_gets_a_gradient"),
        ({"model": Rising}, "test_steps_on_a_batch_lower_its_loss"),
        ({"model": Noisy}, "test_evaluation_is_repeatable"),
        ({"model": Learning}, "test_evaluation_is_repeatable"),
    ],
)
def test_planted_bugs_are_found(parts, check):
    class Suite(RecipeSuite):
        recipe = "planted"

    with planted(**parts), pytest.raises((AssertionError, TypeError, TenonError, pytest.fail.Exception)):
        getattr(Suite(), check)()
