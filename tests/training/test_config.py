"""Configurations: what is refused, and how the refusal helps."""

import numpy as np
import pytest

import tenon
from tenon.data.dataset import as_splits
from tenon.errors import ConfigError, DataError
from tenon.training.config import read_file, read_override, resolve

BASE = {"model": "m:Net", "data": "m:load"}


def refused(*layers):
    with pytest.raises(ConfigError) as caught:
        resolve([BASE, *layers])
    return str(caught.value)


def test_later_layers_win_key_by_key():
    config = resolve(
        [BASE, {"optimizer": {"name": "SGD", "lr": 0.1, "momentum": 0.9}}, read_override("optimizer.lr=0.01")]
    )

    assert config.optimizer.name == "SGD"
    assert config.optimizer.options() == {"lr": 0.01, "momentum": 0.9}


def test_another_optimizer_does_not_inherit_options():
    config = resolve(
        [
            BASE,
            {"optimizer": {"name": "SGD", "lr": 0.1, "momentum": 0.9}},
            {"optimizer": {"name": "Adam", "lr": 1e-3}},
        ]
    )

    assert config.optimizer.options() == {"lr": 1e-3}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("epochs=3", 3),
        ("log.tensorboard=false", False),
        ("loss=mse_loss", "mse_loss"),
        ("clip_grad_norm = 0.5", 0.5),
    ],
)
def test_overrides_are_toml_values_or_plain_strings(text, value):
    layer = read_override(text)
    while isinstance(layer, dict):
        (layer,) = layer.values()

    assert layer == value


@pytest.mark.parametrize("text", ["epochs", "=3", "a..b=1"])
def test_an_override_without_key_or_value_is_refused(text):
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        read_override(text)


def test_an_unknown_key_is_refused_with_the_nearest():
    assert refused({"epoch": 3}) == "unknown key 'epoch'. Did you mean 'epochs'?"


def test_an_unknown_nested_key_is_refused_with_its_path():
    assert (
        refused({"checkpoint": {"evry": 3}})
        == "unknown key 'checkpoint.evry'. Did you mean 'checkpoint.every'?"
    )


def test_a_bad_value_is_refused_with_its_path_and_value():
    assert refused({"batch_size": 0}) == "batch_size = 0: Input should be greater than or equal to 1"
    assert refused({"scheduler": {"name": "StepLR", "per": "minute"}}).startswith(
        "scheduler.per = 'minute': "
    )


def test_a_target_without_a_colon_is_refused():
    assert refused({"model": "just_a_name"}) == "model = 'just_a_name': expected \"package.module:name\""


def test_neither_recipe_nor_model_is_refused():
    with pytest.raises(ConfigError, match="names no model and data"):
        resolve([{}])


def test_data_may_be_arrays():
    x, y = np.ones((5, 2), np.float32), tenon.arange(5)

    splits = as_splits(((x[:3], y[:3]), [(x[3], 3), (x[4], 4)]), "data = 'small:load'")

    assert [len(part) for part in (splits.train, splits.test)] == [3, 2]
    assert splits.train[2][1].item() == 2
    with pytest.raises(DataError, match=r"first axes must agree, got \[\[5, 2\], \[4\]\]"):
        as_splits({"train": (x, y[:4]), "test": splits.test}, "data = 'small:load'")


def test_files_that_are_missing_or_broken(tmp_path):
    with pytest.raises(ConfigError, match="no configuration file"):
        read_file(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text("epochs = = 3")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        read_file(tmp_path / "broken.toml")
