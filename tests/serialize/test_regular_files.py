"""Pipes and devices in a file's place: refused at once, where reading them would block or have no end."""

import os
import time
from pathlib import Path

import pytest

import tenon
from tenon.errors import CheckpointError, ConfigError, TenonError, TrainingError
from tenon.serialize.atomic import ABANDONED_AFTER
from tenon.training import lock
from tenon.training.layers import read_file

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
READERS = {
    "load": tenon.load,
    "load mapped": lambda path: tenon.load(path, mmap=True),
    "verify": tenon.serialize.verify,
    "program": tenon.export.load,
    "trace": tenon.jit.load,
    "configuration": lambda path: read_file(Path(path)),
}


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_is_refused(tmp_path, read):
    os.mkfifo(tmp_path / "x")

    with pytest.raises(TenonError, match="is not a regular file"):
        READERS[read](str(tmp_path / "x"))


@pytest.mark.parametrize("read", READERS)
@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there are no devices here")
def test_a_link_to_an_endless_device_is_refused(tmp_path, read):
    (tmp_path / "x").symlink_to("/dev/zero")

    with pytest.raises((CheckpointError, ConfigError, TenonError), match="is not a regular file"):
        READERS[read](str(tmp_path / "x"))


def test_a_folder_is_pythons_own_error(tmp_path):
    with pytest.raises(IsADirectoryError):
        tenon.load(tmp_path)


@pytest.mark.parametrize(
    "plant", [os.mkfifo, lambda path: path.write_text("[" * 100_000)], ids=["pipe", "deep"]
)
def test_a_lock_that_is_no_file_of_ours_refuses_the_folder(tmp_path, plant):
    plant(tmp_path / lock.NAME)

    with pytest.raises(TrainingError, match="that no job of tenon has written, or that is damaged"):
        lock.take(tmp_path)


def test_a_pipe_named_like_an_abandoned_file_does_not_block_a_save(tmp_path):
    planted = tmp_path / ".x.pt.0123456789ab.tmp"
    os.mkfifo(planted)
    old = time.time() - 2 * ABANDONED_AFTER
    os.utime(planted, (old, old))

    tenon.save(tenon.ones(2), tmp_path / "x.pt")

    assert planted.exists() and tenon.load(tmp_path / "x.pt").tolist() == [1, 1]
