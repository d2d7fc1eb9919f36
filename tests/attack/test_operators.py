"""Random calls of every function, in tenon and in torch: results, dtypes, gradients and errors are torch's or explained.

A call is a case of the catalogue whose operands are drawn by a seed: a dtype each, some 0-d, some with large numbers, some
a Python number or a NumPy scalar. What differs must fit a rule of ``docs/dtype-differences.md``, and what is raised must be
an error for callers. More by hand: ``python tests/attack/test_operators.py 100000 --seed 7``.
"""

import argparse
import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))
from parity.catalogue import read
from parity.dtype_rules import rule_of
from parity.dtype_sweep import DTYPES, NUMBERS, Operand, call_of, slots
from parity.dtype_table import difference

CASES = [c for c in read() if c.kind == "function" and any(True for _ in slots(call_of(c)))]
#: One call in so many is compiled, which takes as long as twenty others.
COMPILED = 40


def drawn(draw, case):
    """Operands for ``case``: most of its own kind, of one dtype."""
    common = draw.choice(DTYPES)
    operands = []
    for kind in slots(call_of(case)):
        if draw.random() < (0.15 if kind[0] in "fpuqsczd" else 0.85):
            operands.append(None)
            continue
        dtype = common if draw.random() < 0.7 else draw.choice(DTYPES)
        number = draw.choice(NUMBERS) if draw.random() < 0.06 else None
        operands.append(Operand(dtype, draw.random() < 0.1, draw.random() < 0.1, number))
    return tuple(operands)


def attacked(count, seed):
    """The differences without a reason in ``count`` random calls."""
    draw = random.Random(seed)
    for number in range(count):
        case = draw.choice(CASES)
        operands = drawn(draw, case)
        found = difference(case, operands, compiled=number % COMPILED == COMPILED - 1)
        if found is not None and rule_of(found) is None:
            yield f"call {number}: {found}"


@pytest.mark.oracle
def test_random_calls_are_torchs():
    pytest.importorskip("torch")

    assert not list(attacked(30, seed=1))


@pytest.mark.slow
@pytest.mark.oracle
def test_3000_random_calls_are_torchs():
    pytest.importorskip("torch")

    assert not list(attacked(3000, seed=24))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong = 0
    for line in attacked(options.count, options.seed):
        wrong += 1
        print(line, flush=True)
    print(f"{options.count} calls, {wrong} without a reason")
    sys.exit(bool(wrong))
