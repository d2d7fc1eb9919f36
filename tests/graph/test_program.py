"""Programs: planned memory, source, and equal results to the graph."""

import numpy as np
import pytest

from tenon import errors
from tenon.graph.interpreter import Interpreter
from tenon.graph.program import Program


def ran(m, backend, scalars=(), times=1, passes=()):
    """Return the program after some runs, its arrays, and the results of the interpreter."""
    expected = Interpreter(m.graph, backend).run(m.copies(), scalars)
    arrays = m.copies()
    program = Program(m.graph, backend, passes)
    program.bind(arrays)
    for _ in range(times):
        program.run(scalars)
    return program, arrays, expected


def test_a_training_step_writes_its_parameters_in_place(make, backend):
    m = make()
    x, w, lr = m.input(8, 4, label="x"), m.input(3, 4, label="weight"), m.scalar()
    hidden = m.relu(m.linear(x, w, None))
    loss = m.sum(hidden, axes=(0, 1))
    g = m.relu_grad(m.expand(m.new_full(loss, shape=(1, 1), value=1.0), shape=(8, 3)), hidden)
    step = m.mul(m.matmul(m.transpose(g, axis0=0, axis1=1), x), m.number("mul", lr, 2.0))
    m.returns(loss)
    m.writes(w, m.sub(w, step))

    program, arrays, (outputs, written) = ran(m, backend, [0.25])

    np.testing.assert_array_equal(program.value(loss), outputs[0])
    np.testing.assert_array_equal(arrays[w.node], written[w.node])
    assert "'unsafe')  # write" not in program.source, "the update should be computed in the parameter"


def test_a_parameter_read_after_its_update_is_copied_at_the_end(make, backend):
    m = make()
    w = m.input(5)
    new = m.mul(w, 2.0)
    m.returns(m.add(w, new))
    m.writes(w, new)

    program, arrays, (outputs, written) = ran(m, backend)

    np.testing.assert_array_equal(program.value(m.graph.outputs[0]), outputs[0])
    np.testing.assert_array_equal(arrays[w.node], written[w.node])
    assert "# write" in program.source


def test_two_parameters_change_places(make, backend):
    m = make()
    a, b = m.input(4), m.input(4)
    m.writes(a, b)
    m.writes(b, m.reshape(a, shape=(4,)))

    _, arrays, _ = ran(m, backend)

    np.testing.assert_array_equal(arrays[a.node], m.arrays[b.node])
    np.testing.assert_array_equal(arrays[b.node], m.arrays[a.node])


def test_the_old_value_of_a_written_input_can_be_returned(make, backend):
    m = make()
    w = m.input(2, 3)
    m.returns(m.transpose(w, axis0=0, axis1=1), w)
    m.writes(w, m.add(w, 1.0))

    program, arrays, _ = ran(m, backend)

    np.testing.assert_array_equal(program.value(m.graph.outputs[0]), m.arrays[w.node].T)
    np.testing.assert_array_equal(program.value(m.graph.outputs[1]), m.arrays[w.node])
    np.testing.assert_array_equal(arrays[w.node], m.arrays[w.node] + 1)


def test_nothing_is_written_before_the_last_step_that_can_fail(make, backend):
    m = make()
    w, rows, table = m.input(4), m.input(3, dtype=np.int64, high=2), m.input(2, 5)
    m.writes(w, m.add(w, 1.0))
    m.returns(m.gather(table, m.reshape(rows, shape=(1, 3)), axis=1))
    program = Program(m.graph, backend)
    arrays = m.copies()
    program.bind(arrays)

    arrays[rows.node][0] = 77
    with pytest.raises(IndexError) as failed:
        program.run()

    assert any("gather" in note and "int64[1, 3]" in note for note in failed.value.__notes__)
    np.testing.assert_array_equal(arrays[w.node], m.arrays[w.node])


