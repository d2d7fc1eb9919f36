"""Products, einsum and linear algebra against torch and NumPy: values, gradients, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon
from tenon.errors import GradError

oracle = pytest.mark.oracle


@oracle
@pytest.mark.parametrize(
    "call",
    [
        ("ij,jk->ik", "f:2,3", "f:4,5"),
        ("ij,jk->il", "f:2,3", "f:3,4"),
        ("ij->ii", "f:2,3"),
        ("ij,jk", "f:2,3"),
        ("i", "f:2,3"),
        ("ijk", "f:2,3"),
        ("ii", "f:2,3"),
        ("i1", "f:2,3"),
        ("......", "f:2,3"),
    ],
    ids=str,
)
def test_einsum_refuses_what_torch_refuses(compare, call):
    compare("einsum", call)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_einsum_is_numpys(data):
    sizes = {"a": 2, "b": 3, "c": 1, "d": 4}
    terms = data.draw(st.lists(st.text("abcd", max_size=4), min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    output = "".join(data.draw(st.permutations(used)))[: data.draw(st.integers(0, len(used)))]
    draw = np.random.default_rng(0)
    arrays = [draw.normal(size=[sizes[c] for c in term]) for term in terms]
    equation = f"{','.join(terms)}->{output}"

    ours = tenon.einsum(equation, *[tenon.from_numpy(np.asarray(a)) for a in arrays])

    np.testing.assert_allclose(ours.numpy(), np.einsum(equation, *arrays), rtol=1e-9, atol=1e-9)


@oracle
@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (2, 4, 3)], ids=str)
def test_qr_rebuilds_the_matrix_and_has_torchs_gradient(shape):
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(3).normal(size=shape)
    ours, theirs = (
        tenon.from_numpy(array.copy()).requires_grad_(),
        torch.from_numpy(array.copy()).requires_grad_(),
    )

    q, r = tenon.linalg.qr(ours)
    q2, r2 = torch.linalg.qr(theirs)
    (q.abs().sum() + (r * r).cos().sum()).backward()
    (q2.abs().sum() + (r2 * r2).cos().sum()).backward()

    np.testing.assert_allclose((q @ r).detach().numpy(), array, atol=1e-12)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), atol=1e-8)


@oracle
def test_eigh_rebuilds_the_matrix_and_has_torchs_gradient():
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(3).normal(size=(4, 4))
    array = array + array.T
    ours, theirs = (
        tenon.from_numpy(array.copy()).requires_grad_(),
        torch.from_numpy(array.copy()).requires_grad_(),
    )

    values, vectors = tenon.linalg.eigh(ours)
    values2, vectors2 = torch.linalg.eigh(theirs)
    (values.sin().sum() + vectors.abs().cos().sum()).backward()
    (values2.sin().sum() + vectors2.abs().cos().sum()).backward()

    np.testing.assert_allclose((vectors @ values.diag() @ vectors.mT).detach().numpy(), array, atol=1e-12)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), atol=1e-8)


@oracle
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3), (2, 4, 3)], ids=str)
def test_svd_has_torchs_gradient(shape):
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(7).normal(size=shape)
    grads = []

    for lib in (tenon, torch):
        x = lib.from_numpy(array.copy()).requires_grad_()
        u, s, vh = lib.linalg.svd(x, full_matrices=False)
        ((u * u).cos().sum() + s.sin().sum() + vh.abs().exp().sum()).backward()
        grads.append(x.grad.numpy())

    np.testing.assert_allclose(grads[0], grads[1], atol=1e-9)


@pytest.mark.parametrize("full", [True, False])
def test_svd_rebuilds_the_matrix(full):
    x = tenon.from_numpy(np.random.default_rng(4).normal(size=(5, 3)))

    u, s, vh = tenon.linalg.svd(x, full_matrices=full)

    np.testing.assert_allclose((u[:, :3] * s @ vh).numpy(), x.numpy(), atol=1e-12)
    assert tuple(u.shape) == ((5, 5) if full else (5, 3))


def test_pinv_and_lstsq_solve_the_least_squares_problem():
    draw = np.random.default_rng(5)
    a, b = draw.normal(size=(2, 6, 3)), draw.normal(size=(2, 6, 2))

    solution = tenon.linalg.lstsq(tenon.from_numpy(a), tenon.from_numpy(b)).solution

    np.testing.assert_allclose(solution.numpy(), np.linalg.pinv(a) @ b, atol=1e-10)
    np.testing.assert_allclose(tenon.linalg.pinv(tenon.from_numpy(a)).numpy(), np.linalg.pinv(a), atol=1e-10)
    np.testing.assert_allclose(tenon.from_numpy(a).pinverse().numpy(), np.linalg.pinv(a), atol=1e-10)


def test_a_function_without_gradient_refuses_a_tensor_that_requires_one():
    x = tenon.eye(3).requires_grad_()

    with pytest.raises(GradError, match=r"linalg.qr\(mode='r'\) has no gradient"):
        tenon.linalg.qr(x, "r")
    with tenon.no_grad():
        tenon.linalg.qr(x, "r")


def test_a_singular_matrix_is_named_in_the_error():
    with pytest.raises(
        tenon.linalg.LinAlgError,
        match=r"linalg.inv: .* the input matrix is singular. \(shapes \[\[2, 2\]\]\)",
    ):
        tenon.linalg.inv(tenon.ones(2, 2))


@oracle
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_factors_solve_from_both_sides(left, adjoint):
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(8)
    a, b = draw.normal(size=(2, 3, 3)), draw.normal(size=(2, 3, 3))
    found = []

    for lib in (tenon, torch):
        x = lib.from_numpy(a.copy()).requires_grad_()
        packed, pivots = lib.linalg.lu_factor(x)
        made = lib.linalg.lu_solve(packed, pivots, lib.from_numpy(b), left=left, adjoint=adjoint)
        made.sin().sum().backward()
        found.append((made.detach().numpy(), x.grad.numpy()))

    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-11)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-10)


@oracle
def test_packed_factors_are_unpacked_as_in_torch():
    torch = pytest.importorskip("torch")
    a = np.random.default_rng(9).normal(size=(2, 4, 3))

    ours, theirs = (lib.lu_unpack(*lib.linalg.lu_factor(lib.from_numpy(a))) for lib in (tenon, torch))

    for part, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(part.numpy(), expected.numpy(), atol=1e-12)


def test_a_singular_matrix_is_reported_and_not_raised_by_inv_ex():
    x = tenon.stack([tenon.eye(2), tenon.ones(2, 2)])

    inverse, info = tenon.linalg.inv_ex(x)

    assert info.tolist() == [0, 2]
    assert inverse[0].tolist() == [[1, 0], [0, 1]] and bool(inverse[1].isnan().all())
    with pytest.raises(tenon.linalg.LinAlgError, match="singular"):
        tenon.linalg.inv_ex(x, check_errors=True)


def test_the_zeroth_power_is_the_identity():
    assert tenon.linalg.matrix_power(tenon.full((2, 2, 2), 7.0), 0).tolist() == [[[1, 0], [0, 1]]] * 2


def test_condition_number_by_a_norm_is_numpys():
    x = np.random.default_rng(6).normal(size=(3, 3))

    assert tenon.linalg.cond(tenon.from_numpy(x), 1).item() == pytest.approx(np.linalg.cond(x, 1))


def test_chain_matmul_multiplies_in_order():
    parts = [np.random.default_rng(i).normal(size=s) for i, s in enumerate([(2, 3), (3, 4), (4, 2)])]

    product = tenon.chain_matmul(*map(tenon.from_numpy, parts))

    np.testing.assert_allclose(product.numpy(), parts[0] @ parts[1] @ parts[2])


def test_cholesky_under_its_old_name_is_the_factor():
    assert tenon.cholesky(tenon.eye(2) * 4).tolist() == [[2, 0], [0, 2]]


def test_beta_zero_leaves_the_nan_of_the_input_out():
    x = tenon.full((2, 2), float("nan"))

    assert tenon.addmm(x, tenon.eye(2), tenon.eye(2), beta=0).tolist() == [[1, 0], [0, 1]]


def test_lobpcg_gives_the_outermost_eigenpairs():
    a = tenon.arange(18.0, dtype=tenon.float64).reshape(2, 3, 3).sin().repeat(1, 2, 2)
    a, b = a @ a.mT + 0.1 * tenon.eye(6).diag().cumsum(0).diag(), 2 * tenon.eye(6, dtype=tenon.float64)
    a.requires_grad_()
    every = tenon.linalg.eigvalsh(a / 2)

    for largest, wanted in ((True, every[:, [5, 4]]), (False, every[:, [0, 1]])):
        values, vectors = tenon.lobpcg(a, k=2, B=b, largest=largest)
        tenon.testing.assert_close(values, wanted)
        tenon.testing.assert_close(a @ vectors, b @ vectors * values.unsqueeze(-2))
        (slope,) = tenon.autograd.grad(values.sum(), a)
        tenon.testing.assert_close(slope, vectors @ vectors.mT)
    with pytest.raises(ValueError, match="not applicable when the number of A rows"):
        tenon.lobpcg(a, k=3)
    with pytest.raises(AssertionError, match="must be square"):
        tenon.lobpcg(a[:, :4])


def test_failures_name_the_matrix_of_the_batch_and_the_place_in_it():
    x = tenon.eye(3).repeat(5, 1, 1)
    x[3, 1, 1] = 0
    library = tenon.linalg
    singular = r"linalg.inv: \(Batch element 3\): The diagonal element 2 is zero, the inversion could not"
    for function, options, message in (
        (library.inv, {}, singular),
        (library.inv_ex, {"check_errors": True}, singular),
        (
            library.cholesky,
            {},
            r"\(Batch element 3\): The factorization could not .* order 2 is not positive-def",
        ),
        (lambda a: library.solve(a, a), {}, r"linalg.solve: \(Batch element 3\): The solver failed"),
        (lambda a: library.inv(a[3]), {}, "linalg.inv: The diagonal element 2 is zero"),
        (lambda a: library.eig(a / 0), {}, "torch.linalg.eig: input tensor should not contain infs or NaNs"),
        (lambda a: library.svd(a * tenon.nan), {}, "contained non-finite values"),
    ):
        with pytest.raises(library.LinAlgError, match=message):
            function(x, **options)
    with pytest.raises(RuntimeError, match="Expected a floating point or complex tensor"):
        library.matrix_exp(tenon.ones(2, 2, dtype=tenon.int64))


def test_products_of_vectors_check_them_and_inner_products_may_be_empty():
    x, y = tenon.ones(2), tenon.ones(3)
    for left, right, message in (
        (x, y, "inconsistent tensor size"),
        (x, x.double(), "dot : expected both vectors to have same dtype, but found Float and Double"),
        (x[None], x, "1D tensors expected, but got 2D and 1D"),
    ):
        for product in (tenon.dot, tenon.vdot):
            with pytest.raises(RuntimeError, match=message):
                product(left, right)
    assert tenon.inner(tenon.ones(0), tenon.ones(2, 0)).tolist() == [0, 0]
    assert tenon.inner(x, tenon.ones(3, 0, 2)).shape == (3, 0)
    with pytest.raises(RuntimeError, match="the last dimension must match"):
        tenon.inner(x, y)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 0)])
@pytest.mark.parametrize("p", [None, -2, 1])
def test_condition_number_without_elements_is_zero(shape, p):
    found = tenon.linalg.cond(tenon.zeros(shape, dtype=tenon.float64), p)

    assert found.dtype == tenon.float64 and found.tolist() == np.zeros(shape[:-2]).tolist()
