"""Clocks of hosts that differ and go wrong: what is known of them, and where their events lie when merged."""

import json
from pathlib import Path

import pytest

from tenon.profiler import read_trace
from tenon_profiler.drift import DRIFT, line

PROGRAM = Path(__file__).parent / "programs" / "clocks.py"
MILLISECOND = 1_000_000


@pytest.mark.parametrize(("ranks", "known"), [(4, "known"), (2, "unknown")])
def test_events_of_hosts_whose_clocks_differ_and_drift_are_where_they_were(tmp_path, run_ranks, ranks, known):
    out = run_ranks(ranks, PROGRAM, tmp_path, known)
    told = {line["rank"]: line for line in map(json.loads, out.splitlines())}

    header, events = read_trace(tmp_path / "merged.trace.json.gz")
    base = int(header["baseTimeNanoseconds"])
    seen = {}
    for event in events:
        if event["name"].startswith("mark "):
            seen[event["pid"], int(event["name"].split()[1])] = base + 1000 * event["ts"]

    assert sorted(told) == list(range(ranks)) and len(seen) == 60 * ranks
    for rank, said in told.items():
        wrong = [
            max(before - seen[rank, number], seen[rank, number] - after, 0)
            for number, (before, after) in enumerate(said["marks"])
        ]
        assert max(wrong) < MILLISECOND, (rank, max(wrong))
        if known == "known":
            assert abs(said["off_ns"]) <= said["error_ns"] + 50_000 < MILLISECOND


def waits(clock, jitter):
    """Rank 0's, and those of a rank whose clock shows ``clock(t)``: who comes last changes, who leaves is late."""
    first, theirs = {}, {}
    for number in range(400):
        last = 1_000_000_000 + number * 25 * MILLISECOND
        early, late = (number * 7919) % 20 * MILLISECOND, (number * 104729) % 97 / 97 * jitter
        came = (last, last - early) if number % 2 else (last - early, last)
        first[number] = came[0], last + (late if number % 3 else 0)
        theirs[number] = round(clock(came[1])), round(clock(last + (0 if number % 3 else late)))
    return first, theirs


def test_a_line_finds_offset_and_drift_though_ranks_leave_late():
    def clock(t):
        return t - 2_500 * MILLISECOND + 80e-6 * (t - 10**9)

    found = line(*waits(clock, 5 * MILLISECOND))

    for t in (10**9, 6 * 10**9, 11 * 10**9):
        assert clock(t) + found(clock(t)) == pytest.approx(t, abs=0.6 * MILLISECOND)


def test_what_was_known_of_a_clock_bounds_what_collectives_say():
    exact = line(*waits(lambda t: t + 50 * MILLISECOND, 0), at=10**9, error=100_000)

    assert exact(10**9) == -100_000
    assert exact(3 * 10**9) == pytest.approx(-100_000 - DRIFT * 2 * 10**9)
    assert line({}, {}, at=5, error=7)(10**9) == line({}, {})(10**9) == 0
