"""Edge cases: certain events, extreme logits, tiny concentrations, matrices that rounding made singular."""

import copy
import pickle

import numpy as np
import pytest

import tenon
import tenon.distributions as D
from tenon.distributions.kl import _kl_expfamily_expfamily


def test_certain_events_weigh_nothing_or_all():
    sure = D.Bernoulli(tenon.tensor([0.0, 1.0]))

    assert sure.entropy().max() < 2e-7
    assert D.kl_divergence(sure, sure).tolist() == [0.0, 0.0]
    assert D.kl_divergence(sure, D.Bernoulli(tenon.tensor([1.0, 0.0]))).tolist() == [tenon.inf] * 2
    assert D.Geometric(1).log_prob(tenon.tensor([0.0, 1.0])).tolist() == [0.0, -tenon.inf]
    assert D.Binomial(7, tenon.tensor([0.0, 1.0])).sample().tolist() == [0.0, 7.0]
    assert D.NegativeBinomial(tenon.tensor(0.0), 0.5).log_prob(tenon.tensor(0.0)) == 0.0
    counts = D.Multinomial(10, logits=tenon.tensor([-tenon.inf, 0.0]))
    assert counts.log_prob(tenon.tensor([0.0, 10.0])) == 0.0
    assert counts.log_prob(tenon.tensor([10.0, 0.0])) == -tenon.inf


def test_far_logits_stay_finite():
    logits = tenon.tensor([-1e38, 1e38])

    near = D.ContinuousBernoulli(logits=logits).log_prob(tenon.tensor([0.0, 1.0]))

    # probabilities are kept one eps off 0 and 1: log(log(1 / eps))
    assert tenon.allclose(near, tenon.tensor(2.76898), atol=1e-5)
    assert D.Binomial(1, logits=tenon.tensor([-100.0, 100.0])).log_prob(tenon.zeros(2)).isfinite().all()
    x = tenon.zeros((), requires_grad=True)
    D.Binomial(1, logits=x).log_prob(tenon.tensor(0.0)).backward()
    assert x.grad == -0.5


def test_entropies_follow_from_log_normalisers():
    a, b = tenon.tensor([0.7, 2.5]).double(), tenon.tensor([3.0, 0.4]).double()
    family = [
        D.Normal(a, b),
        D.Exponential(a),
        D.Gamma(a, b),
        D.Beta(a, b),
        D.Dirichlet(a),
        D.Bernoulli(a / 3),
    ]
    others = [
        D.Normal(b, a),
        D.Exponential(b),
        D.Gamma(b, a),
        D.Beta(b, a),
        D.Dirichlet(b),
        D.Bernoulli(b / 4),
    ]

    for p, q in zip(family, others, strict=True):
        assert tenon.allclose(p.entropy(), D.ExponentialFamily.entropy(p), rtol=1e-9, atol=1e-9)
        assert tenon.allclose(D.kl_divergence(p, q), _kl_expfamily_expfamily(p, q), rtol=1e-9, atol=1e-9)


def test_slopes_of_beta_numbers_are_finite_for_tiny_concentrations():
    x = tenon.tensor([1e-30, 0.01, 0.5, 0.7633628, 0.99]).double()
    for a, b in ((0.01, 0.01), (1e-3, 5.0), (5.0, 1e-3), (300.0, 0.01)):
        total = tenon.full_like(x, a + b)
        slopes = tenon._dirichlet_grad(x, tenon.full_like(x, a), total)
        assert slopes.isfinite().all() and (slopes > 0).all()
    assert abs(tenon._dirichlet_grad(x, 0.01 + 0 * x, 0.02 + 0 * x)[3].item() * (1 - 0.7633628) - 908.298) < 1


def test_matrices_that_rounding_made_singular_are_told_and_not_raised():
    good = np.eye(3) + 0.1
    thin = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    flat = thin + 1e-17 * np.eye(3)

    info = tenon.linalg.cholesky_ex(tenon.from_numpy(np.stack([good, thin, flat, -good]))).info

    assert info[0] == 0 and info[3] == 1 and (info[1:3] > 0).all()
    drawn = D.Wishart(tenon.tensor(2.05), tenon.eye(3) * 1e-3).sample((300,))
    assert drawn.isfinite().all()


def test_subclasses_that_change_the_constructor_have_to_say_how_to_expand():
    class Unit(D.Normal):
        def __init__(self):
            super().__init__(0.0, 1.0)

    class Plain(D.Normal):
        pass

    with pytest.raises(NotImplementedError, match="must also define a custom"):
        Unit().expand((2,))
    assert type(Plain(0.0, 1.0).expand((2,))) is Plain
    assert D.kl_divergence(Plain(0.0, 1.0), Unit()) == 0.0


def test_validation_can_be_turned_off_for_one_and_for_all():
    with pytest.raises(
        ValueError, match=r"Expected parameter scale .* to satisfy the constraint GreaterThan"
    ):
        D.Normal(0.0, -1.0)
    assert D.Normal(0.0, -1.0, validate_args=False).expand((2,)).log_prob(tenon.zeros(2)).isnan().all()
    D.Distribution.set_default_validate_args(False)
    try:
        assert D.Bernoulli(0.5).log_prob(tenon.tensor(0.4)).isfinite()
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="within the support"):
        D.Bernoulli(0.5).log_prob(tenon.tensor(0.4))
    with pytest.raises(ValueError, match="must be True or False"):
        D.Distribution.set_default_validate_args(None)


def test_distributions_can_be_copied_and_pickled():
    made = D.TransformedDistribution(D.Gamma(tenon.tensor([2.0]), 1.0), [D.ExpTransform(cache_size=1)])
    value = made.sample()

    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        # What is copied has no cache, and takes the logarithm of the exponential.
        tenon.testing.assert_close(again.log_prob(value), made.log_prob(value))
