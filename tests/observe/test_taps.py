"""Where ops are recorded: below casts, in place, inside composites, in memory of programs."""

import gc
import subprocess
import sys

import pytest

import tenon
from tenon import nn
from tenon.engine.interceptor import SLOT
from tenon.engine.op import table
from tenon.errors import ShapeError
from tenon.extend import observe
from tenon.profiler import profile
from tenon_profiler.convert import Converter


def spans(prof):
    """Names of the ops, with those of their children."""
    return {e.key: [c.key for c in e.cpu_children] for e in prof.events() if e.key != "[memory]"}


def test_a_change_in_place_is_one_op_that_allocates_nothing():
    x, y = tenon.ones(4, 4), tenon.ones(4, 4)

    with profile(record_shapes=True, profile_memory=True) as prof:
        x.add_(y)
        x[1:3] = 5.0
        x.mul_(2.0)

    assert x.sum().item() == (8 * 2 + 8 * 5) * 2
    changed = [e for e in prof.events() if not e.event.get("Program")]  # other tests' programs live on
    assert [(e.key, e.input_shapes) for e in changed] == [
        ("tenon::add", [[4, 4], [4, 4]]),
        ("tenon::copy", [[2, 4], []]),
        ("tenon::mul", [[4, 4], []]),
    ]


@pytest.mark.parametrize("casting", [False, True])
def test_an_op_that_is_made_of_others_shows_them_inside(casting):
    layer, x, y = nn.Linear(4, 3), tenon.randn(5, 4), tenon.randint(0, 3, (5,))

    with profile() as prof, tenon.autocast("cpu", dtype=tenon.bfloat16, enabled=casting):
        by_column = layer(x).t().contiguous().t()  # the kernel for small cases asks for contiguous rows
        nn.functional.cross_entropy(by_column, y)

    assert ("tenon::cast" in spans(prof)) == casting
    assert spans(prof)["tenon::cross_entropy"]
    assert SLOT.top is None


def test_ops_are_dispatched_as_before_when_a_profile_is_over():
    before = SLOT.single, SLOT.pair, SLOT.execute, SLOT.parts

    with profile():
        assert SLOT.pair is not before[1] and SLOT.top is None

    assert (SLOT.single, SLOT.pair, SLOT.execute, SLOT.parts) == before


def memory(prof):
    """Bytes, owner and program of each change, and the total after the last."""
    found = sorted((e for e in prof._all() if e.name == "[memory]"), key=lambda e: e.begin)
    return [(e.get("Bytes"), e.get("Op"), e.get("Program")) for e in found], found[-1].get("Total Allocated")


def test_the_memory_of_a_compiled_step_is_its_plan_and_ends_with_it(make_training):
    training = make_training()
    step = tenon.compile(training.step)
    for _ in range(4):
        step()
    (program,) = step.programs
    planned, name = program.plan.peak_bytes, program.name
    gc.collect()

    with profile(profile_memory=True) as prof:
        step()
        during = memory(prof)[1]
        del program, step
        gc.collect()

    changes, after = memory(prof)
    assert planned > 0
    owned = [c for c in changes if c[2] == name]
    assert owned == [(size, "tenon::program", name) for size in (planned, -planned)]
    assert during - after == planned


def test_a_program_that_is_made_in_a_profile_is_counted_from_then_on():
    work = tenon.compile(lambda x: ((x * 2.0).tanh() @ x).sum())
    x = tenon.randn(40, 40)

    with profile(profile_memory=True) as prof:
        for _ in range(4):
            work(x)

    (program,) = work.programs
    owned = [c for c in memory(prof)[0] if c[2] == program.name]
    assert owned == [(program.plan.peak_bytes, "tenon::program", program.name)]
    assert memory(prof)[1] >= program.plan.peak_bytes


FIRST = """
import tenon
from tenon.profiler import profile
with profile() as prof:
    x = tenon.ones(3, 3, requires_grad=True)
    (x @ x).sum().backward()
node = next(e for e in prof.events() if e.key == "MmBackward0")
print(*[child.key for child in node.cpu_children])
"""


@pytest.mark.slow
def test_gradients_are_seen_where_the_first_tensor_is_made_in_the_profile():
    done = subprocess.run(
        [sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=300, check=True
    )

    assert done.stdout.split().count("tenon::matmul") == 2


def test_an_end_that_another_thread_told_of_first_waits_for_its_beginning():
    converter = Converter(observe.own_clock())
    made = [observe.OP, table["add"], 10, 20, "", "forward", None, 64, None, None, 7]
    released = [observe.RELEASED, 30, 7]

    first, then = converter.convert([(1, released)]), converter.convert([(2, made)])

    assert first == []
    changes = [e for e in then if e.name == "[memory]"]
    assert [(e.tid, e.get("Bytes"), e.get("Total Allocated")) for e in changes] == [(2, 64, 64), (1, -64, 0)]


def test_what_makes_tensors_without_an_op_is_seen_and_owns_its_memory():
    x = tenon.rand(64)
    with profile(record_shapes=True, profile_memory=True) as prof:
        made = {
            "zeros": tenon.zeros(10), "full": tenon.full((11,), 2.0), "randn": tenon.randn(12), "randint": tenon.randint(3, (13,)),
            "tensor": tenon.tensor([1.0] * 14), "arange": tenon.arange(15), "rand_like": tenon.rand_like(x),
            "histc": tenon.histc(x, 17), "unique": x.unique(return_counts=True), "new_ones": x.new_ones(18),
        }  # fmt: skip
        tenon.nn.init.uniform_(x)

    rows = {row.key.removeprefix("tenon::"): row for row in prof.key_averages(group_by_input_shape=True)}
    sizes = {name: sum(t.nbytes for t in (v if isinstance(v, tuple) else (v,))) for name, v in made.items()}
    assert {name: rows[name].self_cpu_memory_usage for name in made} == sizes
    assert rows["histc"].input_shapes == [[64]]
    assert rows["uniform_"].count == 1
    assert rows["uniform_"].self_cpu_memory_usage == 0


def test_a_factory_that_fails_in_a_profile_says_what_it_says_without():
    with profile() as prof, pytest.raises(ShapeError, match="negative dimension -1"):
        tenon.zeros(-1)

    assert prof.events() == []
