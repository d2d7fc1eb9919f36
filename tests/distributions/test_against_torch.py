"""Every distribution beside torch's: densities, moments, entropies, divergences, and their gradients."""

import warnings

import numpy as np
import pytest

import tenon

torch = pytest.importorskip("torch")

from distributions.cases import CASES, build, label  # noqa: E402

#: Relative and absolute; gradients may be ten times as far apart.
TOLERANCE = {"float32": 3e-5, "float64": 2e-9}
#: Where torch itself rounds to float32 or approximates, and what it gets wrong (its mode is NaN everywhere).
LOOSE = {"VonMises": 1e-6, "Multinomial": 1e-6}
UNCOMPARED = {("Kumaraswamy", "mode")}


pytestmark = pytest.mark.filterwarnings("ignore:Singular sample")


def outcome(compute):
    """The result: a tensor, or the built-in class of the error."""
    try:
        return compute()
    except (NotImplementedError, ValueError, RuntimeError) as error:
        return NotImplementedError if isinstance(error, NotImplementedError) else ValueError


def near(ours, theirs, tolerance, what):
    if isinstance(theirs, type) or isinstance(ours, type):
        assert ours == theirs, f"{what}: {ours} and {theirs}"
        return
    assert str(ours.dtype) == str(theirs.dtype), what
    assert tuple(ours.shape) == tuple(theirs.shape), what
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)


def slopes(result, leaves):
    """Gradients of the finite part of ``result``."""
    if isinstance(result, type) or not result.requires_grad:
        return None
    found = []
    result.sum().backward(retain_graph=True)
    for leaf in leaves:
        found.append(None if leaf.grad is None else leaf.grad.clone().detach())
        leaf.grad = None
    return found


def same(case, dtype, compute, what):
    """Compare ``compute(lib, distribution)`` and its gradients in both libraries."""
    results = []
    for lib in (tenon, torch):
        leaves = []
        made = build(lib, case, dtype, leaves)
        result = outcome(lambda: compute(lib, made))
        results.append((result, outcome(lambda: slopes(result, leaves))))
    (ours, ours_grads), (theirs, theirs_grads) = results
    tolerance = max(TOLERANCE[dtype], LOOSE.get(case[0], 0))
    near(ours, theirs, tolerance, what)
    if isinstance(theirs_grads, list):
        for a, b in zip(ours_grads, theirs_grads, strict=True):
            if b is not None and not torch.isnan(b).any():
                near(
                    tenon.zeros(b.shape, dtype=getattr(tenon, dtype)) if a is None else a,
                    b,
                    10 * tolerance,
                    f"gradient of {what}",
                )


@pytest.fixture(scope="module")
def values():
    """Three samples of torch's for every case, by its place in the list."""
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's Wishart tells of singular samples
        return [build(torch, case).sample((3,)).numpy() for case in CASES]


@pytest.mark.together
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("place", range(len(CASES)), ids=[label(c) for c in CASES])
def test_densities_are_torchs(place, dtype, values):
    case, value = CASES[place], values[place]
    if (case[0], dtype) == ("GeneralizedPareto", "float64"):
        pytest.skip("torch raises: it compares float64 with a float32 of its own")
    if dtype == "float32" and case[0] in ("Wishart", "LKJCholesky", "MultivariateNormal"):
        value = value.astype(np.float32)

    def log_prob(lib, made):
        return made.log_prob(lib.tensor(value, dtype=getattr(lib, dtype)))

    def by_value(lib, made):
        x = lib.tensor(value, dtype=getattr(lib, dtype), requires_grad=True)
        (slope,) = lib.autograd.grad(made.log_prob(x).sum(), x)
        return slope.detach()

    same(case, dtype, log_prob, "log_prob")
    if not build(torch, case).support.is_discrete and case[0] != "GeneralizedPareto":
        same(case, dtype, by_value, "d log_prob / d value")
    same(case, dtype, lambda lib, made: made.cdf(lib.tensor(value, dtype=getattr(lib, dtype))), "cdf")
    places = np.random.default_rng(1).uniform(0.01, 0.99, value.shape)
    same(case, dtype, lambda lib, made: made.icdf(lib.tensor(places, dtype=getattr(lib, dtype))), "icdf")


@pytest.mark.together
@pytest.mark.parametrize("case", CASES, ids=label)
def test_moments_and_entropies_are_torchs(case, dtype="float64"):
    for name in ("mean", "mode", "variance", "stddev"):
        if (case[0], name) not in UNCOMPARED:
            same(case, dtype, lambda lib, made, name=name: getattr(made, name), name)
    same(case, dtype, lambda lib, made: made.entropy(), "entropy")
    same(case, dtype, lambda lib, made: made.perplexity(), "perplexity")
    same(case, dtype, lambda lib, made: made.enumerate_support(), "enumerate_support")
    same(case, dtype, lambda lib, made: made.enumerate_support(expand=False), "enumerate_support(False)")


@pytest.mark.together
@pytest.mark.parametrize("case", CASES, ids=label)
def test_shapes_and_names_are_torchs(case):
    ours, theirs = build(tenon, case), build(torch, case)

    assert repr(ours) == repr(theirs) and repr(ours.support) == repr(theirs.support)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert (ours.has_rsample, ours.has_enumerate_support) == (
        theirs.has_rsample,
        theirs.has_enumerate_support,
    )
    assert {k: repr(v) for k, v in ours.arg_constraints.items()} == {
        k: repr(v) for k, v in theirs.arg_constraints.items()
    }
    more = (4, *ours.batch_shape)
    large, torchs = ours.expand(more), theirs.expand(more)
    assert type(large) is type(ours) and tuple(large.batch_shape) == more
    sample = large.sample((2,))
    assert tuple(sample.shape) == tuple(torchs.sample((2,)).shape) and not sample.requires_grad
    assert tuple(large.log_prob(sample).shape) == (2, *more)
    if ours.has_rsample:
        leaves = []
        assert build(tenon, case, leaves=leaves).rsample().requires_grad


def pairs():
    """Two distributions for every rule that torch has."""
    from torch.distributions.kl import _KL_REGISTRY

    by_name = {}
    for case in CASES:
        by_name.setdefault(case[0], []).append(case)
    inside = {
        "Uniform": [("Uniform", {"low": 0.2, "high": "unit_high"}), ("Uniform", {"low": -1.0, "high": 5.0})]
    }
    for p, q in sorted((p.__name__, q.__name__) for p, q in _KL_REGISTRY):
        for a in by_name.get(p, []) + inside.get(p, []):
            for b in by_name.get(q, []) + inside.get(q, []):
                yield a, b


def kl(lib, p, q, dtype):
    leaves = []
    first, second = build(lib, p, dtype, leaves), build(lib, q, dtype, leaves)
    result = outcome(lambda: lib.distributions.kl_divergence(first, second))
    return result, slopes(result, leaves)


@pytest.mark.slow
def test_divergences_are_torchs(dtype="float64"):
    for p, q in pairs():
        what = f"KL({label(p)}, {label(q)})"
        (ours, ours_grads), (theirs, theirs_grads) = kl(tenon, p, q, dtype), kl(torch, p, q, dtype)
        if isinstance(theirs, type) or not torch.isnan(theirs).any():
            near(ours, theirs, 100 * TOLERANCE[dtype], what)
        for a, b in zip(ours_grads or (), theirs_grads or (), strict=False):
            if a is not None and b is not None and torch.isfinite(b).all():
                near(a, b, 100 * TOLERANCE[dtype], f"gradient of {what}")
