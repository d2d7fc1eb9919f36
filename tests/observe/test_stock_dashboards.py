"""What TensorBoard's own tabs show of a run, read back with TensorBoard's own reader."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.device import Device
from tenon.extend import Backend
from tenon_tensorboard import measure
from tenon_tensorboard.measure import megabytes

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder):
    found = accumulator.EventAccumulator(
        str(folder), size_guidance={"histograms": 0, "scalars": 0, "tensors": 0}
    )
    found.Reload()
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stock") / "run"
    settings = ["epochs=2", "batch_size=512", "log.every=2", "log.histograms=3"]
    options = [word for each in settings for word in ("--set", each)]
    done = CliRunner().invoke(main, ["train", "digits", "--run", str(folder), *options])
    assert done.exit_code == 0, done.output
    return folder


def test_scalars_hold_loss_accuracy_rate_speed_memory_and_gradients(run):
    events = read(run)

    tags = set(events.Tags()["scalars"])
    assert {"train/loss", "test/loss", "test/accuracy", "lr", "samples_per_second"} <= tags
    assert {"steps_per_second", "memory_mb", "gradient_norm"} <= tags
    norms = events.Scalars("gradient_norm")
    assert [event.step for event in norms] == [2, 4, 6] and all(event.value > 0 for event in norms)
    assert all(event.value > 10 for event in events.Scalars("memory_mb"))


def test_histograms_are_of_weights_and_gradients_when_asked_for(run):
    events = read(run)

    tags = events.Tags()["histograms"]
    weights = [tag for tag in tags if tag.startswith("weights/")]
    assert weights and len(tags) == 2 * len(weights)
    assert [event.step for event in events.Histograms(weights[0])] == [3, 6]


def test_texts_hyperparameters_and_a_layout_are_rank_0s(run):
    tags = read(run).summary_metadata

    assert {"config/text_summary", "model/text_summary"} <= set(tags)
    assert {"_hparams_/experiment", "_hparams_/session_start_info"} <= set(tags)
    assert "custom_scalars__config__" in tags


@pytest.mark.slow
def test_every_rank_writes_what_is_its_own_and_only_rank_0_what_is_global(two_ranks):
    own, other = read(two_ranks), read(two_ranks / "rank_1")

    assert "test/accuracy" in own.Tags()["scalars"]
    assert other.Tags()["scalars"] == [] or set(other.Tags()["scalars"]) == {"steps_per_second", "memory_mb"}
    assert "config/text_summary" not in other.summary_metadata


def test_what_was_flushed_outlives_a_killed_writer(tmp_path):
    program = (
        "import os, signal\nfrom tenon_tensorboard.writer import RunWriter\n"
        f"writer = RunWriter({str(tmp_path)!r})\n"
        "for step in range(1000):\n    writer.scalar('x', step, step)\n"
        "writer.flush()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=False, timeout=300)

    assert [event.step for event in read(tmp_path).Scalars("x")] == list(range(1000))


def test_a_full_disk_is_reported_where_it_is_written_to(tmp_path):
    program = (
        "import resource, signal\nfrom tenon_tensorboard.writer import RunWriter\n"
        f"writer = RunWriter({str(tmp_path)!r})\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "for step in range(8000):\n    writer.scalar('x', step, step)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1 and "OSError: [Errno 27] File too large" in done.stderr


def test_a_backend_that_reports_no_memory_has_no_curve_of_it(monkeypatch):
    class Silent(Backend):
        name = "silent"

    assert megabytes(Device("cpu")) > 10
    monkeypatch.setattr(measure, "backend_for", lambda device: Silent())
    assert megabytes(Device("cpu")) is None
