"""Programs in C that a bundle holds, on damaged weights and vectors, with AddressSanitizer and UBSan.

A program ends with status 0, or with 1 or 2 and a line with the reason: no read or write outside its memory, whatever
the bytes of its files. Some weights have a checksum that fits, as an attacker would make it.
"""

import os
import random
import shutil
import struct
import subprocess
import zlib

import pytest
from tests.plugins.target_c.programs import sanitized, write

import tenon
from tenon import nn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc to compile with"),
]
#: The number of the first input.
FIRST = 100_000 * int(os.environ.get("ATTACK_SEED", "0"))
#: Sizes, indices and types that are out of range.
NUMBERS = [0, 1, -1, 7, 64, 1 << 20, 1 << 31, 1 << 32, 1 << 62, -(1 << 63), (1 << 63) - 1]


class Words(nn.Module):
    """A model that reads memory at indices given by its inputs and weights."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.linear = nn.Linear(4, 3)
        self.register_buffer("order", tenon.tensor([2, 0, 1]))

    def forward(self, index):
        return self.linear(self.embedding(index)).index_select(-1, self.order).cumsum(-1)


def damaged(content, rng):
    changed = bytearray(content)
    for _ in range(rng.choice((1, 2, 8))):
        place = rng.randrange(len(changed) + 1)
        kind = rng.random()
        if kind < 0.5:
            place = place // 8 * 8
            changed[place : place + 8] = struct.pack("<q", rng.choice(NUMBERS))
        elif kind < 0.7:
            changed[place : place + 1] = bytes([rng.randrange(256)])
        elif kind < 0.85:
            del changed[place:]
        else:
            changed[place:place] = changed[: rng.randrange(80)]
    return bytes(changed)


def signed(weights, rng):
    """Weights with numbers out of range in them, and the checksum that fits."""
    body = bytearray(weights[24:])
    for _ in range(3):
        place = rng.randrange(len(body) // 8) * 8
        body[place : place + 8] = struct.pack("<q", rng.choice(NUMBERS))
    return weights[:16] + struct.pack("<Q", zlib.crc32(body)) + body


def test_a_program_on_damaged_files_touches_no_memory_outside_its_own(tmp_path):
    tenon.manual_seed(0)
    write(tmp_path, Words(), tenon.tensor([[1, 2], [3, 9]]))
    assert "0 failures" in sanitized(tmp_path)
    weights, vectors = ((tmp_path / name).read_bytes() for name in ("weights.bin", "vectors.bin"))
    environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0"}
    ends = {}

    for number in range(FIRST, FIRST + int(os.environ.get("ATTACK_FILES", "200"))):
        rng = random.Random(number)
        kind = number % 4
        (tmp_path / "w").write_bytes((signed, damaged)[kind](weights, rng) if kind < 2 else weights)
        (tmp_path / "v").write_bytes(damaged(vectors, rng) if kind else vectors)
        done = subprocess.run(
            ["./test_sanitize", "w", "v"], cwd=tmp_path, env=environment, capture_output=True, timeout=20
        )
        ends[done.returncode] = ends.get(done.returncode, 0) + 1
        told = (done.stdout + done.stderr).decode(errors="replace")
        clean = done.returncode in (0, 1, 2) and "ERROR: " not in told and "runtime error" not in told
        assert clean, f"input {number}: status {done.returncode}\n{told[-3000:]}"
        assert told.strip(), f"input {number}: status {done.returncode} without a message"

    assert ends[1] > 20 and ends[2] > 20, ends