def test_views_cost_no_line_and_a_reshape_that_must_copy_does(make, backend):
    m = make()
    x = m.input(4, 6)
    turned = m.transpose(x, axis0=0, axis1=1)
    m.returns(m.exp(m.reshape(turned, shape=(24,))), m.exp(m.index(turned, key=(slice(0, 2), None, 1))))

    program, _, (outputs, _) = ran(m, backend)

    for ref, expected in zip(m.graph.outputs, outputs, strict=True):
        np.testing.assert_array_equal(program.value(ref), expected)
    body = [line for line in program.source.splitlines() if line.startswith("    ")]
    assert len(body) == 3, program.source


def test_memory_of_a_long_chain_is_that_of_two_values(make, backend):
    m = make()
    x = m.input(1000)
    value = x
    for _ in range(20):
        value = m.cumsum(m.sin(value), axis=0)
    m.returns(value)

    program, _, (outputs, _) = ran(m, backend, times=3)

    np.testing.assert_array_equal(program.value(value), outputs[0])
    assert program.plan.lower_bound == 8000
    assert program.plan.peak_bytes <= 8192


def test_an_elementwise_result_takes_the_place_of_an_operand_that_dies(make, backend):
    m = make()
    x = m.input(64)
    value = m.exp(x)
    for _ in range(5):
        value = m.add(m.mul(value, 0.5), value)
    m.returns(value)

    program, _, (outputs, _) = ran(m, backend, times=2)

    np.testing.assert_array_equal(program.value(value), outputs[0])
    assert program.plan.peak_bytes == 2 * 256


def test_numbers_of_a_run_change_without_a_new_program(make, backend):
    m = make()
    x, rate = m.input(3), m.scalar("rate")
    m.returns(m.mul(x, m.number("pow", m.number("sub", 1.0, rate), 2)), rate)
    program = Program(m.graph, backend)
    program.bind(m.copies())

    for value in (0.5, 0.25):
        program.run([value])

        np.testing.assert_allclose(program.value(m.graph.outputs[0]), m.arrays[x.node] * (1 - value) ** 2)
        assert program.value(m.graph.outputs[1]) == value


def test_the_source_names_op_module_and_shapes(make, backend):
    m = make()
    x, w = m.input(2, 3, label="x"), m.input(4, 3, label="layers.0.weight")
    out = m.linear(x, w, None)
    out.node.module = "layers.0"
    m.returns(out)

    program, _, _ = ran(m, backend)

    assert "# v1 = layers.0.weight: float32[4, 3]" in program.source
    assert "linear [layers.0]: float32[2, 3], float32[4, 3], None -> float32[2, 4]" in program.source


def test_a_failing_step_says_what_it_was(make, backend):
    m = make()
    x = m.input(3, 4, label="scores")
    target = m.input(3, dtype=np.int64, high=4, label="target")
    loss = m.nll_loss(x, target, None)
    loss.node.module, loss.node.where = "head", "train.py:7"
    m.returns(loss)
    arrays = m.copies()
    program = Program(m.graph, backend)
    program.bind(arrays)
    arrays[target.node][1] = 9

    with pytest.raises(errors.IndexRangeError) as failed:
        program.run()

    assert failed.value.__notes__ == [
        "in step nll_loss [head]: float32[3, 4], int64[3], None -> float32[], recorded at train.py:7"
    ]


def test_arrays_of_another_shape_are_refused(make, backend):
    m = make()
    x = m.input(3, label="x")
    m.returns(m.exp(x))

    with pytest.raises(errors.GraphError, match=r"input 'x' is float32\[3\] in the graph, got float32\[4\]"):
        Program(m.graph, backend).bind({x.node: np.zeros(4, np.float32)})


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "bool"])
def test_dtypes_and_empty_arrays_run(make, backend, dtype):
    m = make()
    x, empty = m.input(3, 4, dtype=dtype), m.input(0, 4)
    turned = m.transpose(x, axis0=0, axis1=1)
    outs = [m.cast(turned, dtype=np.dtype("float32")), m.where(m.ne(x, 0), x, x), m.clone(turned)]
    outs += [m.sum(empty, axes=(0,)), m.exp(empty), m.index(empty, key=(slice(0, 0), 1))]
    m.returns(*outs)

    program, _, (outputs, _) = ran(m, backend)

    for ref, expected in zip(outs, outputs, strict=True):
        np.testing.assert_array_equal(program.value(ref), expected)
        assert program.value(ref).dtype == expected.dtype
