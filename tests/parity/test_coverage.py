"""docs/coverage.md is up to date, and common models find all names they need."""

import inspect
from pathlib import Path

import pytest
from parity.catalogue import read
from parity.coverage import COMMAND, PAGE, areas, elsewhere, has, page, table
from parity.sides import find

import tenon

pytestmark = pytest.mark.together

ROOT = Path(__file__).resolve().parents[2]
TIERS = [(holder, number, names) for _, holder, tiers in areas() for number, names in tiers.items()]
IDS = [f"{holder or 'tenon'}-{number}" for holder, number, _ in TIERS]


def full(holder, name):
    return f"{holder}.{name}" if holder else name


def test_the_page_is_what_is_counted():
    assert PAGE.read_text(encoding="utf-8") == page(table()), f"stale; run: {COMMAND}"


@pytest.mark.parametrize("title", ["Tensor methods and attributes", "tenon.* functions", "nn.init"])
def test_nothing_of_tier_one_is_missing(title):
    assert [t.missing for t in table() if t.title == title and t.number == 1] == [[]]


@pytest.mark.oracle
@pytest.mark.parametrize(("holder", "number", "names"), TIERS, ids=IDS)
def test_every_listed_name_is_torchs(holder, number, names):
    torch = pytest.importorskip("torch")
    assert [n for n in names if not has(full(holder, n), torch)] == []


@pytest.mark.parametrize(("holder", "number", "names"), TIERS, ids=IDS)
def test_every_function_is_documented(holder, number, names):
    there = [n for n in names if has(full(holder, n))]

    silent = [n for n in there if callable(f := find(tenon, full(holder, n))) and not inspect.getdoc(f)]

    assert silent == []


def test_names_compared_elsewhere_name_tests_that_are_there():
    assert [path for path in set(elsewhere().values()) if not (ROOT / path).exists()] == []


def test_a_case_that_leaves_something_out_says_why():
    options = [c.content for c in read() if c.kind == "function" and isinstance(c.content, dict)]

    assert [o for o in options if set(o) - {"call"} and not o.get("why")] == []
