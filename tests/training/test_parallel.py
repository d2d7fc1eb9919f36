"""``[data_parallel]`` and ``autocast`` of ``tenon train``: their effects, and errors that name the setting."""

import numpy as np
import pytest

from tenon.errors import ConfigError
from tenon.serialize.checkpoint import read_latest
from tenon.training.config import resolve
from tenon.training.data_parallel import find_hook

BASE = {"model": "m:Net", "data": "m:load"}
NORMALISED = """
import small
from tenon import nn


class Net(small.Net):
    def __init__(self):
        super().__init__()
        self.layers.insert(1, nn.BatchNorm1d(16))
"""


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"comm_hook": "bf61"}, "data_parallel.comm_hook = 'bf61': .* Did you mean 'bf16'?"),
        (
            {"comm_hook": "powersgd", "comm_hook_options": {"rank": 2}},
            "unknown key 'data_parallel.comm_hook_options.rank'. ",
        ),
        (
            {"comm_hook": "powersgd", "comm_hook_options": {"start_powerSGD_iter": 1}},
            "data_parallel.comm_hook_options = .*start_powerSGD_iter` > 1",
        ),
        (
            {"comm_hook": "bf16", "comm_hook_options": {"rank": 2}},
            "data_parallel.comm_hook_options.*no options",
        ),
        (
            {"comm_hook_options": {"rank": 2}},
            "data_parallel.comm_hook_options = .* without data_parallel.comm_h",
        ),
        ({"sync_batchnorm": True}, "unknown key 'data_parallel.sync_batchnorm'. Did .*sync_batch_norm'"),
        ({"shard_optimizer": "some"}, "data_parallel.shard_optimizer = 'some'"),
        ({"bucket_cap_mb": 0}, "data_parallel.bucket_cap_mb = 0"),
    ],
)
def test_a_mistake_is_named_by_its_path(section, words):
    with pytest.raises(ConfigError, match=words):
        find_hook(resolve([BASE, {"data_parallel": section}]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data_parallel": {"sync_batch_norm": True}}, "data_parallel.*sync_batch_norm would undo"),
        ({"data_parallel": {"comm_hook": "bf16"}}, "data_parallel.*comm_hook would undo"),
        ({"autocast": "float16"}, "autocast = 'float16': .*use bfloat16"),
    ],
)
def test_what_makes_bits_depend_on_ranks_is_refused_where_they_must_not(settings, words):
    with pytest.raises(ConfigError, match=words):
        resolve([BASE, {"deterministic": "world", **settings}])


@pytest.mark.slow
@pytest.mark.mpi
def test_batch_norm_over_all_ranks_is_that_of_one_also_where_a_rank_has_no_sample(project):
    (project.folder / "normalised.py").write_text(NORMALISED)
    # Not Adam: it would blow up the rounding in the gradient of a bias before batch norm, which is 0.
    options = (
        "--set",
        "model=normalised:Net",
        "--set",
        "data_options.train=82",
        "--set",
        "optimizer.name=SGD",
    )

    one = project.train("my.toml", *options)
    three = project.train("my.toml", *options, "--set", "data_parallel.sync_batch_norm=true", ranks=3)

    np.testing.assert_allclose(three.weights(), one.weights(), rtol=0, atol=5e-5)


@pytest.mark.slow
@pytest.mark.mpi
def test_a_sharded_optimizer_changes_no_bit_and_goes_on_with_any_number_of_ranks(project, finished):
    shard = ("--set", "data_parallel.shard_optimizer=true")

    plain = finished("my.toml", ranks=2)
    sharded = project.train("my.toml", *shard, "--set", "epochs=2", ranks=2)
    resumed = project.resume(sharded, *shard, "--set", "epochs=3", ranks=2)

    np.testing.assert_array_equal(resumed.weights(), plain.weights())
    assert project.resume(resumed, "--set", "epochs=4").final["epoch"] == 4


@pytest.mark.slow
@pytest.mark.mpi
def test_gradients_are_sent_by_the_hook_that_is_named(project):
    hook = ("--set", "data_parallel.comm_hook=powersgd")

    half = project.train("my.toml", "--set", "data_parallel.comm_hook=bf16", ranks=2)
    thin = project.train(
        "my.toml",
        *hook,
        "--set",
        "data_parallel.comm_hook_options={matrix_approximation_rank = 2, start_powerSGD_iter = 2}",
        ranks=2,
    )

    assert half.final["test_accuracy"] > 0.6 and thin.final["test_accuracy"] > 0.5
    difference = np.abs(half.weights() - thin.weights()).max()
    assert 1e-4 < difference < 0.5


@pytest.mark.slow
@pytest.mark.mpi
def test_losses_in_16_bits_are_scaled_over_passes_and_ranks(project):
    options = ("--set", "autocast=float16", "--set", "clip_grad_norm=1.0", "--set", "accumulate=3")

    full = project.train("my.toml", "--set", "clip_grad_norm=1.0")
    two = project.train("my.toml", *options, ranks=2)

    np.testing.assert_allclose(two.weights(), full.weights(), rtol=0, atol=0.05)
    assert np.abs(two.weights() - full.weights()).max() > 1e-5
    _, saved = read_latest(two.folder / "checkpoints")
    assert saved["scaler"]["scale"] >= 1.0
