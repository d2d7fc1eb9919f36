"""Checkpoints of runs whose ranks have parts of the model: resumed on any mesh, whole or not at all."""

import signal
import subprocess
import time

import numpy as np
import pytest
from divided_runs import sections, settings, weights

pytestmark = pytest.mark.mpi

ONE = settings(shard=1, tensor=1, pipeline=1)


def names(run):
    return sorted(path.name for path in (run.folder / "checkpoints").iterdir())


def resume(blocky, run, ranks, sizes, *options):
    return blocky.resume(
        run, *settings(**{"shard": 1, "tensor": 1, "pipeline": 1, **sizes}), *options, ranks=ranks
    )


@pytest.mark.slow
def test_a_sharded_run_goes_on_on_one_rank(blocky, whole):
    run = blocky.train("my.toml", *settings(shard=2), "--set", "epochs=1", ranks=2)

    alone = resume(blocky, run, 1, {}, "--set", "epochs=2")

    np.testing.assert_allclose(weights(alone), whole(), rtol=0, atol=2e-5)


@pytest.mark.slow
def test_a_run_goes_on_on_other_meshes_and_on_one_rank(blocky, whole):
    """From the middle of an epoch, from folders and from a file; the same samples, weights and optimizer."""
    steps = ("--set", "checkpoint.steps=3", "--set", "checkpoint.every=1000")
    run = blocky.train("my.toml", *settings(shard=2), "--set", "epochs=1", *steps, ranks=2)
    assert names(run) == ["step-00000003", "step-00000004"]
    for path in (run.folder / "checkpoints" / "step-00000004").iterdir():
        path.unlink()  # so that it resumes after step 3 of 4

    alone = resume(blocky, run, 1, {}, "--set", "epochs=2")
    assert "resumes after step 3" in alone.out
    assert names(run) == ["step-00000006.safetensors", "step-00000008.safetensors"]
    pipelined = resume(blocky, run, 2, {"pipeline": 2}, "--set", "epochs=3")
    divided = resume(blocky, pipelined, 4, {"shard": 2, "tensor": 2}, "--set", "epochs=4")

    assert divided.final["samples_seen"] == 4 * 70
    np.testing.assert_allclose(weights(divided), whole("--set", "epochs=4"), rtol=0, atol=5e-5)


@pytest.mark.slow
def test_only_the_newest_are_kept_and_others_read_them(blocky):
    run = blocky.train(
        "my.toml", *settings(shard=2), "--set", "epochs=5", "--set", "checkpoint.keep=2", ranks=2
    )
    assert names(run) == ["step-00000016", "step-00000020"]

    exported = subprocess.run(
        [*blocky.command()[:-1], "export", str(run.folder), "-o", "net"],
        cwd=blocky.folder, capture_output=True, text=True, env=blocky.environment,
    )  # fmt: skip
    assert exported.returncode == 0, exported.stderr


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "torn", "changed"])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(blocky, damage):
    run = blocky.train("my.toml", *settings(shard=2), ranks=2)
    shard = sorted((run.folder / "checkpoints" / "step-00000008").glob("shard-*"))[1]
    content = bytearray(shard.read_bytes())
    if damage == "missing":
        shard.unlink()
    else:
        content[-5] ^= 1
        shard.write_bytes(content if damage == "changed" else content[:-7])

    again = blocky.resume(run, "--set", "epochs=3", ranks=2)

    assert "skipped checkpoint 'step-00000008'" in again.err and shard.name in again.err
    assert "resumes after step 4" in again.out and again.final["epoch"] == 3


@pytest.mark.slow
def test_a_rank_killed_while_it_writes_costs_only_this_checkpoint(blocky, whole):
    command = blocky.command(
        "my.toml",
        *settings(shard=2),
        "--set",
        "epochs=40",
        "--set",
        "checkpoint.steps=1",
        "--run",
        "killed",
        ranks=2,
    )
    process = subprocess.Popen(
        command,
        cwd=blocky.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=blocky.environment,
    )
    folder = blocky.folder / "killed" / "checkpoints"
    deadline = time.monotonic() + 120
    while len(list(folder.glob("step-*/manifest.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    ranks = subprocess.run(
        ["pgrep", "-f", "--", "--run killed"], capture_output=True, text=True
    ).stdout.split()
    subprocess.run(["kill", "-9", ranks[-1]], check=True)
    process.communicate(timeout=120)
    assert process.returncode

    resumed = blocky.train("--resume", "killed", *ONE, "--set", "epochs=40")

    assert resumed.code == 0, resumed.err
    resumed.folder = blocky.folder / "killed"
    np.testing.assert_allclose(weights(resumed), whole("--set", "epochs=40"), rtol=0, atol=2e-3)


@pytest.mark.slow
def test_ctrl_c_saves_the_parts(blocky):
    command = blocky.command(
        "my.toml", *settings(pipeline=2), "--set", "epochs=100000", "--run", "stopped", ranks=2
    )
    process = subprocess.Popen(
        command,
        cwd=blocky.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=blocky.environment,
    )
    deadline = time.monotonic() + 120
    while (
        not list((blocky.folder / "stopped").glob("checkpoints/*/manifest.json"))
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)

    assert "resume with: mpirun -n 2 tenon train --resume" in out, err
    found = sections(blocky.folder / "stopped")
    assert found["progress"]["step"] > 0 and len(found["model"]) == 4 * 6 + 4


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_ends_the_run_with_one_report(blocky):
    folder = blocky.folder / "blocked" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "step-00000002").write_text("a file where a folder has to be")

    run = blocky.train(
        "my.toml", *settings(shard=2), "--set", "checkpoint.steps=1", "--run", "blocked", ranks=2
    )

    assert run.code not in (0, None) and run.err.count("=== tenon: rank") == 1
    assert "step-00000002" in run.err and "FileExistsError" in run.err
    assert sections(blocky.folder / "blocked")["progress"]["step"] == 1
