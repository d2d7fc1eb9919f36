"""Each collective with one difference on one rank, of each kind: found and named on every rank, or harmless.

``tests/attack/collective_differences.py`` is the table. Groups in another order and ranks that die end the job,
so each of these has a job of its own.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tenon.distributed.communication.threaded import run_ranks
from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

import collective_differences as differences

CASES = differences.cases()


def check(ranks, names):
    """Every difference but lateness is found; lateness is harmless."""
    found = {name: differences.judge(CASES[name], [told[name] for told in ranks]) for name in names}
    wrong = {
        name: verdict
        for name, verdict in found.items()
        if verdict != ("harmless" if CASES[name].difference == "late" else "found")
    }
    assert wrong == {}
    return Counter(found.values())


def test_differences_in_a_few_collectives_are_found():
    forms = ("reduce, async", "all_gather_into_tensor", "gather_object", "functional.scatter", "barrier")
    names = [name for name in CASES if CASES[name].form in forms and CASES[name].difference != "late"]
    ranks = run_ranks(3, lambda communicator: differences.outcomes(communicator.rank, 3, names))

    assert check(ranks, names)["found"] > 25


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.manual)])
def test_differences_in_every_collective_are_found(size):
    names = [name for name in CASES if CASES[name].form not in differences.MESSAGES]
    ranks = run_ranks(size, lambda communicator: differences.outcomes(communicator.rank, size, names))

    assert check(ranks, names)["found"] > 300


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("communicator", "size"),
    [
        ("mpi-shared", 3),
        pytest.param("mpi-shared", 2, marks=pytest.mark.manual),
        pytest.param("mpi-messages", 2, marks=pytest.mark.manual),
        pytest.param("mpi-messages", 3, marks=pytest.mark.manual),
    ],
)
def test_differences_between_processes_are_found(tmp_path, communicator, size):
    done = launch(
        size,
        [str(Path(differences.__file__)), str(tmp_path), ""],
        TENON_COMMUNICATOR=communicator,
        timeout=240,
    )

    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(size)]
    assert check(ranks, list(CASES))["found"] > 300


#: What the last rank does in place of its call, and what the report says.
ENDS = {
    "os.kill(os.getpid(), signal.SIGKILL)": "was killed by SIGKILL",
    "os.kill(os.getpid(), signal.SIGSEGV)": "was killed by SIGSEGV",
    "os._exit(3)": "called os._exit(3)",
    "raise KeyError('x')": "failed with KeyError",
    "group": "ranks wait for each other in different groups",
}
FORMS = [form for form, template in differences.FORMS.items() if "{g}" in template]
MANY = [
    (form, end) for form in FORMS for end in ENDS if form != "all_to_all_single, uneven" or end != "group"
]
FEW = [("all_gather", "os.kill(os.getpid(), signal.SIGKILL)"), ("functional.reduce", "raise KeyError('x')"),
       ("barrier, async", "group")]  # fmt: skip


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("form", "end"),
    [*FEW, *(pytest.param(*case, marks=pytest.mark.manual) for case in MANY if case not in FEW)],
)
def test_a_rank_that_ends_or_calls_in_another_group_has_one_report(form, end):
    done = launch(3, [str(Path(differences.__file__)), "end", form, end])

    reports = re.findall(r"^=== tenon: (rank .*|ranks .*) ===$", done.stderr, re.MULTILINE)
    assert done.returncode != 0
    assert len(reports) == 1, done.stderr
    assert end == "group" or reports[0].startswith("rank 2 of 3") or "order is unknown" in reports[0], (
        done.stderr
    )
    assert ENDS[end] in done.stderr, done.stderr
