"""Transforms and constraints beside torch's: values, inverses, Jacobians, shapes, membership."""

import copy
import pickle

import numpy as np
import pytest
from distributions.test_against_torch import outcome

import tenon

torch = pytest.importorskip("torch")

DRAW = np.random.default_rng(8)
VECTOR = DRAW.normal(size=(4, 3))
#: How to make each from a library's ``distributions``, and where it is tried.
TRANSFORMS = {
    "exp": (lambda d, t: d.ExpTransform(), VECTOR),
    "abs": (lambda d, t: d.AbsTransform(), VECTOR),
    "power": (lambda d, t: d.PowerTransform(t(VECTOR[0] ** 2 + 0.5)), np.exp(VECTOR)),
    "power down": (lambda d, t: d.PowerTransform(t(-1.5)), np.exp(VECTOR)),
    "affine": (lambda d, t: d.AffineTransform(t(VECTOR[0]), t(VECTOR[1])), VECTOR),
    "affine numbers": (lambda d, t: d.AffineTransform(1.0, -2.0), VECTOR),
    "affine vectors": (lambda d, t: d.AffineTransform(t(VECTOR[0]), -2.0, event_dim=1), VECTOR),
    "sigmoid": (lambda d, t: d.SigmoidTransform(), VECTOR),
    "tanh": (lambda d, t: d.TanhTransform(), VECTOR),
    "softplus": (lambda d, t: d.SoftplusTransform(), VECTOR),
    "softmax": (lambda d, t: d.SoftmaxTransform(), VECTOR),
    "stick breaking": (lambda d, t: d.StickBreakingTransform(), VECTOR),
    "lower cholesky": (lambda d, t: d.LowerCholeskyTransform(), DRAW.normal(size=(2, 3, 3))),
    "positive definite": (lambda d, t: d.PositiveDefiniteTransform(), DRAW.normal(size=(2, 3, 3))),
    "correlation": (lambda d, t: d.CorrCholeskyTransform(), DRAW.normal(size=(2, 6))),
    "cdf": (lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(0.3), t(2.0))), VECTOR),
    "reshape": (lambda d, t: d.ReshapeTransform((4, 3), (2, 6)), VECTOR),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), VECTOR),
    "inverse": (lambda d, t: d.ExpTransform().inv, np.exp(VECTOR)),
    "composed": (lambda d, t: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(0.5, 2.0)]), VECTOR),
    "composed vectors": (
        lambda d, t: d.ComposeTransform([d.AffineTransform(0.5, 2.0), d.StickBreakingTransform(), d.ExpTransform().inv]),
        VECTOR,
    ),
    "cat": (lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], dim=0, lengths=[3, 1]), VECTOR),
    "stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform(), d.SigmoidTransform()], dim=1), VECTOR),
    "nothing": (lambda d, t: d.identity_transform, VECTOR),
}  # fmt: skip


def sides(name):
    make, points = TRANSFORMS[name]
    for lib in (tenon, torch):
        tensor = lambda v, lib=lib: lib.tensor(v, dtype=lib.float64)  # noqa: E731
        x = tensor(points).requires_grad_()
        yield make(lib.distributions, tensor), x


def same(ours, theirs):
    if isinstance(theirs, type) or isinstance(ours, type):
        assert ours == theirs
    else:
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-8, atol=1e-9)


@pytest.mark.together
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_torchs(name):
    (ours, x), (theirs, torchs_x) = sides(name)

    made, torchs = ours(x), theirs(torchs_x)

    same(made, torchs)
    same(ours.inv(made), theirs.inv(torchs))
    slopes = [
        outcome(lambda: t.log_abs_det_jacobian(a, b))
        for t, a, b in ((ours, x, made), (theirs, torchs_x, torchs))
    ]
    same(*slopes)
    for value, start in ((made, x), (torchs, torchs_x)):
        value.square().sum().backward(inputs=[start]) if start is x else value.square().sum().backward()
    same(x.grad, torchs_x.grad)
    assert repr(ours) == repr(theirs) and ours.bijective == theirs.bijective
    assert outcome(lambda: ours.domain.event_dim) == outcome(lambda: theirs.domain.event_dim)
    assert outcome(lambda: ours.codomain.event_dim) == outcome(lambda: theirs.codomain.event_dim)
    shape = tuple(x.shape)
    assert tuple(ours.forward_shape(shape)) == tuple(made.shape)
    assert tuple(ours.inverse_shape(made.shape)) == tuple(theirs.inverse_shape(torchs.shape))
    assert (ours.inv.inv is ours and ours == ours and ours.inv != ours) or name == "nothing"


