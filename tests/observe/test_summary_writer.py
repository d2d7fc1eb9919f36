"""``torch.utils.tensorboard.SummaryWriter``: what it writes, read back with TensorBoard's own reader."""

import subprocess
import sys

import pytest

import tenon
from tenon import nn
from tenon.utils.tensorboard import SummaryWriter
from tenon.utils.tensorboard.writer import SummaryWriter as same

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(folder):
    found = accumulator.EventAccumulator(str(folder), size_guidance={"tensors": 0})
    found.Reload()
    return found


def numbers(folder, tag):
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


def test_numbers_are_tensors_or_not_and_come_in_charts_of_several(tmp_path):
    with SummaryWriter(tmp_path, purge_step=1, filename_suffix=".mine") as writer:
        for step in range(2):
            writer.add_scalar("loss", tenon.tensor([0.5]), step)
            writer.add_scalars("both/losses", {"train": tenon.tensor(0.25), "val": 2}, step)
        writer.add_scalar("at", 1, walltime=12.0)

    assert same is SummaryWriter and writer.get_logdir() == str(tmp_path)
    assert numbers(tmp_path, "loss") == [(0, 0.5), (1, 0.5)]
    assert numbers(tmp_path / "both_losses_val", "both/losses") == [(0, 2.0), (1, 2.0)]
    assert [e.wall_time for e in read(tmp_path).Scalars("at")] == [12.0]
    assert all(path.name.endswith(".mine") for path in tmp_path.glob("events*"))


def test_pictures_histograms_texts_curves_and_graphs(tmp_path):
    writer = SummaryWriter(tmp_path)
    writer.add_image("one", tenon.rand(3, 4, 6))
    writer.add_images("grid", tenon.rand(4, 1, 4, 6, dtype=tenon.bfloat16), 2)
    writer.add_histogram("weights", nn.Parameter(tenon.arange(4.0)), bins="auto")
    writer.add_text("note", "x", 1)
    writer.add_pr_curve("curve", tenon.tensor([0, 1]), tenon.tensor([0.2, 0.7]), num_thresholds=3)
    writer.add_graph(nn.Linear(3, 2), tenon.rand(1, 3))
    writer.add_custom_scalars_multilinechart(["a", "b"])
    writer.flush()
    found = read(tmp_path)

    (one,), (grid,) = found.Images("one"), found.Images("grid")
    assert (one.height, one.width) == (4, 6) and grid.step == 2
    assert found.Histograms("weights")[0].histogram_value.max == 3
    assert {"note/text_summary", "curve", "custom_scalars__config__"} == set(found.Tags()["tensors"])
    assert found.Graph().node
    writer.close()


def test_hyperparameters_are_a_run_of_their_own(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"lr": 0.1, "net": "small"}, {"accuracy": tenon.tensor(0.5)}, run_name="first")

    assert numbers(tmp_path / "first", "accuracy") == [(0, 0.5)]
    assert "_hparams_/experiment" in str(read(tmp_path / "first").summary_metadata)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["named", None])
def test_a_writer_that_nobody_closes_has_written_all_when_python_ends(tmp_path, folder):
    code = (
        "from tenon.utils.tensorboard import SummaryWriter\n"
        f"writer = SummaryWriter({folder!r}, comment='_tried')\n"
        "writer.add_scalar('loss', 1, 3)\n"
    )

    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)

    (where,) = [tmp_path / folder] if folder else (tmp_path / "runs").glob("*_tried")
    assert numbers(where, "loss") == [(3, 1.0)]
