"""Collectives in another order on one rank raise an error on all ranks; legal programs run."""

import json
import re
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

import tenon as torch
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.nn import functional
from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent / "programs"))

import swapped

PROGRAMS = Path(__file__).parent / "programs"
COMPILED = [case.__name__ for case in swapped.COMPILED]


def check(messages, cases, deviating):
    """Check that all ranks raise errors that name both sides in ``cases``, and none in legal programs."""
    for rank, told in enumerate(messages):
        assert {name for name in cases if told[name] is None} == set(), rank
        assert {name: told[name] for name in swapped.LEGAL if told[name] is not None} == {}, rank
    for name in cases:
        assert len({told[name] for told in messages}) == 1, name
        assert f"rank {deviating} at" in messages[0][name], messages[0][name]


def test_every_kind_of_collective_in_another_order_raises_and_legal_branches_do_not():
    messages = run_ranks(3, lambda communicator: swapped.told(communicator.rank == 1))

    check(messages, swapped.CASES, 1)
    message = messages[0]["items_of_a_dict_in_a_wrapper"]
    assert "`tensor` (values['a']) at swapped.py:" in message
    assert "`tensor` (values['b']) at swapped.py:" in message
    assert ", called at swapped.py:" in message


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("communicator", ["mpi-shared", "mpi-messages"])
def test_ranks_as_processes_find_the_same_also_in_compiled_functions(tmp_path, communicator):
    arguments = [str(PROGRAMS / "swapped.py"), str(tmp_path), "1"]
    done = launch(3, arguments, TENON_COMMUNICATOR=communicator)

    assert done.returncode == 0, done.stderr
    messages = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    check(messages, [*swapped.CASES, *COMPILED], 1)


def test_calls_of_a_compiled_function_name_their_caller_when_eager_recorded_and_replayed():
    def run(communicator):
        shown, all_reduce = SimpleQueue(), communicator.all_reduce

        def noted(*args, name):
            shown.put(name.shown)
            return all_reduce(*args, name=name)

        communicator.all_reduce = noted
        summed = torch.compile(lambda x: functional.all_reduce(x) * 1)
        a, b = torch.ones(3), torch.ones(3)
        for _ in range(4):
            summed(a)
            summed(b)
        assert summed.reasons == ["compiled 3 nodes"]
        return [shown.get() for _ in range(8)]

    for shown in run_ranks(2, run):
        lines = [each.split("called at ")[1].partition(",")[0] for each in shown]

        assert len(set(lines)) == 2, shown
        assert lines == lines[:2] * 4, shown


SEARCHES = f"""
import sys
sys.path.insert(0, {str(PROGRAMS.parents[1] / "bench")!r})
import identity
import ranks
from tenon.distributed import get_communicator
from tenon.distributed.communication.site import Site

searches, choice = [], Site._choice

def counted(*args):
    searches.append(1)
    return choice(*args)

def measure(shared):
    for name, call in identity.ways(shared.size).items():
        if name == "all_reduce, numbers":
            def checked(call=call):
                for _ in range(12):
                    call()

            ranks.in_turns({{"one": checked, "other": checked}}, 20, 1, shared.barrier)

Site._choice = counted
measure(get_communicator())
print("searches", len(searches), flush=True)
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_a_call_whose_key_is_the_same_as_before_needs_no_search(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SEARCHES)
    done = launch(2, [str(program)], TENON_COMMUNICATOR="mpi-shared")

    counts = [int(each) for each in re.findall(r"searches (\d+)", done.stdout)]
    assert len(counts) == 2 and all(2 <= each <= 40 for each in counts), done.stdout + done.stderr
