"""`tenon plan` of divided models, and runs that let it choose the mesh."""

import json
import subprocess

import pytest
from divided_runs import settings

from tenon.distributed.communication.threaded import run_ranks
from tenon.errors import ConfigError
from tenon.training.config import resolve
from tenon.training.layers import read_file
from tenon.training.parallel import auto
from tenon.training.plan import meshes
from tenon.training.plan.quantities import read_size

pytestmark = pytest.mark.mpi

SECOND = {"peaks": [100, 300], "evaluations": [200, 100], "seconds": [2.0, 1.0, 3.0], "parameters": 5}
FIRST = {"peaks": [900, 100], "evaluations": [200, 100], "seconds": [1.0], "parameters": 5}


def plan(blocky, *arguments):
    done = subprocess.run(
        [*blocky.command()[:-1], "plan", *arguments],
        cwd=blocky.folder, capture_output=True, text=True, timeout=300, env=blocky.environment,
    )  # fmt: skip
    return done


def tried(result, problem="", **sizes):
    return meshes.Tried({"data": 1, "shard": 1, "tensor": 1, "pipeline": 1, **sizes}, result, problem)


def test_the_fastest_that_fits_is_chosen():
    fast, lean, failed = tried(FIRST, data=2), tried(SECOND, shard=2), tried({}, "MemoryError: no", tensor=2)

    assert meshes.choose([fast, lean, failed], None) is fast
    assert meshes.choose([fast, lean, failed], 300) is lean
    with pytest.raises(ConfigError, match="fits into 299 bytes a rank: shard 2 comes closest, with 300"):
        meshes.choose([fast, lean, failed], 299)
    with pytest.raises(ConfigError, match="no mesh can run: tensor 2: MemoryError: no"):
        meshes.choose([failed], None)


@pytest.mark.parametrize(
    "given, names",
    [
        ({}, ["data 4", "shard 4", "data 2 x tensor 2", "shard 2 x tensor 2", "tensor 4", "data 2 x pipeline 2",
              "shard 2 x pipeline 2", "tensor 2 x pipeline 2", "pipeline 4"]),
        ({"accumulate": 2}, ["data 4", "shard 4", "data 2 x tensor 2", "shard 2 x tensor 2", "tensor 4"]),
        ({"model_options": {"depth": 1}, "batch_size": 2, "accumulate": 2}, ["data 2 x tensor 2", "shard 2 x tensor 2", "tensor 4"]),
        ({"deterministic": "world", "batch_size": 20}, ["data 4", "shard 4"]),
    ],
    ids=str,
)  # fmt: skip
def test_meshes_that_fit_the_model_and_the_settings_are_tried(blocky, monkeypatch, given, names):
    monkeypatch.syspath_prepend(blocky.folder)
    monkeypatch.chdir(blocky.folder)
    config = resolve([{"model": "blocky:Net", "data": "blocky:load", "batch_size": 20, **given}])

    found = [meshes.Tried(sizes, {}, "").name for sizes in meshes.candidates(config, 4)]

    assert found == names


def test_sizes_of_memory():
    assert (read_size("4GB"), read_size("1.5 GiB"), read_size("800")) == (4e9, 1.5 * 2**30, 800)
    for wrong in ("much", "-4GB", "4 Gbit"):
        with pytest.raises(ConfigError, match="is not a number of bytes"):
            read_size(wrong)


@pytest.mark.slow
def test_a_plan_says_what_each_mesh_takes(blocky):
    done = plan(blocky, "-n", "2", "my.toml", "--meshes", "--json")
    found = json.loads(done.stdout)

    assert [bool(each["problem"]) for each in found["meshes"]] == [False] * 4
    assert all(
        each["seconds"] > 0 and each["peak"] > 50e6 and len(each["peaks"]) == 2 for each in found["meshes"]
    )
    fastest = min(found["meshes"], key=lambda each: each["seconds"])
    assert found["chosen"] == {name: fastest[name] for name in ("data", "shard", "tensor", "pipeline")}
    one = plan(blocky, "-n", "2", "my.toml", "--set", "parallel.tensor=2")
    assert (
        "tensor 2" in one.stdout
        and "memory of a rank" in one.stdout
        and "Each mesh ran here on 2" in one.stdout
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["-n", "2", "--meshes", "--memory", "1MB"], "no mesh fits into 1,000,000 bytes a rank"),
        (["-n", "17", "--set", "parallel.shard=17"], "at most 16 are started here"),
        (["-n", "2", "--set", "parallel.shard=2", "--idle"], "--idle does not apply where ranks have parts"),
        (["-n", "2", "--memory", "1GB"], "--memory applies to divided models"),
        (["-n", "2", "--set", "parallel.shard=2", "--set", "optimizer.lr=nan"], "optimizer.lr = nan"),
    ],
    ids=str,
)
def test_what_cannot_be_planned(blocky, arguments, words):
    done = plan(blocky, "my.toml", *arguments)

    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_chooses_its_mesh_and_keeps_it(blocky):
    run = blocky.train("my.toml", *settings(auto="true"), "--set", "epochs=1", ranks=2)
    assert "parallel.auto: " in run.out and run.final["epoch"] == 1
    saved = json.loads((run.folder / "config.json").read_text())["parallel"]
    assert saved["auto"] and saved["data"] * saved["shard"] * saved["tensor"] * saved["pipeline"] == 2

    again = blocky.resume(run, "--set", "epochs=2", ranks=2)
    alone = blocky.resume(run, "--set", "epochs=3")

    assert "parallel.auto: " not in again.out and again.final["epoch"] == 3
    assert "parallel.auto: " not in alone.out and alone.final["epoch"] == 3


@pytest.mark.slow
def test_a_run_that_fits_nowhere_ends_with_one_line(blocky):
    run = blocky.train("my.toml", *settings(auto="true", memory="1MB"), ranks=2)

    assert run.code == 2 and "parallel.auto: no mesh fits into 1,000,000 bytes a rank" in run.err
    assert "Traceback" not in run.err and run.folder is None


def test_a_configuration_may_be_json(tmp_path):
    saved = resolve([{"model": "m:Net", "data": "m:load", "parallel": {"shard": 2}}])
    (tmp_path / "config.json").write_text(saved.model_dump_json())

    assert resolve([read_file(tmp_path / "config.json")]) == saved
    for name, text, words in [
        ("wrong.json", "[1]", "a list is no configuration"),
        ("torn.json", "{", r"torn\.json is not valid JSON"),
        ("deep.json", "[" * 100_000, r"deep\.json is not valid JSON"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_file(tmp_path / name)


@pytest.mark.slow
def test_a_plan_of_a_run_that_chooses_its_mesh_tries_all_meshes(blocky):
    done = plan(blocky, "-n", "2", "my.toml", "--set", "parallel.auto=true", "--json")

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["meshes"]) == 4


def test_a_program_that_is_not_installed_leaves_no_rank_waiting(monkeypatch):
    monkeypatch.setattr(auto, "installed_program", lambda name: None)
    config = resolve([{"model": "m:Net", "data": "m:load", "parallel": {"auto": True}}])

    def work(communicator):
        with pytest.raises(ConfigError, match=r"parallel\.auto: the command `tenon` was found neither"):
            auto.with_mesh(config, communicator)
        return True

    assert run_ranks(2, work) == [True, True]
