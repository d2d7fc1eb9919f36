"""What differs from torch by dtype is what ``docs/dtype-differences.md`` says, and nothing else."""

import re

import pytest
from parity.catalogue import read
from parity.dtype_rules import RULES, rule_of
from parity.dtype_sweep import variations
from parity.dtype_table import PAGE, calls, described, difference, page

pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

ROWS = re.findall(r"^\| (.*?) \| (.*?) \| (`.*) \|$", PAGE.read_text(), re.MULTILINE)
#: The 235,000 calls of the sweep are made by hand: ``python tests/parity/dtype_table.py``.
EVERY = 150


def unexplained(some):
    found = (difference(case, operands) for case, operands in some)
    return [str(d) for d in found if d is not None and rule_of(d) is None]


def test_the_page_has_the_rules_as_rows():
    keys = {rule.what: rule.key for rule in RULES}
    examples = {keys[what]: example for what, _, example in ROWS}

    assert PAGE.read_text() == page(examples)
    assert set(examples) == set(keys.values())


def test_some_calls_differ_for_known_reasons_only():
    assert not unexplained(calls(part=11, every=6000))


@pytest.mark.slow
def test_more_calls_differ_for_known_reasons_only():
    assert not unexplained(calls(part=7, every=EVERY))


@pytest.mark.slow
def test_each_example_of_the_page_differs_for_its_reason():
    cases = {str(case): case for case in read() if case.kind == "function"}
    wrong = []
    for what, _, example in ROWS:
        case = cases[example.split("`")[1]]
        operands = next(o for o in variations(case) if described(case, o) == example)
        found = difference(case, operands)
        rule = None if found is None else rule_of(found)
        if rule is None or rule.what != what:
            wrong.append((example, str(found)))

    assert not wrong
