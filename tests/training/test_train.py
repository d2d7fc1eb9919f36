"""`tenon train`, as a user runs it."""

import json
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from tenon.testing.suites.communicator import is_mpich

pytestmark = pytest.mark.mpi


def test_a_run_leaves_metrics_checkpoint_configuration_and_event_files(finished):
    run = finished("my.toml")

    final = run.final
    assert final["final"] is True and final["world_size"] == 1
    assert final["test_accuracy"] > 0.6 and final["samples_per_second"] > 0
    assert [m["epoch"] for m in run.metrics if "test_loss" in m and "final" not in m] == [1, 2, 3]
    assert json.loads((run.folder / "config.json").read_text())["optimizer"]["lr"] == 0.02
    assert list((run.folder / "checkpoints").glob("*.safetensors"))
    assert list(run.folder.glob("events.out.tfevents.*"))
    assert str(run.folder) in run.out


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_run_is_the_same_on_any_number_of_ranks(finished, ranks):
    one, several = (finished("my.toml", ranks=n).weights() for n in (1, ranks))

    np.testing.assert_allclose(several, one, rtol=0, atol=2e-5)


@pytest.mark.slow
def test_dropout_does_not_depend_on_the_number_of_ranks(finished):
    one, two = (finished("my.toml", "--set", "model_options.dropout=0.2", ranks=n).weights() for n in (1, 2))

    np.testing.assert_allclose(two, one, rtol=0, atol=2e-5)


@pytest.mark.slow
def test_accumulation_changes_only_memory(project, finished):
    whole = finished("my.toml").weights()
    pieces = project.train("my.toml", "--set", "accumulate=3").weights()

    np.testing.assert_allclose(pieces, whole, rtol=0, atol=2e-5)


@pytest.mark.slow
def test_evaluation_counts_every_sample_once_over_uneven_shards(finished):
    one = finished("my.toml", "--set", "epochs=1").final
    two = finished("my.toml", "--set", "epochs=1", ranks=2).final

    assert one["test_accuracy"] == pytest.approx(two["test_accuracy"], abs=1e-9)
    assert (one["test_accuracy"] * 31) == pytest.approx(round(one["test_accuracy"] * 31))


@pytest.mark.slow
def test_more_ranks_than_samples_in_a_batch(project):
    run = project.train(
        "my.toml", "--set", "batch_size=2", "--set", "data_options.train=7", "--set", "epochs=1", ranks=3
    )

    assert run.final["samples_seen"] == 7


# In the middle of an epoch: test_stopping.py.
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.manual), 2])
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(project, finished, ranks):
    whole = finished("my.toml", "--set", "model_options.dropout=0.2")
    first = project.train("my.toml", "--set", "model_options.dropout=0.2", "--set", "epochs=2")

    resumed = project.resume(first, "--set", "epochs=3", ranks=ranks)

    np.testing.assert_allclose(resumed.weights(), whole.weights(), rtol=0, atol=0 if ranks == 1 else 2e-5)
    assert resumed.final["samples_seen"] == whole.final["samples_seen"]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_resume(project, ranks):
    command = project.command("my.toml", "--set", "epochs=100000", ranks=ranks)
    process = subprocess.Popen(
        command, cwd=project.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=project.environment,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not list(project.folder.glob("runs/*/checkpoints/*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)

    if (
        ranks == 1 or is_mpich()
    ):  # Open MPI's mpirun has a status of its own then, and prints nothing more of ranks
        assert process.returncode == 130
        assert "resume with: " in out, err
    assert "=== tenon" not in err, "nobody failed"
    folder = next(project.folder.glob("runs/*"))
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["interrupted"] is True
    if ranks == 2:
        again = project.train("--resume", str(folder), "--set", f"epochs={last['epoch'] + 1}")
        assert again.code == 0, again.err


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_step(project):
    run = project.train("my.toml", "--set", "data_options.spoiled=true", ranks=2)

    assert run.code != 0
    assert "the loss is nan at step" in run.err
    assert run.err.count("Traceback") == 1


@pytest.mark.slow
def test_a_checkpoint_of_another_model_is_refused(project, finished):
    folder = shutil.copytree(finished("my.toml", "--set", "epochs=1").folder, project.folder / "run")
    code = (project.folder / "small.py").read_text().replace("16", "17")
    (project.folder / "small.py").write_text(code)

    done = project.train("--resume", str(folder), "--set", "epochs=2")

    assert done.code != 0
    assert "size mismatch for layers.0.weight" in done.err


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(project, finished):
    folder = shutil.copytree(finished("my.toml").folder, project.folder / "damaged")
    newest = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:-100])

    done = project.train("--resume", str(folder))

    assert done.code == 0, done.err
    assert newest.name in done.err


@pytest.mark.slow
def test_event_files_hold_what_the_metrics_hold(project):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = project.train("my.toml", "--set", "log.every=1")
    events = accumulator.EventAccumulator(str(run.folder))
    events.Reload()

    written = [m["train_loss"] for m in run.metrics if "train_loss" in m]
    assert [round(e.value, 5) for e in events.Scalars("train/loss")] == [round(w, 5) for w in written]
    assert {"test/accuracy", "test/loss", "samples_per_second"} <= set(events.Tags()["scalars"])
