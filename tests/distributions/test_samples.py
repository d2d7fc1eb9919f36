"""Samples: moments and quantiles, derivatives of gamma and beta samples, seeds."""

import math

import numpy as np
import pytest
from distributions.cases import CASES, build, label

import tenon
import tenon.distributions as D
from tenon.random import rejection

pytestmark = pytest.mark.together

#: Samples of a case; means lie within six of their standard deviations of the truth.
COUNT = 4000
WITH_MEAN = [
    c
    for c in CASES
    if c[0] not in ("Cauchy", "HalfCauchy", "Categorical", "RelaxedBernoulli", "RelaxedOneHotCategorical")
    and c[0] not in ("LogisticNormal", "LKJCholesky", "VonMises", "StudentT", "LogNormal")
]


@pytest.mark.parametrize("case", WITH_MEAN, ids=label)
def test_samples_have_the_mean_and_the_variance(case):
    tenon.manual_seed(2)
    made = build(tenon, case)

    drawn = made.sample((COUNT,))

    error = (made.variance / COUNT).sqrt() * 6 + 1e-9
    assert ((drawn.mean(0) - made.mean).abs() <= error).all()
    assert ((drawn.var(0) / made.variance - 1).abs()[made.variance > 0] < 0.75).all()


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c[0] in ("Cauchy", "HalfCauchy", "StudentT", "LogNormal", "Gamma", "Gumbel")],
    ids=label,
)
def test_samples_follow_the_density(case):
    tenon.manual_seed(4)
    made = build(tenon, case)
    if case[0] == "StudentT":  # without a cdf: by the symmetry around its median
        below = (made.sample((COUNT,)) < made.loc).double().mean(0)
        assert ((below - 0.5).abs() < 6 * 0.5 / COUNT**0.5).all()
        return

    places = made.cdf(made.sample((COUNT,))).sort(0).values

    wanted = (tenon.arange(COUNT, dtype=tenon.float64) + 0.5) / COUNT
    # Kolmogorov's distance: larger than 2.3 / sqrt(n) once in 20000 times
    assert (places - wanted.reshape(-1, 1, 1)).abs().max() < 2.3 / COUNT**0.5


@pytest.mark.parametrize("rate", [0.3, 4.0, 9.99, 10.0, 35.0, 4000.0])
def test_counts_have_their_probabilities(rate):
    tenon.manual_seed(7)
    n, p = 40, min(rate / 40, 0.9)
    for made in (D.Poisson(tenon.tensor(rate).double()), D.Binomial(n, tenon.tensor(p).double())):
        drawn = made.sample((20000,))

        values, counts = tenon.unique(drawn, return_counts=True)
        expected = made.log_prob(values).exp() * 20000
        often = expected > 25
        assert (((counts - expected).abs() / expected.sqrt())[often] < 5.5).all()
        assert (drawn >= 0).all() and (drawn == drawn.floor()).all()


def test_counts_at_the_edges():
    count, prob = tenon.tensor([5.0, 5.0, 0.0, 5e5]), tenon.tensor([0.0, 1.0, 0.5, 0.5])

    assert tenon.binomial(count, prob)[:3].tolist() == [0.0, 5.0, 0.0]
    assert abs(tenon.binomial(count, prob)[3].item() - 2.5e5) < 6 * 354
    assert tenon.poisson(tenon.zeros(3)).tolist() == [0.0] * 3
    rate = tenon.ones(3, requires_grad=True)
    tenon.poisson(rate).sum().backward()
    assert rate.grad.tolist() == [0.0] * 3
    with pytest.raises(ValueError, match="binomial only supports floating-point dtypes for count"):
        tenon.binomial(tenon.tensor([3]), tenon.tensor([0.5]))
    with pytest.raises(RuntimeError, match="invalid Poisson rate"):
        tenon.poisson(tenon.tensor([-1.0]))
    k = np.array([0.0, 1.0, 5.0, 10.0, 11.0, 200.0])
    np.testing.assert_allclose(
        rejection.log_factorial(k), [math.lgamma(v + 1) for v in k], rtol=1e-12, atol=1e-12
    )


