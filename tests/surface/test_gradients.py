"""First and second derivatives of rarer ops against finite differences, without PyTorch."""

import numpy as np
import pytest

import tenon
from tenon.autograd import gradcheck, gradgradcheck

pytestmark = pytest.mark.together

DRAW = np.random.default_rng(11)


def leaf(*shape, positive=False, scale=1.0):
    x = DRAW.normal(size=shape) * scale
    return tenon.from_numpy(np.asarray(np.abs(x) + 0.5 if positive else x)).requires_grad_()


def spread(size):
    """A well-conditioned symmetric matrix with distinct eigenvalues."""
    q = np.linalg.qr(DRAW.normal(size=(size, size)))[0]
    return tenon.from_numpy(q @ np.diag(np.arange(1.0, size + 1)) @ q.T).requires_grad_()


CASES = {
    "stack": (lambda x, y: tenon.stack([x, y], 1), lambda: (leaf(2, 3), leaf(2, 3))),
    "diagonal": (lambda x: x.diagonal(1), lambda: (leaf(3, 4),)),
    "diag_embed": (lambda x: x.diag_embed(-1), lambda: (leaf(2, 3),)),
    "diagonal_scatter": (lambda x, y: x.diagonal_scatter(y) ** 2, lambda: (leaf(3, 3), leaf(3))),
    "einsum": (lambda x, y: tenon.einsum("bij,bkj->bik", x, y), lambda: (leaf(2, 3, 4), leaf(2, 2, 4))),
    "einsum trace": (lambda x: tenon.einsum("iij->j", x) ** 2, lambda: (leaf(3, 3, 2),)),
    "inv": (tenon.linalg.inv, lambda: (spread(3),)),
    "solve": (tenon.linalg.solve, lambda: (spread(3), leaf(3, 2))),
    "det": (tenon.linalg.det, lambda: (spread(3),)),
    "slogdet": (lambda x: tenon.linalg.slogdet(x)[1], lambda: (spread(3),)),
    "cholesky": (
        lambda x: tenon.linalg.cholesky(x @ x.mT + 3 * tenon.eye(3, dtype=x.dtype)),
        lambda: (leaf(3, 3),),
    ),
    "qr": (lambda x: tenon.linalg.qr(x)[1].square(), lambda: (leaf(4, 3),)),
    "eigh": (lambda x: tenon.linalg.eigh((x + x.mT) / 2)[0], lambda: (spread(3),)),
    "svdvals": (tenon.linalg.svdvals, lambda: (spread(3),)),
    "matrix_exp": (tenon.matrix_exp, lambda: (leaf(3, 3, scale=0.3),)),
    "copysign": (tenon.copysign, lambda: (leaf(3), leaf(3).detach())),
    "xlogy": (tenon.xlogy, lambda: (leaf(3), leaf(3, positive=True))),
    "sinc": (tenon.sinc, lambda: (leaf(3),)),
    "erfinv": (tenon.erfinv, lambda: (leaf(3, scale=0.2),)),
    "lgamma": (tenon.lgamma, lambda: (leaf(3, positive=True),)),
    "digamma": (tenon.digamma, lambda: (leaf(3, positive=True),)),
    "polygamma": (lambda x: tenon.polygamma(2, x), lambda: (leaf(3, positive=True),)),
    "quantile": (lambda x: x.quantile(0.4, 1) ** 2, lambda: (leaf(2, 5),)),
    "cumprod": (lambda x: x.cumprod(0), lambda: (leaf(4),)),
    "cdist": (tenon.cdist, lambda: (leaf(2, 3), leaf(3, 3))),
    "scatter_reduce": (
        lambda x, y: x.scatter_reduce(0, tenon.tensor([0, 2, 0]), y, "mean") ** 2,
        lambda: (leaf(3), leaf(3)),
    ),
    "renorm": (lambda x: x.renorm(2, 0, 0.5), lambda: (leaf(2, 3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_first_derivatives_agree_with_differences(name):
    function, inputs = CASES[name]

    assert gradcheck(function, inputs())


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives_agree_with_differences(name):
    function, inputs = CASES[name]

    assert gradgradcheck(function, inputs())


def test_logcumsumexp_has_a_gradient_where_sums_of_exponentials_overflow():
    x = tenon.tensor([1000.0, 1001.0, -1000.0], dtype=tenon.float64, requires_grad=True)

    x.logcumsumexp(0).sum().backward()

    np.testing.assert_allclose(x.grad.numpy(), [1 + 2 / (1 + np.e), 2 * np.e / (1 + np.e), 0], atol=1e-12)
