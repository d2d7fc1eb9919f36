"""Collectives that one rank makes in another order are found, by kind of program; the guide states how many."""

import json
import re
import sys
from pathlib import Path

import pytest

from tenon.distributed.communication.threaded import run_ranks
from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

import collective_swaps as swaps

GUIDE = Path(__file__).parents[2] / "docs/guide/distributed.md"
NAMED_PARAMETERS = {"hooks_of_parameters", "hooks_of_gradients"}
"""Ranks as threads have the parameters of all ranks, so that none has a name."""


def check(messages, deviating, kinds, excepted=()):
    """All ranks raise one error that names the rank in each program of ``kinds`` but those nothing
    distinguishes, and none in legal programs."""
    assert {name: told[name] for told in messages for name in swaps.LEGAL if told[name] is not None} == {}
    found, missed = set(), set()
    for kind in kinds:
        for name in swaps.SWAPS[kind]:
            (message,) = {told[name] for told in messages}
            assert message is None or f"rank {deviating} at" in message, message
            (missed if message is None else found).add(name)
    assert missed - set(excepted) == set(swaps.SWAPS[swaps.UNKNOWN])
    return len(found)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "deviating", "again"), [(3, 2, False), (2, 0, True)])
def test_another_order_is_found_in_every_kind_of_program_at_first_and_later(size, deviating, again):
    kinds = [kind for kind in swaps.SWAPS if kind != swaps.COMPILED]

    messages = run_ranks(size, lambda communicator: swaps.told(communicator.rank == deviating, kinds, again))

    check(messages, deviating, kinds, NAMED_PARAMETERS)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("communicator", "again"), [("mpi-shared", "again"), ("mpi-shared", "once"), ("mpi-messages", "again")]
)
def test_ranks_as_processes_find_the_same_and_as_many_as_the_guide_states(tmp_path, communicator, again):
    arguments = [swaps.__file__, str(tmp_path), "1", again]
    done = launch(3, arguments, TENON_COMMUNICATOR=communicator)

    assert done.returncode == 0, done.stderr
    messages = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    found = check(messages, 1, swaps.SWAPS)
    total = sum(map(len, swaps.SWAPS.values()))
    assert re.search(rf"{found} of {total} programs", GUIDE.read_text())
    assert f"{len(swaps.LEGAL)} legal programs" in GUIDE.read_text()
