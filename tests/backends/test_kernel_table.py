"""The table of a backend's kernels: one row adds one, the first that accepts computes, the others say why not."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools

import numpy as np
import pytest
from click.testing import CliRunner

import tenon
from tenon import errors, ops
from tenon.cli import main
from tenon.extend import (
    Backend,
    Condition,
    KernelRow,
    KernelTable,
    ShortKernel,
    dtype_is,
    requires,
    size_at_least,
)
from tenon.profiler.observe.kernel_report import call_of, chosen, explain

pytestmark = pytest.mark.together

CPU = tenon.zeros(1)._backend


class Mine(Backend):
    """NumPy, with the rows that a test gives."""

    name, xp, array_type = "mine", np, np.ndarray

    def __init__(self, **rows):
        super().__init__()
        self.listed = rows

    def kernel_table(self):
        table = KernelTable()
        for op, rows in self.listed.items():
            table.add(op, *rows)
        return table


def test_one_row_adds_a_kernel():
    backend = Mine(exp=[KernelRow("a constant", lambda x: np.full_like(x, 7))])

    assert backend.kernels[ops.exp](np.zeros(3)).tolist() == [7, 7, 7]
    assert backend.raw.exp(np.zeros(1)).tolist() == [7]
    assert backend.has_kernel(ops.exp)
    assert not backend.has_kernel(ops.log)


def test_the_first_row_that_accepts_computes_and_the_reference_comes_last():
    def one(x, *, axis):
        return np.full(x.shape, 1.0)

    def other(f, x):
        return f.exp(x)

    backend = Mine(
        softmax=[
            KernelRow("large", one, (size_at_least("x", 4), dtype_is("float64", "x"))),
            KernelRow(
                "by the last axis", other, (requires(lambda x, axis: axis == x.ndim - 1, "last axis"),)
            ),
        ]
    )
    softmax = backend.kernels[ops.softmax]

    assert softmax(np.zeros(4), axis=0).tolist() == [1] * 4
    assert softmax(np.ones(3), axis=0).tolist() == np.exp(np.ones(3)).tolist()
    assert softmax(np.zeros((2, 1)), axis=0).tolist() == [[0.5], [0.5]]


def test_a_row_that_declines_leaves_the_call_to_the_next():
    def declines(x):
        return NotImplemented if x.size == 1 else x + 1

    backend = Mine(exp=[KernelRow("some", declines, declines="arrays of one element")])

    assert backend.kernels[ops.exp](np.zeros(2)).tolist() == [1, 1]
    assert backend.kernels[ops.exp](np.zeros(1)).tolist() == [1]
    assert [(row.name, why) for row, why in backend.choice(ops.exp).explain([np.zeros(1)], {})] == [
        ("some", "declines: arrays of one element"),
        ("reference", ""),
    ]


def test_rows_that_need_what_the_machine_lacks_are_left_out():
    backend = Mine(exp=[KernelRow("elsewhere", lambda x: x, installed=lambda: False)])

    assert not backend.has_kernel(ops.exp)
    assert backend.kernels[ops.exp] is np.exp


def test_the_reasons_are_those_of_the_choice():
    choice = CPU.choice(ops.softmax)
    for shape, axis in (((4, 4), 1), ((64, 64), 0), ((64, 64), 1), ((128, 128), 1)):
        x = np.ones(shape, np.float32)
        *refused, (taken, why) = choice.explain([x], {"axis": axis})

        assert why == ""
        assert all(reason for _, reason in refused)
        made = CPU.kernels[ops.softmax](x, axis=axis)
        np.testing.assert_array_equal(made, np.full(shape, 1 / shape[axis], np.float32))
        assert taken in choice.rows


def test_half_precision_is_rounded_as_one_op():
    def wide(f, x):
        assert x.dtype == np.float32
        return x * np.float32(1.001)

    backend = Mine(leaky_relu=[KernelRow("some", wide, (size_at_least("x", 2),))])
    x = np.ones(3, np.float16)

    assert backend.kernels[ops.leaky_relu](x).dtype == np.float16


def test_an_op_is_listed_once_and_by_its_name():
    table = KernelTable()
    table.add("exp")
    with pytest.raises(errors.BackendError, match=r"exp.*one place"):
        table.add("exp")
    with pytest.raises(errors.BackendError, match="unknown ops"):
        assert Mine(no_such_op=[]).table


def test_every_condition_of_the_cpu_reads_arguments_of_its_op():
    for name in CPU.table:
        choice = CPU.choice(ops.__getattr__(name))
        arguments = {p.name for p in choice.parameters}
        for row in choice.rows:
            for condition in row.accepts:
                read = {n.id for n in ast.walk(ast.parse(condition.code)) if isinstance(n, ast.Name)}
                assert read <= arguments | set(condition.names) | set(dir(builtins)), f"{name}, {row.name}"
                assert condition.says


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["cross_entropy"], ["NumPy, blocks of rows", "reference", "every call"]),
        (
            ["cross_entropy", "--shape", "64x10", "--shape", "64:int64", "--shape", "none"],
            ["x has 3 axes or more (here 2)", "TAKES the call"],
        ),
        (["softmax", "--shape", "200x100.T", "--attr", "axis=0", "--dtype", "float64"], ["axis is the last"]),
        (["add", "--shape", "3", "--shape", "=2.5"], ["reference", "TAKES"]),
        ([], ["softmax", "matmul"]),
    ],
)
def test_the_doctor_prints_rows_and_reasons(arguments, expected):
    result = CliRunner().invoke(main, ["doctor", "kernels", *arguments], env={"COLUMNS": "200"})

    assert result.exit_code == 0, result.output
    for text in expected:
        assert text in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["softmaxx"], "Near: softmax"),
        (["softmax", "--shape", "3"], "argument: 'axis'. It takes x as --shape"),
        (["softmax", "--device", "nowhere"], "nowhere"),
        (["softmax", "--shape", "64,256"], "cannot read --shape '64,256'. Write the sizes as 64x256"),
        (["softmax", "--shape", "64x256:real"], "no dtype named 'real'"),
        (["softmax", "--shape", "64x256", "--dtype", "real"], "no dtype named 'real'"),
        (["add", "--shape", "=2,5x"], "a number as =0.5"),
        (["add", "--shape", "-1"], "cannot make an array for --shape '-1'"),
        (["add", "--shape", "9" * 18 + "x9"], "cannot make an array for --shape"),
    ],
)
def test_the_doctor_says_what_is_wrong_with_a_question(arguments, message):
    result = CliRunner().invoke(main, ["doctor", "kernels", *arguments])

    assert result.exit_code == 1
    assert message in result.output


class Recording(type(CPU)):
    """The CPU's backend, which records the name of each kernel that computes a call."""

    def __init__(self):
        super().__init__()
        self.computed = []

    def rows(self, op):
        return [self._recording(op, row, row.kernel) for row in super().rows(op)]

    def kernels_for_short(self, op):
        return [self._recording_short(op, short, short.kernel) for short in super().kernels_for_short(op)]

    def _recording(self, op, row, kernel):
        def recording(*args, **attrs):
            result = kernel(*args, **attrs)
            if result is not NotImplemented:
                self.computed.append((op, row.name))
            return result

        own = recording if isinstance(kernel, np.ufunc) else functools.wraps(kernel)(recording)
        return dataclasses.replace(row, kernel=own)

    def _recording_short(self, op, short, kernel):
        def recording(following, *args, **attrs):
            passed = []

            def next_(*args, **attrs):
                passed.append(args)
                return following(*args, **attrs)

            result = kernel(next_, *args, **attrs)
            if not passed:
                self.computed.append((op, short.name))
            return result

        return dataclasses.replace(short, kernel=recording)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("size", [6, 96], ids=["small", "large"])
