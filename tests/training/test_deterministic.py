"""`tenon train` with deterministic = "world": the same bits on any number of ranks, also when resumed on others."""

import hashlib
import re
import shutil

import pytest

from tenon.errors import ConfigError
from tenon.serialize.checkpoint import checkpoints, read_latest
from tenon.training.config import resolve

BASE = {"model": "m:Net", "data": "m:load", "deterministic": "world"}
OPTIONS = [
    "deterministic=world",
    "data_options.noisy=true",
    "model_options.dropout=0.3",
    "clip_grad_norm=0.5",
    "scheduler={name='CosineAnnealingLR'}",
    "checkpoint={steps=2, keep=50}",
]
SET = [part for option in OPTIONS for part in ("--set", option)]


def digest(run):
    assert run.code == 0, run.err
    _, saved = read_latest(run.folder / "checkpoints")
    found = hashlib.sha256()
    for name, value in saved["model"].items():
        found.update(name.encode() + value.numpy().tobytes())
    return found.hexdigest(), run.final["test_loss"]


@pytest.mark.slow
@pytest.mark.mpi
def test_runs_resumed_on_1_2_and_4_ranks_end_as_the_uninterrupted_one(project):
    source = project.folder / "small.py"
    source.write_text(source.read_text().replace("nn.ReLU()", "nn.BatchNorm1d(16), nn.ReLU()"))
    whole = project.train("my.toml", *SET, ranks=2)
    expected = digest(whole)

    for ranks in (1, 2, 4):
        saved = {
            int(re.sub(r"\D", "", path.stem)): path for path in checkpoints(whole.folder / "checkpoints")
        }
        begun = project.folder / f"resumed-{ranks}"
        shutil.copytree(whole.folder, begun, ignore=shutil.ignore_patterns("checkpoints"))
        (begun / "checkpoints").mkdir()
        shutil.copy(saved[2 * ranks], begun / "checkpoints")
        spread = ["--set", "data_parallel.shard_optimizer=true"] if ranks == 4 else []
        resumed = project.train("--resume", str(begun), *spread, ranks=ranks)
        resumed.folder = begun
        assert resumed.final["world_size"] == ranks
        assert digest(resumed) == expected


def refused(**options):
    with pytest.raises(ConfigError) as caught:
        resolve([{**BASE, **options}])
    return str(caught.value)


def test_settings_that_do_not_suit_are_refused_by_their_path():
    assert refused(batch_size=50) == "batch_size = 50: must be a multiple of shards = 4"
    assert refused(shards=3) == "batch_size = 64: must be a multiple of shards = 3"
    assert refused(accumulate=2).startswith(
        "accumulate = 2: each of the 4 shards is a pass of its own already"
    )
    assert refused(device="cuda") == "device = 'cuda': deterministic = \"world\" computes on the CPU"
    assert refused(deterministic="yes").startswith("deterministic = 'yes': Input should be 'world'")
    assert (
        refused(deterministic=None, shards=2) == 'shards = 2: has no effect without deterministic = "world"'
    )
    assert resolve([BASE]).shards == 4 and resolve([{**BASE, "deterministic": None}]).shards is None


@pytest.mark.slow
@pytest.mark.mpi
def test_a_number_of_ranks_that_the_shards_do_not_suit_is_refused_before_a_folder_is_made(project):
    run = project.train("my.toml", "--set", "deterministic=world", ranks=3)

    assert run.code == 2 and run.folder is None
    assert run.err.count("Error: shards=4 cannot be shared by 3 ranks") == 1
    assert "Start 1 or 2 or 4 ranks" in run.err
