"""The history of instruction counts: its lines, their order, and the plot."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import history

AGES = {"aaa": 1, "bbb": 2, "ccc": 3}


def line(commit, **instructions):
    return {"commit": commit, "date": "2026-01-01", "subject": "Do < that", "instructions": instructions}


def test_lines_are_in_the_order_of_their_commits_and_are_replaced():
    lines = [line("aaa", add=100), line("ccc", add=90)]

    lines = history.put(lines, line("bbb", add=110), AGES.get)
    lines = history.put(lines, line("ccc", add=95), AGES.get)

    assert [(each["commit"], each["instructions"]["add"]) for each in lines] == [
        ("aaa", 100),
        ("bbb", 110),
        ("ccc", 95),
    ]


def test_ratios_are_to_the_first_line_that_has_the_work():
    lines = [line("aaa", add=100), line("bbb", add=110, note=50), line("ccc", add=95, note=40)]

    assert history.ratios(lines) == {"add": [(0, 1.0), (1, 1.1), (2, 0.95)], "note": [(1, 1.0), (2, 0.8)]}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_plot_is_svg_with_a_line_for_each_work(count):
    lines = [line("aaa", add=100, note=50), line("bbb", add=110, note=50), line("ccc", add=95, note=40)][
        :count
    ]

    root = ElementTree.fromstring(history.drawn(lines))

    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == (2 if count else 0)


def test_the_stored_history_is_read_and_drawn():
    lines = history.read()

    assert lines and all(each["instructions"] for each in lines)
    assert history.PLOT.read_text() == history.drawn(lines)
