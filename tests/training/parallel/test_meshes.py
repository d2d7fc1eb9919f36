"""Runs whose ranks have parts of the model end with the weights of a run on one rank."""

import numpy as np
import pytest
from divided_runs import settings, weights

pytestmark = pytest.mark.mpi


def check(blocky, whole, ranks, sizes, *options, tolerance=2e-5):
    run = blocky.train("my.toml", *settings(**sizes), *options, ranks=ranks, timeout=120)
    np.testing.assert_allclose(weights(run), whole(*options), rtol=0, atol=tolerance)
    return run


SIZES = [
    pytest.param(2, {"shard": 2}, marks=pytest.mark.slow),
    pytest.param(2, {"tensor": 2}, marks=pytest.mark.slow),
    pytest.param(2, {"pipeline": 2}, marks=pytest.mark.slow),
    pytest.param(2, {"shard": -1, "reshard": "false"}, marks=pytest.mark.slow),
    pytest.param(3, {"shard": 3}, marks=pytest.mark.slow),
    pytest.param(4, {"data": 2, "shard": 2}, marks=pytest.mark.slow),
    pytest.param(4, {"shard": 2, "tensor": 2}, marks=pytest.mark.slow),
    pytest.param(4, {"data": 2, "tensor": 2}, marks=pytest.mark.slow),
    pytest.param(4, {"pipeline": 4, "schedule": "GPipe"}, marks=pytest.mark.slow),
    pytest.param(4, {"pipeline": 2, "tensor": 2}, marks=pytest.mark.slow),
    pytest.param(4, {"pipeline": 2, "shard": 2}, marks=pytest.mark.slow),
    pytest.param(4, {"pipeline": 2, "data": 2, "microbatches": 3}, marks=pytest.mark.slow),
    pytest.param(8, {"pipeline": 2, "shard": 2, "tensor": 2}, marks=pytest.mark.slow),
    pytest.param(8, {"data": 2, "shard": 2, "tensor": 2}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("ranks, sizes", SIZES, ids=str)
def test_the_mesh_does_not_change_the_run(blocky, whole, ranks, sizes):
    """With dropout, clipping, and a last batch of 10 samples."""
    run = check(blocky, whole, ranks, sizes)

    assert run.final["world_size"] == ranks and run.final["samples_seen"] == 140
    assert " x ".join(f"{k} {v}" for k, v in sizes.items() if v == 2 and k == "tensor") in run.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--set", "data_options.masked=true"),
        ("--set", "data_options.train=61", "--set", "model_options.dropout=0.0"),
        ("--set", "clip_grad_norm=0.05"),
        ("--set", "optimizer={name='AdamW', lr=0.001}"),
    ],
    ids=["masked targets", "a batch of one sample", "much clipping", "AdamW"],
)
@pytest.mark.parametrize(
    "ranks, sizes", [(3, {"shard": 3}), (2, {"tensor": 2}), (4, {"pipeline": 2, "shard": 2})], ids=str
)
def test_means_count_each_sample_once(blocky, whole, ranks, sizes, options):
    check(blocky, whole, ranks, sizes, *options, tolerance=2e-4 if "AdamW" in str(options) else 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"shard": 2}, {"tensor": 2}, {"pipeline": 2}], ids=str)
def test_a_model_initialized_in_parts_is_the_one_that_was_built_whole(blocky, whole, sizes):
    check(blocky, whole, 2, {**sizes, "meta": "true"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks, sizes",
    [
        (2, {"tensor": 2}),
        (2, {"shard": 2}),
        (4, {"pipeline": 2, "tensor": 2}),
        (4, {"shard": 2, "tensor": 2}),
    ],
    ids=str,
)
def test_words_with_masked_positions(blocky, whole, ranks, sizes):
    """Attention splits heads by the whole shape, the loss takes scores that are split by words."""
    options = (
        "--set",
        "model=blocky:Words",
        "--set",
        "data=blocky:load_words",
        "--set",
        "parallel.modules=[]",
    )
    one = blocky.train("my.toml", *options).final

    run = check(blocky, whole, ranks, sizes, *options)

    assert run.final["test_accuracy"] == pytest.approx(one["test_accuracy"], abs=0.021)  # of 59 positions
    assert run.final["test_loss"] == pytest.approx(one["test_loss"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks, sizes",
    [
        (2, {"shard": 2, "meta": "true"}),
        (4, {"shard": 4, "reshard": "false"}),
        (4, {"data": 2, "shard": 2}),
        (2, {"data": 2}),
    ],
    ids=str,
)
def test_deterministic_runs_have_the_same_bits(blocky, ranks, sizes):
    """Weights and metrics, those of one rank that has the whole model; evaluated in batches of uneven parts."""
    options = ("--set", "deterministic=world", "--set", "eval_batch_size=7")
    one = blocky.train("my.toml", *options)

    run = blocky.train("my.toml", *settings(**sizes), *options, ranks=ranks)

    np.testing.assert_array_equal(weights(run), weights(one))
    varying = ("time", "samples_per_second", "seconds", "world_size")
    kept = [[{k: v for k, v in m.items() if k not in varying} for m in each.metrics] for each in (run, one)]
    assert kept[0] == kept[1]


@pytest.mark.slow
def test_a_last_batch_with_fewer_samples_than_logical_shards_is_refused(blocky):
    options = ("--set", "deterministic=world", "--set", "data_options.train=62")

    run = blocky.train("my.toml", *settings(shard=2), *options, ranks=2)

    assert run.code == 2 and "the last batch of 62 samples in batches of 20 has 2: all ranks" in run.err


@pytest.mark.slow
def test_accumulation_changes_only_memory(blocky, whole):
    run = blocky.train("my.toml", *settings(shard=2), "--set", "accumulate=3", ranks=2)

    np.testing.assert_allclose(weights(run), whole(), rtol=0, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"shard": 2}, {"tensor": 2}, {"pipeline": 2}], ids=str)
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_autocast_and_scaled_losses(blocky, whole, sizes, kind):
    run = blocky.train("my.toml", *settings(**sizes), "--set", f"autocast={kind}", ranks=2)

    assert np.abs(weights(run) - whole("--set", f"autocast={kind}")).max() < 0.05
    assert run.final["test_loss"] < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("sizes, ranks", [({"shard": 3}, 3), ({"shard": 2, "tensor": 2}, 4)], ids=str)
def test_batch_norm_over_all_shares(blocky, whole, sizes, ranks):
    """Also where the last batch has fewer samples than shares."""
    options = ("--set", "model_options.normalised=true", "--set", "data_options.train=62")
    synchronized = (*options, "--set", "data_parallel.sync_batch_norm=true")

    run = blocky.train("my.toml", *settings(**sizes), *synchronized, "--set", "epochs=1", ranks=ranks)

    np.testing.assert_allclose(weights(run), whole(*options, "--set", "epochs=1"), rtol=0, atol=5e-5)
