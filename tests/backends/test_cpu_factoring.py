"""Factorizations by LAPACK's routines against NumPy's, and the factors that they keep for gradients."""

import numpy as np
import pytest

import tenon
from tenon import linalg
from tenon.autograd import gradcheck, gradgradcheck
from tenon_cpu import lapack

BACKEND = tenon.zeros(1)._backend
SIZES = (24, 70, 150)

pytestmark = [
    pytest.mark.together,
    pytest.mark.skipif(
        lapack.routines(np.zeros(1)) is None, reason="NumPy was not built with an OpenBLAS that can be asked"
    ),
]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def kernel(name):
    return BACKEND.kernels[getattr(tenon.ops, name)]


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("upper", [False, True])
def test_triangles_are_solved_in_any_memory_order_and_the_other_half_is_not_read(rng, dtype, size, upper):
    a = rng.standard_normal((2, size, size)).astype(dtype) + 2 * size * np.eye(size, dtype=dtype)
    b = rng.standard_normal((2, size, 7)).astype(dtype)
    wanted = np.linalg.solve(np.triu(a) if upper else np.tril(a), b)
    unread = (
        np.tril(np.full((size, size), np.nan, dtype), -1)
        if upper
        else np.triu(np.full((size, size), np.nan), 1)
    )

    given = (a + unread).astype(dtype)

    turned = np.swapaxes(np.ascontiguousarray(np.swapaxes(given, -1, -2)), -1, -2)
    strided = np.zeros((2, size, 2 * size), dtype)
    strided[..., ::2] = given
    for matrix in (given, turned, strided[..., ::2]):
        close(kernel("solve_triangle")(matrix, b, upper=upper), wanted)
    close(kernel("solve_triangle")(given, np.asfortranarray(b), upper=upper), wanted)
    with np.errstate(all="ignore"):
        assert not np.isfinite(kernel("solve_triangle")(given * 0, b, upper=upper)).any()


@pytest.mark.parametrize("size", [3, 16])
@pytest.mark.parametrize("upper", [False, True])
def test_batches_of_small_triangles_are_solved_too(rng, size, upper):
    a = rng.standard_normal((300, size, size)).astype("float32") + 4 * np.eye(size, dtype="float32")
    b = rng.standard_normal((300, size, 16)).astype("float32")

    made = BACKEND.kernels[tenon.ops.solve_triangle](a, b, upper=upper)

    close(made, np.linalg.solve(np.triu(a) if upper else np.tril(a), b))


@pytest.mark.parametrize("shape", [(40, 40), (2, 60, 30), (30, 50)])
def test_lu_factors_are_those_of_the_columns_one_by_one(rng, shape):
    x = rng.standard_normal(shape)

    found, wanted = kernel("lu_parts")(x), tenon.ops.lu_parts.forward(np, x)

    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_a_solution_keeps_its_factors_and_says_which_matrix_is_singular(rng):
    a, b, g = rng.standard_normal((30, 30)), rng.standard_normal((30, 4)), rng.standard_normal((30, 4))

    made, factors, pivots = kernel("solve")(a, b)

    np.testing.assert_allclose(made, np.linalg.solve(a, b), atol=1e-10)
    assert factors.size and pivots.size
    close(kernel("solve_adjoint")(a, g, factors, pivots), np.linalg.solve(a.T, g))
    with pytest.raises(linalg.LinAlgError, match="input matrix is singular"):
        kernel("solve")(np.zeros((30, 30)), b)


@pytest.mark.parametrize("shape", [(40, 25), (25, 40)])
def test_least_squares_by_qr_are_those_by_singular_values(rng, shape):
    a, b = rng.standard_normal(shape), rng.standard_normal((shape[0], 3))
    a[:, 3] = a[:, 1] + a[:, 2]  # what is not of full rank has its smallest solution

    solution, rank, _ = kernel("least_squares")(a, b, values=False)

    wanted = np.linalg.lstsq(a, b)
    np.testing.assert_allclose(solution, wanted[0], atol=1e-10)
    assert rank == wanted[2]
    vector = kernel("least_squares")(a, b[:, 0], values=False)[0]
    np.testing.assert_allclose(vector, wanted[0][:, 0], atol=1e-10)


def test_nothing_is_solved_for_no_columns():
    empty = np.zeros((30, 0))

    assert kernel("solve")(np.eye(30), empty)[0].shape == (30, 0)
    assert kernel("solve_triangle")(np.eye(30), empty, upper=True).shape == (30, 0)


