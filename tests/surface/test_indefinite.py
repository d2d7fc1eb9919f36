"""LDL factors have torch's pivots, also with 2 by 2 blocks, and solve systems."""

import numpy as np
import pytest

import tenon

torch = pytest.importorskip("torch")


def matrix(size, hermitian, kind, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(2, size, size)).astype(kind)
    if kind == np.complex128:
        x = x + 1j * draw.normal(size=x.shape)
    x[..., range(size), range(size)] *= 0.01  # small diagonals ask for blocks of two rows
    turned = np.swapaxes(x, -1, -2)
    return x + (turned.conj() if hermitian else turned)


@pytest.mark.oracle
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("kind", [np.float64, np.complex128])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_ldl_factors_are_torchs_and_solve(size, kind, hermitian):
    a = matrix(size, hermitian, kind, size)
    b = np.random.default_rng(1).normal(size=(2, size, 3)).astype(kind)

    ours = tenon.linalg.ldl_factor(tenon.from_numpy(a), hermitian=hermitian)
    theirs = torch.linalg.ldl_factor(torch.from_numpy(a), hermitian=hermitian)
    solution = tenon.linalg.ldl_solve(ours.LD, ours.pivots, tenon.from_numpy(b), hermitian=hermitian)

    assert ours.pivots.tolist() == theirs.pivots.tolist()
    np.testing.assert_allclose(ours.LD.numpy(), theirs.LD.numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(a @ solution.numpy(), b, rtol=1e-8, atol=1e-8)


@pytest.mark.oracle
def test_a_singular_matrix_is_named_or_refused():
    zero = tenon.zeros(2, 2)

    assert (
        tenon.linalg.ldl_factor_ex(zero).info.item()
        == torch.linalg.ldl_factor_ex(torch.zeros(2, 2)).info.item()
    )
    with pytest.raises(tenon.linalg.LinAlgError, match="singular"):
        tenon.linalg.ldl_factor(zero)


def test_right_hand_sides_that_do_not_fit_are_refused():
    factors = tenon.linalg.ldl_factor(tenon.eye(3))

    with pytest.raises(ValueError, match="Incompatible shapes"):
        tenon.linalg.ldl_solve(factors.LD, factors.pivots, tenon.ones(2, 1))
    with pytest.raises(TypeError, match="expected B of"):
        tenon.linalg.ldl_solve(factors.LD, factors.pivots, tenon.ones(3, 1, dtype=tenon.float64))
