"""Saving replaces a file atomically."""

import errno
import io
import os
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

from tenon.errors import CheckpointWriteError, UnsavableError
from tenon.serialize import atomic, load, save
from tenon.serialize.atomic import replacing
from tenon.tensors.creation.create import from_numpy

SUFFIXES = (".pt", ".safetensors")


def ones(count: int = 4):
    return from_numpy(np.ones(count, np.float32))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_saving_leaves_one_file_and_nothing_else(suffix, tmp_path):
    save({"a": ones()}, tmp_path / f"m{suffix}")
    save({"a": ones(5)}, str(tmp_path / f"m{suffix}"))

    assert os.listdir(tmp_path) == [f"m{suffix}"]
    assert load(tmp_path / f"m{suffix}")["a"].raw.shape == (5,)


def test_saved_files_have_the_usual_permissions(tmp_path):
    usual = tmp_path / "usual"
    usual.touch()

    save(1, tmp_path / "m.pt")

    assert stat.S_IMODE((tmp_path / "m.pt").stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def test_the_permissions_of_an_old_file_stay(tmp_path):
    save(1, tmp_path / "m.pt")
    os.chmod(tmp_path / "m.pt", 0o640)

    save(2, tmp_path / "m.pt")

    assert stat.S_IMODE((tmp_path / "m.pt").stat().st_mode) == 0o640


def test_a_symbolic_link_stays_a_link(tmp_path):
    (tmp_path / "store").mkdir()
    save(1, tmp_path / "store" / "real.pt")
    (tmp_path / "last.pt").symlink_to(tmp_path / "store" / "real.pt")

    save(2, tmp_path / "last.pt")

    assert (tmp_path / "last.pt").is_symlink()
    assert load(tmp_path / "store" / "real.pt") == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_interrupt_in_the_middle_leaves_the_old_file(error, tmp_path):
    path = tmp_path / "m.pt"
    save("old", path)

    with pytest.raises(error), replacing(path) as file:
        file.write(b"half")
        raise error

    assert load(path) == "old"
    assert os.listdir(tmp_path) == ["m.pt"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_object_that_cannot_be_saved_writes_nothing(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"

    with pytest.raises(UnsavableError, match=r"obj\['b'\]\[1\]"):
        save({"a": ones(), "b": [1, object()]}, path)

    assert os.listdir(tmp_path) == []


def test_an_object_that_cannot_be_saved_leaves_a_file_object_untouched():
    buffer = io.BytesIO(b"before")

    with pytest.raises(UnsavableError):
        save({"b": object()}, buffer)

    assert buffer.getvalue() == b"before"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_the_old_file_and_says_so(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    script = f"""
import resource, numpy as np
from tenon.tensors.creation.create import from_numpy
from tenon.errors import CheckpointWriteError
from tenon.serialize import save
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
save({{"a": from_numpy(np.ones(10))}}, {str(path)!r})
try:
    save({{"a": from_numpy(np.ones(100_000))}}, {str(path)!r})
except CheckpointWriteError as error:
    print(error.errno, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.startswith(f"{errno.EFBIG} could not write {str(path)!r}")
    assert "untouched" in done.stdout and "MB are free" in done.stdout
    assert os.listdir(tmp_path) == [path.name]
    assert load(path)["a"].raw.shape == (10,)


class FullDisk(io.BytesIO):
    """A file whose disk is full after 1000 bytes."""

    def write(self, data):
        if self.tell() + len(data) > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_file_object_says_that_it_is_incomplete():
    with pytest.raises(CheckpointWriteError, match=r"No space left on device.*incomplete") as caught:
        save({"a": ones(1000)}, FullDisk())
    assert caught.value.errno == errno.ENOSPC


class WriteOnly:
    """A minimal file object, which writes 7 bytes at a time, as an unbuffered one may."""

    def __init__(self):
        self.parts = []

    def write(self, data):
        self.parts.append(bytes(data[:7]))
        return len(self.parts[-1])


def test_a_file_object_needs_only_write():
    file = WriteOnly()

    save({"a": ones(100), "b": "text"}, file)

    found = load(io.BytesIO(b"".join(file.parts)))
    assert found["b"] == "text" and found["a"].raw.sum() == 100


def test_a_stream_that_cannot_seek_is_read_whole(tmp_path):
    save({"a": ones()}, tmp_path / "m.pt")
    reading, writing = os.pipe()
    with open(writing, "wb") as sink:
        sink.write((tmp_path / "m.pt").read_bytes())

    with open(reading, "rb") as source:
        assert load(source)["a"].raw.tolist() == [1, 1, 1, 1]


def test_special_files_are_written_to_directly():
    save({"a": ones()}, os.devnull)

    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_folder_is_not_overwritten(tmp_path):
    (tmp_path / "m.pt").mkdir()

    with pytest.raises(IsADirectoryError, match=r"m\.pt"):
        save(1, tmp_path / "m.pt")


def test_a_missing_folder_is_pythons_own_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save(1, tmp_path / "nowhere" / "m.pt")


def test_something_that_is_not_a_file_is_a_type_error():
    with pytest.raises(TypeError, match="got a int"):
        save(1, 3)


def test_leftovers_of_killed_writers_are_removed_and_living_ones_kept(tmp_path):
    dead = tmp_path / ".m.pt.0123456789ab.tmp"
    alive = tmp_path / ".m.pt.ba9876543210.tmp"
    recent = tmp_path / ".m.pt.aaaaaaaaaaaa.tmp"
    other = tmp_path / ".other.pt.0123456789ab.tmp"
    for leftover in (dead, alive, recent, other):
        leftover.write_bytes(b"half")
        if leftover is not recent:
            os.utime(leftover, (time.time() - 2 * atomic.ABANDONED_AFTER,) * 2)

    with open(alive, "rb") as held:
        assert atomic._lock(held)
        save(1, tmp_path / "m.pt")

    assert sorted(os.listdir(tmp_path)) == sorted([alive.name, recent.name, other.name, "m.pt"])


KILLED = """
import sys, numpy as np
from tenon.tensors.creation.create import from_numpy
from tenon.serialize import save
number = 0
print("ready", flush=True)
while True:
    number += 1
    save({"number": number, "w": from_numpy(np.full(300_000, number, np.float32))}, sys.argv[1])
"""


@pytest.mark.parametrize(
    ("suffix", "kills"),
    [
        (".pt", 3),
        pytest.param(".pt", 10, marks=pytest.mark.slow),
        pytest.param(".safetensors", 10, marks=pytest.mark.slow),
    ],
)
def test_kill_9_at_any_moment_leaves_a_valid_file(suffix, kills, tmp_path):
    path = tmp_path / f"m{suffix}"
    save({"number": 0, "w": from_numpy(np.zeros(3, np.float32))}, path)
    rng = np.random.default_rng(0)

    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()

        found = load(path)
        assert (found["w"].raw == found["number"]).all()