DECOMPOSITIONS = {
    "svd": lambda x: sum((linalg.svd(x, full_matrices=False)[i] ** 2).cumsum(-1).sum() for i in range(3)),
    "svdvals": lambda x: (linalg.svdvals(x) ** 3).sum(),
    "eigh": lambda x: (linalg.eigh(x + x.mT)[0] ** 3).sum(),
    "qr": lambda x: (linalg.qr(x)[1] ** 3).sum(),
    "lu": lambda x: (linalg.lu(x)[2] ** 3).sum(),
    "solve": lambda x: (linalg.solve(x, x[:, :2]) ** 3).sum(),
    "triangle": lambda x: (linalg.solve_triangular(x, x[:, :2], upper=True) ** 3).sum(),
    "cholesky": lambda x: (linalg.cholesky(x @ x.mT) ** 3).sum(),
}


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_what_was_kept_and_what_is_made_anew_give_the_same_gradient(rng, name):
    f = DECOMPOSITIONS[name]
    x = tenon.tensor(rng.standard_normal((26, 26)) + 6 * np.diag(np.linspace(1, 2, 26)), requires_grad=True)

    (kept,) = tenon.autograd.grad(f(x), x)
    (anew,) = tenon.autograd.grad(f(x), x, create_graph=True)

    np.testing.assert_allclose(kept.numpy(), anew.detach().numpy(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_gradients_of_decompositions_are_right_to_the_second_order(rng, name):
    x = tenon.tensor(rng.standard_normal((4, 4)) + 5 * np.diag(np.arange(1.0, 5)), requires_grad=True)

    assert gradcheck(DECOMPOSITIONS[name], (x,))
    if name != "svd":  # whose vectors' signs are free
        assert gradgradcheck(DECOMPOSITIONS[name], (x,))


def test_writing_to_singular_vectors_does_not_reach_what_the_gradient_reads(rng):
    x = tenon.tensor(rng.standard_normal((26, 26)), requires_grad=True)
    u, s, _ = linalg.svd(x)
    (wanted,) = tenon.autograd.grad(s.sum(), x, retain_graph=True)

    with tenon.no_grad():
        u.zero_()
    (found,) = tenon.autograd.grad(s.sum(), x)

    assert tenon.equal(found, wanted)


def test_compiled_programs_keep_factors_too(rng):
    a = tenon.tensor(rng.standard_normal((30, 30)) + 8 * np.eye(30), requires_grad=True)
    b = tenon.tensor(rng.standard_normal((30, 3)))

    def step(a, b):
        loss = (linalg.solve(a, b) ** 2).sum() + linalg.svdvals(a).sum()
        return tenon.autograd.grad(loss, a)[0]

    np.testing.assert_allclose(tenon.compile(step)(a, b).numpy(), step(a, b).numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lies", ["whole", "turned", "strided"])
@pytest.mark.parametrize("size", SIZES)
def test_cholesky_factors_are_numpys_and_the_upper_half_is_not_read(rng, dtype, size, lies):
    a = rng.standard_normal((2, size, size)).astype(dtype)
    a = a @ a.swapaxes(1, 2) + size * np.eye(size, dtype=dtype)
    wanted = np.linalg.cholesky(a)
    a[:, *np.triu_indices(size, 1)] = np.nan
    x = {"whole": a, "turned": np.array(a, order="F"), "strided": np.repeat(a, 2, 2)[:, :, ::2]}[lies]

    found = BACKEND.kernels[tenon.ops.cholesky](x)

    close(found, wanted)
    assert not np.triu(found, 1).any()


def test_a_matrix_without_a_cholesky_factor_is_refused():
    x = tenon.eye(60)
    x[40, 40] = -1

    with pytest.raises(tenon.errors.TenonError, match="cholesky"):
        linalg.cholesky(x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(70, 70), (150, 40), (40, 150), (2, 33, 32), (24, 24)], ids=str)
def test_orthogonal_factors_are_numpys(rng, dtype, mode, shape):
    x = rng.standard_normal(shape).astype(dtype)
    x[..., 7] = 0

    q, r = linalg.qr(tenon.from_numpy(x), mode=mode)

    wanted = np.linalg.qr(x, mode=mode)
    close(r.raw, wanted if mode == "r" else wanted.R)
    if mode != "r":
        inner = q.shape[-1]
        close(q.raw @ r.raw, x)
        close(q.raw.swapaxes(-1, -2) @ q.raw, np.broadcast_to(np.eye(inner), (*shape[:-2], inner, inner)))


def test_gradients_flow_through_both_factorizations_of_larger_matrices(rng):
    x = tenon.from_numpy(rng.standard_normal((26, 26)) + 5 * np.eye(26)).requires_grad_()

    assert gradcheck(lambda a: linalg.qr(a), (x,), fast_mode=True)
    assert gradcheck(lambda a: linalg.cholesky(a @ a.T), (x,), fast_mode=True)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(
    ("of_a", "of_b", "expected"),
    [
        ("float32", "float64", "float32"),
        ("float64", "float32", "float64"),
        ("float32", "int64", "float32"),
        ("complex64", "bool", "complex64"),
        ("float32", "complex64", "complex64"),
    ],
)
def test_solutions_of_triangles_have_the_dtype_of_the_matrix(of_a, of_b, expected, left):
    a, b = tenon.eye(3, dtype=getattr(tenon, of_a)) * 2, tenon.ones(3, 3, dtype=getattr(tenon, of_b))
    solve = tenon.compile(lambda a, b: linalg.solve_triangular(a, b, upper=True, left=left))

    for found in [linalg.solve_triangular(a, b, upper=True, left=left), *[solve(a, b) for _ in range(4)]]:
        assert str(found.dtype) == f"torch.{expected}"
        assert (found == 0.5).all()
    assert solve.programs
