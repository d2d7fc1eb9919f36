"""The order of steps of a program: less peak memory, the same values, effects in order."""

import numpy as np
import pytest

from tenon.graph.interpreter import Interpreter
from tenon.graph.ops import host_draw
from tenon.graph.passes.schedule import schedule
from tenon.graph.program import Program

BRANCHES, WIDTH = 8, 1 << 15


def peak(m, backend, passes):
    """Planned bytes and bound of a program, whose values are checked."""
    expected, _ = Interpreter(m.graph, backend).run(m.copies())
    program = Program(m.graph, backend, passes)
    program.bind(m.copies())
    program.run()
    for ref, value in zip(m.graph.outputs, expected, strict=True):
        np.testing.assert_array_equal(program.value(ref), value)
    return program.plan.peak_bytes, program.plan.lower_bound


def branches(make, total):
    """All large values first, then what they are needed for."""
    m = make()
    x = m.input(WIDTH)
    large = [m.cumsum(m.mul(x, float(i)), axis=0) for i in range(BRANCHES)]
    small = [m.amax(value, axes=(0,)) for value in large]
    m.returns(*(small if not total else [m.cat(*(m.reshape(s, shape=(1,)) for s in small), axis=0)]))
    return m


@pytest.mark.parametrize("total", [False, True])
def test_values_are_made_when_they_are_needed(make, backend, total):
    before, bound = peak(branches(make, total), backend, ())
    after, least = peak(branches(make, total), backend, (schedule,))

    assert before >= bound >= BRANCHES * WIDTH * 4
    assert after <= 2 * WIDTH * 4 + 4096, "two large values at one time are enough"
    assert after <= 1.05 * least + 4096


def test_an_order_that_is_as_good_stays(make):
    m = make()
    x = m.input(WIDTH)
    for _ in range(4):
        x = m.cumsum(x, axis=0)
    m.returns(x)
    order = list(m.graph.nodes)

    schedule(m.graph)

    assert m.graph.nodes == order


def test_effects_keep_their_order(make, backend):
    drawn = []
    m = make()
    x = m.input(WIDTH)

    def draw(i):
        def call():
            drawn.append(i)
            return np.zeros(WIDTH, np.float32)

        return m.graph.call(host_draw, (), {"make": call}, (x.aval,)).out()

    large = [m.cumsum(m.add(x, draw(i)), axis=0) for i in range(BRANCHES)]
    m.returns(*[m.amax(value, axes=(0,)) for value in reversed(large)])
    program = Program(m.graph, backend, (schedule,))
    program.bind(m.copies())

    program.run()

    assert drawn == list(range(BRANCHES))


def test_memory_is_written_in_place_as_the_last_readers_of_its_old_value_come_first(make):
    m = make()
    weight, x = m.input(WIDTH), m.input(WIDTH)
    slope = m.cumsum(x, axis=0)
    others = [m.cumsum(m.mul(x, float(i)), axis=0) for i in range(4)]
    old = m.amax(m.cumsum(weight, axis=0), axes=(0,))
    m.returns(old, *(m.amax(other, axes=(0,)) for other in others))
    m.writes(weight, m.sub(weight, slope))
    before = list(m.graph.nodes)

    schedule(m.graph)

    assert m.graph.nodes != before
    readers = [n for n in m.graph.calls if weight in n.args]
    assert [n.op.name for n in readers] == ["cumsum", "sub"]
