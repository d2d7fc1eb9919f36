"""Compiled functions compute what eager ones do, for operands of all dtypes and kinds, and in all forms of a call.

All 360,000 calls are made by hand: ``python tests/parity/compiled_sweep.py``.
"""

import numpy as np
import pytest
from parity.compiled_sweep import CASES, calls, described, drawn, problem, untrimmed

import tenon


def differences(some):
    with untrimmed():
        found = ((call, inside, problem(call, inside)) for call in some for inside in (False, True))
        return [described(call, inside, wrong) for call, inside, wrong in found if wrong]


def test_some_programs_compute_what_the_functions_do():
    CASES.clear()

    assert not differences(drawn(24, seed=3))
    assert CASES["has a program"] > 8


@pytest.mark.slow
def test_more_programs_compute_what_the_functions_do():
    assert not differences(drawn(150, seed=4))


def test_the_sweep_finds_a_program_that_differs(monkeypatch):
    call = next(calls(only="sinh"))
    assert problem(call) is None

    monkeypatch.setattr(type(tenon.ops.sinh), "expression", "cosh(a)")
    monkeypatch.setattr(np, "sinh", np.cosh)

    assert "eager" in problem(call)
