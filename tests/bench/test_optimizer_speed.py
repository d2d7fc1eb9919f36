"""What a step costs, as a ratio to torch in the same run, and what updating together and in pieces saves."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tenon
from tenon import nn
from tenon.optim import batch, update

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

_SPEC = importlib.util.spec_from_file_location("bench_optimizers", Path(__file__).with_name("optimizers.py"))
bench = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(bench)


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        ("SGD, 4 tiny parameters", 0.6),  # measured: 0.28 to 0.33
        ("AdamW, 4 tiny parameters", 0.4),  # measured: 0.15 to 0.2
        ("AdamW, 100 of 100 000", 2.5),  # measured: 1.5 to 1.65
    ],
)
def test_steps_take_at_most_this_many_times_torchs(case, limit):
    ours, theirs = bench.measure(case, torch, rounds=5)

    assert ours <= limit * theirs


def test_many_small_parameters_are_faster_together_than_one_by_one(monkeypatch):
    together = bench.stepper(tenon, "AdamW, 40 tiny parameters")
    with monkeypatch.context() as patch:
        patch.setattr(batch, "SMALL", -1)
        alone = bench.stepper(tenon, "AdamW, 40 tiny parameters")
        alone()

    assert best(together, 50) < 0.4 * best(alone, 50)  # measured: 0.1


def test_large_parameters_are_faster_in_pieces_than_whole(monkeypatch):
    p = nn.Parameter(tenon.randn(4_000_000))
    p.grad = tenon.randn(4_000_000)
    step = tenon.optim.AdamW([p]).step
    step()

    pieces = best(step, 1)
    monkeypatch.setattr(update, "PIECE", 1 << 30)

    assert pieces < 0.8 * best(step, 1)  # measured: 0.36


def test_the_script_runs_and_writes_what_it_found(tmp_path):
    script, file = Path(__file__).with_name("optimizers.py"), tmp_path / "found.json"

    subprocess.run([sys.executable, script, "--only", "4 tiny", "--rounds", "1", "--json", file], check=True)

    found = json.loads(file.read_text())["results"]
    assert [one["case"] for one in found] == ["SGD, 4 tiny parameters", "AdamW, 4 tiny parameters"]


def best(step, number, rounds=5):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(number):
            step()
        times.append(time.perf_counter() - start)
    return min(times)
