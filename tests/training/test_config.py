"""Configurations: errors, and their advice."""

import numpy as np
import pytest

import tenon
from tenon.data.dataset import as_splits
from tenon.errors import ConfigError, DataError
from tenon.training import command
from tenon.training.config import resolve
from tenon.training.layers import read_file, read_override
from tenon.training.recipe import Recipe, build_data, build_loss, build_model, build_scheduler

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


@pytest.mark.parametrize("name", [".m:Net", "m..n:Net", "m:", ":Net", "m:Net:x", "m m:Net", "m:Net."])
@pytest.mark.parametrize("key", ["model", "data", "loss"])
def test_a_target_that_is_no_name_in_a_module_is_refused(key, name):
    assert refused({key: name}) == f'{key} = {name!r}: expected "package.module:name"'


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


ABSURD = {
    "seed=" + "9" * 5000: "--set seed = ",
    "seed=-1" + "0" * 30: "seed = -1" + "0" * 30 + ": does not fit in 64 bits",
    "batch_size=1" + "0" * 30: "batch_size = 1" + "0" * 30 + ": does not fit in 64 bits",
    "model_options.width=[1, 1"
    + "0" * 99
    + "]": "model_options.width = an integer of 329 bits: does not fit",
    "optimizer.lr=nan": "optimizer.lr = nan: is not a number",
    "optimizer.lr=1e999": "optimizer.lr = inf: must be finite",
    "seed=9223372036854775807": "seed = 9223372036854775807: Input should be less than or equal to",
    "accumulate=9223372036854775807": "accumulate = 9223372036854775807: must be at most batch_size = 64",
    "threads=2147483648": "threads = 2147483648: Input should be less than or equal to 4096",
    "epochs=-1": "epochs = -1: ",
    "epochs=true": "epochs = True: Input should be a valid integer",
    'batch_size="3"': "batch_size = '3': Input should be a valid integer",
    'log.every="3"': "log.every = '3': Input should be a valid integer",
    "data_parallel.bucket_cap_mb=inf": "data_parallel.bucket_cap_mb = inf: Input should be a finite number",
    "data_parallel.bucket_cap_mb=true": "data_parallel.bucket_cap_mb = True: Input should be a valid number",
    "model_options.x=" + "[" * 3000 + "]" * 3000: "--set model_options.x = '[[[",
    "model_options"
    + ".a" * 3000
    + "=1": "--set model_options.a.a.a...: more than 32 levels deep, the limit.",
}


@pytest.mark.parametrize("text", ABSURD, ids=lambda text: text[:30])
def test_an_absurd_override_is_refused_in_one_line_with_its_path(text):
    with pytest.raises(ConfigError) as caught:
        resolve([BASE, read_override(text)])

    message = str(caught.value)
    assert message.startswith(ABSURD[text])
    assert "\n" not in message and len(message) < 300


HOSTILE = {
    b"z=" + b"[" * 5000 + b"]" * 5000: "nested more than 32 levels deep, the limit (at line 1)",
    b"\nz=" + b"{a=" * 5000 + b"1" + b"}" * 5000: "nested more than 32 levels deep, the limit (at line 2)",
    b"a." * 5000 + b"a=1": "nested more than 32 levels deep",
    b"[" + b"a." * 5000 + b"a]\nb=1": "nested more than 32 levels deep",
    b"#\xff": "is not valid TOML: 'utf-8' codec",
    b"\nseed=" + b"9" * 5000: "a number of 5,000 digits, more than 4,300, the limit (at line 2)",
    b"a" * (1 << 21): "is longer than a configuration may be",
}


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: repr(content[:12]))
def test_a_hostile_file_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "run.toml").write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        read_file(tmp_path / "run.toml")

    assert HOSTILE[content] in str(caught.value) and "\n" not in str(caught.value)


def test_brackets_and_dots_of_strings_and_comments_are_not_nesting(tmp_path):
    text = f'loss = "{"[" * 99}" # {"." * 99}{"{" * 99}\noutput = \'{"a." * 99}\'\nx = """{"[" * 99}"\n"""'
    (tmp_path / "run.toml").write_text(text)

    assert read_file(tmp_path / "run.toml")["loss"] == "[" * 99


def test_a_folder_is_not_a_configuration_file(tmp_path):
    with pytest.raises(ConfigError, match="Is a directory"):
        read_file(tmp_path)


def test_a_size_that_the_model_refuses_is_named_by_its_path():
    def net(width=3, depth=2):
        return tenon.nn.Sequential(*(tenon.nn.Linear(width, width) for _ in range(depth)))

    recipe = Recipe(model=net, data=lambda: None)
    config = resolve([{"recipe": "net"}, {"model_options": {"width": -1, "depth": 3}}])

    with pytest.raises(ConfigError, match=r"^model_options.width = -1: .*negative dimension.* line \d+\)$"):
        build_model(config, recipe)


@pytest.mark.parametrize("period", [-0.0, 0, -1])
def test_a_schedule_without_a_period_is_refused(period):
    section = {"name": "CosineAnnealingLR", "T_max": period}
    config = resolve([BASE, {"scheduler": section}])
    optimizer = tenon.optim.SGD([tenon.ones(1, requires_grad=True)], lr=0.1)

    with pytest.raises(ConfigError, match=rf"scheduler\.T_max = {period}: must be at least 1"):
        build_scheduler(config, optimizer, 10)

    config = resolve([BASE, {"scheduler": {"name": "StepLR", "step_size": int(period)}}])
    with pytest.raises(ConfigError, match=rf"scheduler\.step_size = {int(period)}: must be at least 1"):
        build_scheduler(config, optimizer, 10)


def test_a_class_that_is_no_data_set_pair_is_refused_before_it_is_called():
    config = resolve([{"model": "tenon.nn:Linear", "data": "tenon.data:TensorDataset"}])

    with pytest.raises(ConfigError, match="names a class, TensorDataset"):
        build_data(config, None)


def test_the_recipe_and_the_loss_have_to_be_what_they_are_named_for(tmp_path):
    (tmp_path / "run.toml").write_text("recipe = true")
    with pytest.raises(ConfigError, match="recipe = True: must be the name of a recipe"):
        command.resolve(str(tmp_path / "run.toml"), (), None)
    with pytest.raises(ConfigError, match="unknown loss '__name__'"):
        build_loss(resolve([BASE, {"loss": "__name__"}]))
