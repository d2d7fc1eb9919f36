"""Ops whose forward is their expression, and expressions as the reference of every op that has one."""

import numpy as np
import pytest

import tenon
from tenon.engine.op import Kind, table
from tenon.kernels import expressions
from tenon.kernels.backend import backend_named
from tenon.ops.elementwise import Unary
from tenon.testing import samples

pytestmark = pytest.mark.together

FORMULAS = sorted(
    op.name for op in table if op.expression is not None and op.kind is Kind.ELEMENTWISE and op.name != "cast"
)


@pytest.mark.parametrize("name", FORMULAS)
def test_the_expression_computes_what_the_op_does(name):
    op, backend = table[name], backend_named("cpu")
    for sample in samples.of(name):
        args = sample.arrays(np.float64)
        if op.promotion == "float" and any(getattr(a, "dtype", np.dtype(float)).kind in "iub" for a in args):
            continue  # dispatch makes floats of them first
        if not any(isinstance(a, np.ndarray) for a in args[op.promoted_from :]):
            continue  # of numbers alone dispatch makes an array first
        with np.errstate(all="ignore"):
            expected = backend.kernels[op](*args, **sample.attrs)
            made = expressions.evaluate(op, table.by_name, np, tuple(args), sample.attrs)

        expected = expected[0] if isinstance(expected, tuple) else expected
        if expected.dtype.kind == "f" and any(getattr(a, "dtype", expected.dtype).kind == "c" for a in args):
            continue  # clusters take no complex numbers, and an expression keeps their dtype
        assert made.dtype == expected.dtype
        np.testing.assert_allclose(made, expected, rtol=1e-12, atol=1e-14, err_msg=str(sample))


@pytest.fixture
def softsign():
    class Softsign(Unary):
        """``a / (1 + |a|)``, and ``slope * a`` below 0."""

        public = False  # of this test only
        expression = "a / (1 + abs(a)) if a > 0 else a * slope"
        float_only = True
        saves = ("x",)

        def infer(self, x, *, slope=0.5):
            return super().infer(x)

        def vjp_x(self, f, g, out, x, *, slope=0.5):
            size = f.add(f.abs(x), 1.0)
            return f.mul(g, f.where(f.gt(x, 0), f.reciprocal(f.mul(size, size)), slope))

    op = Softsign()
    yield op
    del table.by_name[op.name]
    delattr(table, op.name)


def reference(x, slope=0.5):
    return np.where(x > 0, x / (1 + abs(x)), x * slope)


@pytest.mark.parametrize("dtype", [tenon.float32, tenon.float64, tenon.float16, tenon.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (3, 4), (64, 512)], ids=str)
def test_an_op_without_a_forward_runs_by_its_expression(softsign, dtype, shape):
    x = tenon.randn(*shape).to(dtype)
    y = softsign(x, slope=0.25)

    assert y.dtype is dtype and y.shape == shape
    rounded = tenon.tensor(reference(x.double().numpy(), 0.25)).to(dtype)
    assert tenon.allclose(y.double(), rounded.double(), rtol=2 * tenon.finfo(dtype).eps, atol=0)
    assert tenon.equal(softsign(x), softsign(x, slope=0.5))


def test_its_gradient_flows(softsign):
    x = tenon.randn(5, dtype=tenon.float64, requires_grad=True)

    assert tenon.autograd.gradcheck(softsign, (x,))


def test_it_runs_in_one_kernel_with_its_neighbours(softsign):
    x = tenon.randn(128, 256)
    step = tenon.compile(lambda x: tenon.exp(softsign(x * 2.0)).sum(1))
    for _ in range(3):
        found = step(x)

    expected = np.exp(reference(2 * x.numpy())).sum(1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    calls = [n.label or n.op.name for n in step.programs[0].graph.calls if not n.op.view]
    assert calls == ["mul+softsign+exp+sum"]


def test_an_expression_that_is_an_operand_is_copied():
    x = np.arange(3.0)

    assert expressions.evaluate(table["clone"], table.by_name, np, (x,), {}) is not x
