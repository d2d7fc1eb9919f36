"""Where the time of a step goes, on two real ranks, eager and compiled."""

import json
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "parts.py"


@pytest.fixture(scope="module")
def told(run_ranks):
    """The output of each rank for each kind of step."""
    lines = [json.loads(line) for line in run_ranks(2, PROGRAM).splitlines() if line.startswith("{")]
    return {(line["kind"], line["rank"]): line for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind", ["eager", "compiled"])
def test_parts_of_a_step_are_distinguished_and_add_up(told, kind, rank):
    steps = told[kind, rank]["steps"]

    assert len(steps) == 3
    for duration, parts in steps:
        assert sum(parts.values()) == pytest.approx(duration, rel=0.05)
        assert all(parts[part] > 0 for part in ("compute", "communication", "wait", "optimizer", "other"))
        assert parts["communication"] + parts["optimizer"] < duration
    if rank == 0:  # the other sleeps 30 ms before each step; on a busy machine this one may be late as well
        assert any(parts["wait"] > 15e6 and parts["compute"] < duration / 2 for duration, parts in steps)
    else:
        assert all(parts["other"] > 25e6 for _, parts in steps)


@pytest.mark.slow
def test_kernels_of_the_compiled_step_know_their_phase(told):
    kernels = told["compiled", 0]["kernels"]

    assert "linear" in kernels["forward"] and "linear" not in kernels["backward"]
    assert "matmul" in kernels["backward"] and "host_map" in kernels["backward"]
    assert "sqrt" in kernels["optimizer"] and "sqrt" not in kernels["backward"]
    assert told["eager", 0]["kernels"] == {}
