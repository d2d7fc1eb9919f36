"""Programs of collectives with one planted difference: found and named on every rank, or proved harmless.

A program is harmless if every rank ends with the values of the program without the difference. Others are
reduced to the fewest statements, and printed with their seed: ``TENON_ATTACK_SEED`` and ``TENON_ATTACK_PROGRAMS``
choose others.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tenon.distributed.communication.threaded import run_ranks
from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

import collective_programs as programs

SEED = int(os.environ.get("TENON_ATTACK_SEED", "1"))
COUNT = int(os.environ.get("TENON_ATTACK_PROGRAMS", "60"))


def verdicts(made):
    """The verdict of each program, on ranks as threads."""
    ranks = run_ranks(3, lambda communicator: programs.outcomes(communicator.rank, made))
    return {name: programs.judge(program, [told[name] for told in ranks]) for name, program in made.items()}


def check(found, made):
    """Fail with the smallest form of each program that is neither found nor harmless."""
    wrong = {name: verdict for name, verdict in found.items() if verdict not in ("found", "harmless")}
    reports = [f"seed {name}: {verdict}\n{shrunk(made[name]).source()}" for name, verdict in wrong.items()]
    assert not wrong, f"{len(wrong)} of {len(made)} programs:\n" + "\n\n".join(reports[:3])
    return Counter(found.values())


def shrunk(program):
    """``program`` without the statements that it does not need to go wrong."""
    for smaller in programs.smaller(program):
        if verdicts({"smaller": smaller})["smaller"] not in ("found", "harmless"):
            return shrunk(smaller)
    return program


def test_differences_in_a_few_programs_are_found_or_harmless():
    made = {str(seed): programs.make(seed) for seed in range(8)}

    assert check(verdicts(made), made)["found"] >= 4


@pytest.mark.slow
def test_differences_in_many_programs_are_found_or_harmless():
    made = {str(seed): programs.make(seed) for seed in range(SEED, SEED + COUNT)}

    counted = check(verdicts(made), made)

    assert counted["found"] > counted["harmless"]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("communicator", ["mpi-shared", "mpi-messages"])
def test_differences_between_processes_are_found_or_harmless(tmp_path, communicator):
    count = max(1, COUNT // 5)
    arguments = [str(Path(programs.__file__)), str(tmp_path), str(SEED), str(count)]
    done = launch(3, arguments, TENON_COMMUNICATOR=communicator)

    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    made = {str(seed): programs.make(seed) for seed in range(SEED, SEED + count)}
    check({name: programs.judge(made[name], [told[name] for told in ranks]) for name in made}, made)
