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

    assert not as_by_users(drawn(12, seed=3))
    assert CASES["has a program"] > 4


@pytest.mark.slow
def test_some_programs_run_at_once_compute_what_the_functions_do():
    made, wrong, cases = differences(drawn(50, seed=5))

    assert made == 50 and not wrong
    assert cases["has a program"] > 12


@pytest.mark.slow
def test_more_programs_compute_what_the_functions_do():
    assert not as_by_users(drawn(150, seed=4))


@pytest.mark.parametrize(
    "dtype", ["uint8", *(pytest.param(name, marks=pytest.mark.slow) for name in ("int8", "int16", "int32"))]
)
def test_programs_compare_integers_with_the_true_value_of_a_number(dtype):
    x = tenon.tensor([0, 100, 127], dtype=getattr(tenon, dtype))

    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        for number in (-1, 300, -(2**40), 2**40, 2**62):
            function = tenon.compile(lambda x, name=name, number=number: getattr(tenon, name)(x, number))
            expected = getattr(np.array([0, 100, 127]), f"__{name}__")(number).tolist()
            assert [function(x).tolist() for _ in range(4)] == [expected] * 4


def test_a_matrix_product_times_a_bfloat16_number_is_compiled():
    call = next(c for c in calls(only="cdist") if str(c) == "cdist-7 of bfloat16, bfloat16")

    assert problem(call, inside=True) is None


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