def test_correlations_have_the_distribution_of_their_paper():
    tenon.manual_seed(3)
    factor = D.LKJCholesky(3, tenon.tensor(2.0).double()).sample((COUNT,))
    correlation = factor @ factor.mT

    # each is a beta number of concentrations eta - 1 + dim / 2, stretched over (-1, 1)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        square = correlation[:, i, j].square()
        assert abs(square.mean().item() - 1 / 6) < 6 * square.std().item() / COUNT**0.5


def test_one_seed_gives_one_sample():
    made = D.Gamma(tenon.rand(50) + 0.1, 1.0)
    draws = []
    for _ in range(2):
        tenon.manual_seed(11)
        draws.append([made.sample(), D.VonMises(tenon.zeros(3), 1.0).sample(), D.Poisson(3.0).sample((4,))])

    assert all(tenon.equal(a, b) for a, b in zip(*draws, strict=True))


@pytest.mark.parametrize("a", [1e-3, 0.2, 1.0, 7.0, 60.0, 3e4])
def test_gamma_numbers_move_as_the_distribution_function_says(a):
    tenon.manual_seed(1)
    concentration = tenon.full((60,), a, dtype=tenon.float64, requires_grad=True)
    x = tenon._standard_gamma(concentration)
    x.sum().backward()
    x, step = x.detach(), 1e-5 * a

    # dx/da = -(dF/da) / f; in the upper half by the other tail, which keeps its digits
    def cdf(order):
        order = tenon.full_like(x, order)
        upper = x > a
        return tenon.where(upper, -tenon.special.gammaincc(order, x), tenon.special.gammainc(order, x))

    density = D.Gamma(tenon.full_like(x, a), 1.0).log_prob(x).exp()
    expected = -(cdf(a + step) - cdf(a - step)) / (2 * step) / density
    known = (x > 1e-290) & (expected.abs() > 0)
    assert known.sum() > 10
    np.testing.assert_allclose(concentration.grad[known], expected[known], rtol=2e-5)


def test_slopes_of_samples_are_near_torchs():
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(3)
    a, x = draw.uniform(0.05, 30, 400), draw.uniform(0.01, 40, 400)
    total = a + draw.uniform(0.05, 20, 400)
    share = draw.uniform(0.01, 0.99, 400)

    def both(name, *arrays):
        ours, theirs = (getattr(lib, name)(*map(lib.from_numpy, arrays)) for lib in (tenon, torch))
        return ours.numpy(), theirs.numpy()

    # torch's own are approximations, right to 5e-4; far in the tails not even that
    ours, theirs = both("_standard_gamma_grad", a, x)
    near = np.abs(x - a) < 4 * np.sqrt(a)
    np.testing.assert_allclose(ours[near], theirs[near], rtol=2e-3)
    ours, theirs = both("_dirichlet_grad", share, a, total)
    spread = np.sqrt(a * (total - a) / (total**2 * (total + 1)))
    near = np.abs(share - a / total) < 3 * spread
    np.testing.assert_allclose(ours[near], theirs[near], rtol=5e-3)


def test_small_concentrations_neither_underflow_nor_reach_the_ends():
    tenon.manual_seed(1)
    for kind in (tenon.float32, tenon.float64):
        drawn = D.Beta(tenon.tensor(1e-2, dtype=kind), tenon.tensor(1e-2, dtype=kind)).sample((5000,))

        assert ((drawn > 0) & (drawn < 1)).all()
        assert abs((drawn < 0.1).float().mean().item() - 0.5) < 0.05
        assert (D.Gamma(tenon.tensor(1e-3, dtype=kind), 1.0).sample((1000,)) > 0).all()