@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("add", ["NxN", "NxN"], []),
        ("softmax", ["NxN"], ["axis=1"]),
        ("softmax", ["NxN"], ["axis=0"]),
        ("log_softmax", ["NxN"], ["axis=1"]),
        ("gelu", ["NxN"], []),
        ("leaky_relu", ["NxN"], []),
        ("layer_norm", ["NxN", "N", "N"], ["rank=1"]),
        ("matmul", ["NxN", "NxN"], []),
        ("sum", ["NxN"], ["axes=(1,)"]),
        ("sum_to", ["NxN"], ["shape=(N,)"]),
        ("exp", ["NxN.T"], []),
        ("where", ["NxN:bool", "NxN", "NxN"], []),
    ],
)
def test_the_doctor_names_the_kernel_that_computes(name, shapes, attrs, size, dtype):
    backend, op = Recording(), getattr(ops, name)
    shapes, attrs = ([text.replace("N", str(size)) for text in texts] for texts in (shapes, attrs))
    *_, (named, why) = chosen(backend, name, shapes, dtype, attrs)
    backend.computed.clear()

    args, named_args = call_of(backend, op, shapes, dtype, attrs)
    backend.kernel_for(op, args)(*args, **named_args)

    assert why == "TAKES the call"
    assert named == [kernel for computed, kernel in backend.computed if computed is op][-1]


def test_a_backend_of_16_bit_kernels_is_explained_by_what_it_passes_on():
    def large(following, x):
        return x if x.size > 4 else following(x.astype(np.float32)).astype(x.dtype)

    class Short(Mine):
        def kernels_for_short(self, op):
            return [ShortKernel("large", large, "x has more than 4 elements")]

    class Overriding(Mine):
        def for_short(self, op, kernel):
            return functools.partial(large, kernel)

    row = KernelRow("of float32", lambda x: x + 1, (dtype_is("float32", "x"),))
    for backend, name in ((Short(exp=[row]), "large"), (Overriding(exp=[row]), "for_short")):
        converts = (name, "converts the arguments for the rows below, and their result")
        small = np.zeros(3, np.float16)

        assert list(explain(backend, ops.exp, [np.zeros(8, np.float16)], {})) == [(name, "")]
        assert list(explain(backend, ops.exp, [small], {})) == [converts, ("of float32", "")]
        assert list(explain(backend, ops.exp, [np.zeros(3, np.float32)], {})) == [("of float32", "")]
        assert backend.short_kernels[ops.exp](small).tolist() == [1, 1, 1]


def test_conditions_join():
    either = size_at_least("x", 5) | Condition("flag", "it is wanted", {"flag": False})

    assert either.says == "x has 5 elements or more, or it is wanted"
    assert eval(either.code, {**either.names, "x": np.zeros(5)})


def test_a_size_that_several_rows_compare_is_read_once():
    def row(least, value):
        return KernelRow(str(least), lambda x: np.full_like(x, value), (size_at_least("x", least),))

    backend = Mine(exp=[row(8, 1), row(4, 2)])

    assert backend.choice(ops.exp).source().count("x.size") == 1
    assert [backend.kernels[ops.exp](np.zeros(n))[0] for n in (9, 5, 2)] == [1, 2, 1]
