"""A run folder that another account has made, or can write to, leads nowhere and blocks nothing."""

import os
import re

import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.distributed.communication.local import LocalCommunicator
from tenon.errors import TrainingError
from tenon.training import lock

ANOTHER = 12345
"""The number of an account that is not this one."""


@pytest.fixture
def place_link(monkeypatch):
    """``place_link(path, target)``: a link that another account has placed."""

    def place_link(path, target):
        path.symlink_to(target)
        if os.geteuid() == 0:
            os.lchown(path, ANOTHER, ANOTHER)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)

    return place_link


@pytest.fixture
def run(tmp_path):
    """A run folder."""
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "metrics.jsonl").write_text("{}\n")
    yield run
    lock.release(run)


def hold(run):
    lock.hold(LocalCommunicator(), run)


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "checkpoints", "checkpoints/step-9.safetensors", "failures/.rank-0.77", "events"],
)
def test_links_of_another_account_are_refused_and_not_followed(run, tmp_path, place_link, name):
    own = tmp_path / "own"
    own.mkdir()
    (run / name).parent.mkdir(exist_ok=True)
    if (run / name).exists():
        (run / name).rename(run / "old")
    place_link(run / name, own)

    reason = re.escape(f"has {name!r}, a link to {str(own)!r} that another account (user ")
    with pytest.raises(TrainingError, match=reason + ".*Copy the checkpoint to a folder of your own"):
        hold(run)

    assert os.listdir(own) == [] and not (run / lock.NAME).exists()


def test_a_run_folder_that_is_a_link_of_another_account_is_refused(run, tmp_path, place_link):
    place_link(tmp_path / "latest", run)

    with pytest.raises(TrainingError, match=r"latest is a link to '.*run' that another account"):
        hold(tmp_path / "latest")

    assert not (run / lock.NAME).exists()


def test_links_of_this_account_and_of_root_are_followed(run, tmp_path):
    (run / "checkpoints").rename(tmp_path / "large")
    (run / "checkpoints").symlink_to(tmp_path / "large")
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "not yet there")
    (tmp_path / "mine").symlink_to(run)

    hold(tmp_path / "mine")

    assert (run / lock.NAME).exists()


def test_a_pipe_or_a_folder_in_place_of_a_file_is_refused_before_it_blocks(run):
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(TrainingError, match=r"metrics\.jsonl in the run folder .* is not a regular file"):
        hold(run)

    (run / "metrics.jsonl").unlink()
    (run / "checkpoints").rmdir()
    (run / "checkpoints").write_text("")
    with pytest.raises(TrainingError, match=r"checkpoints in the run folder .* is not a folder"):
        hold(run)


@pytest.mark.skipif(os.getuid() == 0, reason="root can write to everything")
@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints"])
def test_what_cannot_be_written_to_is_refused_before_training(run, name):
    (run / name).chmod(0o555)

    with pytest.raises(TrainingError, match=f"{name} in the run folder .* cannot be written to"):
        hold(run)


@pytest.mark.slow
def test_a_run_whose_metrics_lead_to_another_file_is_refused_in_one_line(
    make_project, tmp_path, monkeypatch, place_link
):
    project = make_project(tmp_path)
    done = project.train("my.toml", "--set", "epochs=1", "--run", "run")
    assert done.code == 0, done.err
    (tmp_path / "profile").write_text("mine\n")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    place_link(tmp_path / "run" / "metrics.jsonl", tmp_path / "profile")
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(main, ["train", "my.toml", "--resume", "run", "--set", "epochs=2"])

    assert done.exit_code == 2 and done.output.startswith(
        "Error: the run folder run has 'metrics.jsonl', a link"
    )
    assert done.output.count("\n") == 1 and (tmp_path / "profile").read_text() == "mine\n"
