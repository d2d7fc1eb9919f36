"""Incompatible and unsupported dtypes raise the errors of torch."""

import pytest

import tenon
from tenon.nn import functional as F

pytestmark = pytest.mark.together

PRODUCTS = {
    "matmul": lambda t, x, y: x @ y,
    "mm": lambda t, x, y: t.mm(x, y),
    "vectors": lambda t, x, y: x[0] @ y[0],
    "vector and matrix": lambda t, x, y: x[0] @ y,
    "batched": lambda t, x, y: t.bmm(x[None], y[None]),
    "folded": lambda t, x, y: x[None] @ y,
    "linear": lambda t, x, y: t.nn.functional.linear(x, y),
    "einsum": lambda t, x, y: t.einsum("ij,jk->ik", x, y),
    "tensordot": lambda t, x, y: t.tensordot(x, y, 1),
    "addmm": lambda t, x, y: t.addmm(x, x, y),
}


@pytest.mark.oracle
@pytest.mark.parametrize(
    "dtypes", [("float32", "float64"), ("float32", "int64"), ("bfloat16", "float32")], ids=str
)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_of_two_dtypes_is_refused(parity, name, dtypes):
    def program(t):
        x, y = (t.ones(2, 2, dtype=getattr(t, d)) for d in dtypes)
        with pytest.raises(RuntimeError):
            PRODUCTS[name](t, x, y)
        return PRODUCTS[name](t, x, y.to(x.dtype))

    parity(program)


SYSTEMS = {
    "solve": lambda t, a, b: t.linalg.solve(a, b),
    "solve_ex": lambda t, a, b: t.linalg.solve_ex(a, b)[0],
    "from the right": lambda t, a, b: t.linalg.solve(a, b, left=False),
    "tensorsolve": lambda t, a, b: t.linalg.tensorsolve(a, b[0]),
    "triangular_solve": lambda t, a, b: t.triangular_solve(b, a)[0],
    "cholesky_solve": lambda t, a, b: t.cholesky_solve(b, a),
    "lstsq": lambda t, a, b: t.linalg.lstsq(a, b)[0],
    "vecdot": lambda t, a, b: t.linalg.vecdot(a, b),
    "householder_product": lambda t, a, b: t.linalg.householder_product(a, b[0]),
    "cdist": lambda t, a, b: t.cdist(a, b),
}


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float64", "complex64", "int64"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_of_two_dtypes_is_refused(parity, name, dtype):
    def program(t):
        a, b = t.eye(3) * 2 + 0.1, t.arange(9, dtype=t.float32).reshape(3, 3)
        with pytest.raises(RuntimeError):
            SYSTEMS[name](t, a, b.to(getattr(t, dtype)))
        return SYSTEMS[name](t, a, b)

    parity(program)


def test_a_system_of_two_dtypes_names_both():
    message = "linalg.solve: Expected A and B .* but found A of type Float and B of type Double instead"
    solve = tenon.compile(tenon.linalg.solve)
    for _ in range(3):
        with pytest.raises(TypeError, match=message):
            solve(tenon.eye(2), tenon.ones(2, 1, dtype=tenon.float64))


def test_autocast_still_brings_dtypes_together():
    x, y = tenon.ones(2, 2, requires_grad=True), tenon.ones(2, 2, dtype=tenon.bfloat16)

    with tenon.autocast("cpu", dtype=tenon.bfloat16):
        out = x @ y

    out.sum().backward()
    assert out.dtype is tenon.bfloat16 and x.grad.dtype is tenon.float32


def test_the_message_says_which_and_what_next():
    with pytest.raises(
        TypeError, match=r"float32 != float64 \(matmul of \[2, 3\] and \[3\]\).*\.to\(dtype\)"
    ):
        tenon.ones(2, 3) @ tenon.ones(3, dtype=tenon.float64)


@pytest.mark.parametrize(
    "loss", [F.cross_entropy, F.nll_loss, lambda x, y: F.softmax(x, 0), lambda x, y: F.gelu(x)]
)
def test_scores_must_be_floats(loss):
    with pytest.raises(NotImplementedError, match="not implemented for int64"):
        loss(tenon.ones(2, 3, dtype=tenon.int64), tenon.tensor([0, 1]))


@pytest.mark.oracle
@pytest.mark.parametrize("value", ["x", None, [1.0]], ids=str)
def test_a_tensor_is_filled_with_a_number(parity, value):
    def program(t):
        for fill in (t.nn.init.constant_, lambda x, v: x.fill_(v)):
            with pytest.raises(TypeError):
                fill(t.ones(2), value)

    parity(program)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["softplus", "softshrink"])
def test_these_activations_write_into_out(parity, name):
    def program(t):
        out = t.empty(0)
        made = getattr(t.nn.functional, name)(t.tensor([-1.0, 0.2, 3.0]), out=out)
        return made is out, out

    parity(program)


def test_a_range_includes_its_end_and_is_deprecated():
    with pytest.warns(UserWarning, match="Use arange"):
        assert tenon.range(0, 4, 2).tolist() == [0.0, 2.0, 4.0]
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="inconsistent with step sign"):
        tenon.range(0, 4, -1)


@pytest.mark.parametrize("dtype", [tenon.bool, tenon.uint8, tenon.int32, tenon.int64])
@pytest.mark.parametrize("pool", [F.adaptive_avg_pool1d, F.adaptive_avg_pool3d, F.adaptive_max_pool2d])
def test_uneven_windows_take_floats(pool, dtype):
    rank = int(pool.__name__[-2])

    with pytest.raises(NotImplementedError, match="not implemented for torch"):
        pool(tenon.ones(1, 2, *(4,) * rank, dtype=dtype), 2)


def test_an_op_that_numpy_has_not_for_a_dtype_is_not_implemented():
    for call, kind in (
        (lambda: tenon.bitwise_and(tenon.ones(2), tenon.ones(2)), "Float"),
        (lambda: tenon.gcd(tenon.ones(2).double(), tenon.ones(2).double()), "Double"),
        (lambda: tenon.floor(tenon.tensor([1j])), "ComplexFloat"),
    ):
        with pytest.raises(NotImplementedError, match=f"_cpu\" not implemented for '{kind}'"):
            call()