def test_a_cache_gives_the_very_tensor_back():
    cached = tenon.distributions.TanhTransform(cache_size=1)
    x = tenon.tensor([30.0, -1.0])

    y = cached(x)

    assert cached(x) is y and cached.inv(y) is x
    assert cached.with_cache(0).inv(y)[0] == tenon.inf and cached == tenon.distributions.TanhTransform()
    again = pickle.loads(pickle.dumps(cached))
    assert again == cached and again.inv.inv is again and copy.deepcopy(cached) == cached
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        tenon.distributions.ExpTransform(cache_size=2)


SETS = {
    "boolean": (lambda c, t: c.boolean, [0.0, 1.0, 0.5]),
    "one_hot": (lambda c, t: c.one_hot, [[0.0, 1.0], [1.0, 1.0], [0.5, 0.5]]),
    "nonnegative_integer": (lambda c, t: c.nonnegative_integer, [0.0, 2.0, -1.0, 0.5]),
    "positive_integer": (lambda c, t: c.positive_integer, [0.0, 2.0]),
    "integer_interval": (lambda c, t: c.integer_interval(-1, 2), [-1.0, 2.0, 3.0, 0.5]),
    "real": (lambda c, t: c.real, [0.0, np.nan, np.inf]),
    "positive": (lambda c, t: c.positive, [0.0, 1.0, -1.0]),
    "nonnegative": (lambda c, t: c.nonnegative, [0.0, 1.0, -1.0]),
    "greater_than": (lambda c, t: c.greater_than(t([0.0, 1.0])), [0.5, 0.5]),
    "greater_than_eq": (lambda c, t: c.greater_than_eq(1.0), [1.0, 0.5]),
    "less_than": (lambda c, t: c.less_than(1.0), [1.0, 0.5]),
    "unit_interval": (lambda c, t: c.unit_interval, [0.0, 1.0, 1.1]),
    "half_open_interval": (lambda c, t: c.half_open_interval(0.0, 1.0), [0.0, 1.0]),
    "real_vector": (lambda c, t: c.real_vector, [[0.0, np.nan], [1.0, 2.0]]),
    "simplex": (lambda c, t: c.simplex, [[0.5, 0.5], [0.6, 0.5], [1.5, -0.5]]),
    "multinomial": (lambda c, t: c.multinomial(3), [[1.0, 2.0], [3.0, 1.0]]),
    "lower_triangular": (lambda c, t: c.lower_triangular, [[[1.0, 0.0], [2.0, -1.0]], [[1.0, 1.0], [0.0, 1.0]]]),
    "lower_cholesky": (lambda c, t: c.lower_cholesky, [[[1.0, 0.0], [2.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]]]),
    "corr_cholesky": (lambda c, t: c.corr_cholesky, [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.9]]]),
    "square": (lambda c, t: c.square, [[[1.0, 0.0], [0.6, 0.8]]]),
    "symmetric": (lambda c, t: c.symmetric, [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 2.0], [2.0, 0.9]]]),
    "positive_semidefinite": (lambda c, t: c.positive_semidefinite, [[[1.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 1.0]]]),
    "positive_definite": (lambda c, t: c.positive_definite, [[[1.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]]),
    "cat": (lambda c, t: c.cat([c.positive, c.real], 0, [1, 2]), [-1.0, -1.0, np.nan]),
    "stack": (lambda c, t: c.stack([c.positive, c.unit_interval], 0), [[1.0, -1.0], [0.5, 2.0]]),
    "mixture": (lambda c, t: c.MixtureSameFamilyConstraint(c.greater_than(t([0.0, 1.0]))), [0.5, 2.0]),
}  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("name", SETS)
def test_sets_and_ways_into_them_are_torchs(name):
    make, values = SETS[name]
    results = []
    for lib in (tenon, torch):
        tensor = lambda v, lib=lib: lib.tensor(v, dtype=lib.float64)  # noqa: E731
        found = make(lib.distributions.constraints, tensor)
        told = [found.check(tensor(values)).tolist(), repr(found), found.is_discrete, found.event_dim]
        for registry in (lib.distributions.biject_to, lib.distributions.transform_to):
            way = outcome(lambda: registry(found))
            if not isinstance(way, type):
                start = tensor([[0.3, -1.2, 2.0], [0.1, 0.4, -0.7], [1.0, 2.0, 0.5]])
                start = (
                    start[0]
                    if name == "cat"
                    else start[:2]
                    if name == "stack"
                    else start[:, :2]
                    if found.event_dim == 0
                    else start
                )
                way = way(start)
                assert found.check(way).all()
                way = np.round(way.numpy(), 8).tolist()
            told.append(way)
        results.append(told)

    assert results[0] == results[1]
