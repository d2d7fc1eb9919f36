"""Every row of the catalogue of failures on real ranks: the job ends as stated, and the guide has the row."""

import functools
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))  # the catalogue is a program too, and no package

from happening import PROGRAMS, check, happen, held_up, soon
from what_happens import EVENTS, GUIDE, HARMLESS, harmless_rows, read, rows

pytestmark = pytest.mark.mpi


@pytest.mark.slow
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_a_job_ends_as_the_catalogue_says(event, tmp_path):
    def ended(folder):
        ending = happen(event, folder)
        if held_up(ending.err):
            return ending, math.inf
        check(event, ending)
        return ending, ending.seconds if event.timed else 0.0

    soon(ended, event.limit, tmp_path)


def test_the_tables_of_the_guide_are_those_of_the_catalogue():
    guide = GUIDE.read_text()

    assert [row[:-1] for row in read(guide, "events")] == [row[:-1] for row in rows({})]
    assert all(row[-1] for row in read(guide, "events")), "run what_happens.py --write"
    assert read(guide, "harmless") == harmless_rows()


@functools.cache
def unusual(ranks):
    done = launch(ranks, [str(PROGRAMS / "unusual.py")])
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_unusual_ends_no_job_and_changes_no_result(name):
    np.testing.assert_allclose(unusual(3)[name], unusual(1)[name], rtol=1e-9, atol=1e-12)
