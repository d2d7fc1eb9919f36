"""Files that another process cuts off, overwrites and replaces while they are read: a value, or one error.

No reader maps a file: what is mapped and then cut off ends the process with SIGBUS.
"""

import gzip
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.data import readers
from tenon.errors import TenonError

SECONDS = 1.0
CHANGING = """
import os, random, sys, time
path = sys.argv[1]
with open(path, "rb") as file:
    good = file.read()
draw = random.Random(1)
print("begun", flush=True)
while True:
    kind = draw.random()
    if kind < 0.6:
        os.truncate(path, draw.randrange(len(good)) if kind < 0.5 else 0)
    elif kind < 0.9:
        with open(path, "r+b") as file:
            file.seek(draw.randrange(len(good)))
            file.write(draw.randbytes(64))
    else:
        os.unlink(path)
        os.mkfifo(path)
    time.sleep(draw.random() * 0.002)
    if kind >= 0.9:
        os.unlink(path)
    with open(path, "wb") as file:
        file.write(good)
    time.sleep(draw.random() * 0.02)
"""
STATE = {f"w{i}": tenon.ones(300, 300) for i in range(4)}


def write_bytes(content):
    return lambda path: path.write_bytes(content)


def save_program(path):
    tenon.export.save(tenon.export.export(nn.Linear(300, 300), (tenon.ones(2, 300),)), path)


def save_trace(path):
    tenon.jit.trace(nn.Linear(300, 300), (tenon.ones(2, 300),)).save(path)


def lines(path):
    found = readers.TextLines(path)
    return [found[i] for i in range(0, len(found), 1000)]


#: Name -> what writes the good file, and what reads it.
KINDS = {
    "x.pt": (lambda path: tenon.save(STATE, path), tenon.load),
    "mapped.pt": (lambda path: tenon.save(STATE, path), lambda path: tenon.load(path, mmap=True)),
    "x.safetensors": (lambda path: tenon.save(STATE, path), tenon.load),
    "x.pt2": (save_program, tenon.export.load),
    "x.trace": (save_trace, tenon.jit.load),
    "x.npz": (lambda path: np.savez(path, a=np.arange(300_000.0)), readers.read_npz),
    "x.csv": (write_bytes(b"1,2,3\n" * 5000), readers.read_csv),
    "x.csv.gz": (write_bytes(gzip.compress(b"1,2,3\n" * 5000)), readers.read_csv),
    "x.txt": (write_bytes(b"a line\n" * 20_000), lines),
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_changes_while_it_is_read_is_a_value_or_an_error(tmp_path, name):
    write, read = KINDS[name]
    path = tmp_path / name
    write(path)
    ends = {"value": 0, "error": 0}

    with subprocess.Popen([sys.executable, "-c", CHANGING, str(path)], stdout=subprocess.PIPE) as changing:
        assert changing.stdout.readline() == b"begun\n"
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or not all(ends.values()):
            assert changing.poll() is None and time.monotonic() < end + 60, ends
            try:
                read(path)
                ends["value"] += 1
            except (TenonError, FileNotFoundError):
                ends["error"] += 1
        changing.kill()
