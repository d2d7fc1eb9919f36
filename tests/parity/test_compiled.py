"""Compiled functions compute what eager ones do, for operands of all dtypes and kinds, and in all forms of a call.

All 360,000 calls are made by hand: ``python tests/parity/compiled_sweep.py --jobs 2``.
"""

import numpy as np
import pytest
from parity.compiled_sweep import (
    CASES,
    Programs,
    calls,
    described,
    differences,
    drawn,
    hasty,
    problem,
    untrimmed,
)

import tenon


def as_by_users(some):
    with untrimmed():
        found = ((call, inside, problem(call, inside)) for call in some for inside in (False, True))
        return [described(call, inside, wrong) for call, inside, wrong in found if wrong]


def test_some_programs_compute_what_the_functions_do():
    CASES.clear()

    assert not as_by_users(drawn(24, seed=3))
    assert CASES["has a program"] > 8


def test_some_programs_run_at_once_compute_what_the_functions_do():
    made, wrong, cases = differences(drawn(80, seed=5))

    assert made == 80 and not wrong
    assert cases["has a program"] > 20


@pytest.mark.slow
def test_more_programs_compute_what_the_functions_do():
    assert not as_by_users(drawn(150, seed=4))
    assert not differences(drawn(3000, seed=6))[1]


def test_the_sweep_finds_a_program_that_differs(monkeypatch):
    call = next(calls(only="sinh"))
    with hasty():
        assert problem(call) is None is Programs().problem(call)

    monkeypatch.setattr(type(tenon.ops.sinh), "expression", "cosh(a)")
    monkeypatch.setattr(np, "sinh", np.cosh)

    assert "eager" in problem(call)
    with hasty():
        assert "eager" in Programs().problem(call)


def test_the_parts_of_the_sweep_are_all_of_its_calls():
    assert sorted(map(str, calls(only="sinh"))) == sorted(
        str(call) for part in range(3) for call in calls(part, 3, only="sinh")
    )
