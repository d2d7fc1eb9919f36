"""``autograd.functional`` returns what torch's does, is differentiable where torch's is, and has its ``strict`` checks."""

import numpy as np
import pytest

import tenon
from tenon.tensors.pytree import tree_leaves

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]


def two(a, b):
    return (a * b).sin(), a.sum()


def cubic(a, b):
    return (a**3 * b).sum()


def double(a, b):
    return a * 2


CASES = {
    "jacobian": lambda t, f, x, y: f.jacobian(lambda a: a.exp() * a.sum(), x),
    "jacobian of two": lambda t, f, x, y: f.jacobian(two, (x, y)),
    "jacobian with a graph": lambda t, f, x, y: f.jacobian(two, (x, y), create_graph=True),
    "jacobian vectorized": lambda t, f, x, y: f.jacobian(two, (x, y), vectorize=True),
    "jacobian of some": lambda t, f, x, y: f.jacobian(double, (x, y)),
    "jacobian of a constant": lambda t, f, x, y: f.jacobian(lambda a: t.ones(3, dtype=t.float64), x),
    "hessian": lambda t, f, x, y: f.hessian(lambda a: (a**3).sum(), x),
    "hessian of two": lambda t, f, x, y: f.hessian(cubic, (x, y)),
    "hessian with a graph": lambda t, f, x, y: f.hessian(cubic, (x, y), create_graph=True),
    "hessian of a line": lambda t, f, x, y: f.hessian(lambda a: a.sum(), x),
    "vjp": lambda t, f, x, y: f.vjp(two, (x, y), (x, t.ones((), dtype=t.float64))),
    "vjp of a scalar": lambda t, f, x, y: f.vjp(cubic, (x, y), create_graph=True),
    "jvp": lambda t, f, x, y: f.jvp(two, (x, y), (x, y)),
    "jvp with a graph": lambda t, f, x, y: f.jvp(two, (x, y), (x, y), create_graph=True),
    "vhp": lambda t, f, x, y: f.vhp(cubic, (x, y), (x, y)),
    "hvp": lambda t, f, x, y: f.hvp(cubic, (x, y), (x, y), create_graph=True),
}


def outcome(lib, case, needs):
    draw = np.random.default_rng(0)
    x, y = (lib.from_numpy(draw.normal(size=s)).requires_grad_(needs) for s in ((2, 3), (3,)))
    return case(lib, lib.autograd.functional, x, y)


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name, needs):
    ours, theirs = (tree_leaves(outcome(lib, CASES[name], needs)) for lib in (tenon, torch))

    assert [v.requires_grad for v in ours] == [v.requires_grad for v in theirs]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


REFUSED = {
    "independent": lambda t, f, x, y: f.jacobian(double, (x, y), strict=True),
    "constant": lambda t, f, x, y: f.jacobian(lambda a: t.ones(3), x, strict=True),
    "a line with a graph": lambda t, f, x, y: f.jacobian(lambda a: a * 2, x, strict=True, create_graph=True),
    "strict and vectorized": lambda t, f, x, y: f.jacobian(lambda a: a * 2, x, strict=True, vectorize=True),
    "hvp of a line": lambda t, f, x, y: f.hvp(lambda a: a.sum(), x, x, strict=True),
    "vhp of a line": lambda t, f, x, y: f.vhp(lambda a: a.sum(), x, x, strict=True),
    "vhp of a vector": lambda t, f, x, y: f.vhp(lambda a: a, x, x),
    "hessian of a vector": lambda t, f, x, y: f.hessian(lambda a: a, x),
    "vjp independent": lambda t, f, x, y: f.vjp(lambda a, b: a.sum(), (x, y), strict=True),
    "no vector": lambda t, f, x, y: f.vjp(two, (x, y)),
    "vjp of a line with a graph": lambda t, f, x, y: f.vjp(
        lambda a: a.clone(), x, x, create_graph=True, strict=True
    ),
    "jvp of a line with a graph": lambda t, f, x, y: f.jvp(
        lambda a: a.clone(), x, x, create_graph=True, strict=True
    ),
    "vjp of what is detached": lambda t, f, x, y: f.vjp(lambda a: a.detach(), x, x, strict=True),
    "jvp of what is detached": lambda t, f, x, y: f.jvp(lambda a: a.detach(), x, x, strict=True),
    "hvp of what is detached": lambda t, f, x, y: f.hvp(lambda a: a.detach().sum(), x, x, strict=True),
    "hessian of a line": lambda t, f, x, y: f.hessian(lambda a: (3 * a).sum(), x, strict=True),
    "two vectors": lambda t, f, x, y: f.vjp(lambda a: a, x, (x, x)),
    "a short vector": lambda t, f, x, y: f.jvp(lambda a: a, x, x[:1]),
    "forward mode in a loop": lambda t, f, x, y: f.jacobian(lambda a: a, x, strategy="forward-mode"),
    "jvp independent": lambda t, f, x, y: f.jvp(double, (x, y), (x, y), strict=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_in_its_words(name):
    errors = []
    for lib in (tenon, torch):
        with pytest.raises(RuntimeError) as caught:
            outcome(lib, REFUSED[name], False)
        errors.append(str(caught.value))

    assert errors[0][:45] == errors[1][:45]


@pytest.mark.parametrize("name", ["vjp", "jvp", "hvp", "vhp", "jacobian", "hessian"])
def test_what_is_not_a_tensor_is_refused_in_torchs_words(name):
    for given in (lambda x, f: f(lambda a: a.sum(), (x, 2)), lambda x, f: f(lambda a: (a.sum(), "b"), x)):
        errors = []
        for lib in (tenon, torch):
            with pytest.raises(TypeError) as caught:
                given(lib.ones(1), getattr(lib.autograd.functional, name))
            errors.append(str(caught.value).split(" but ")[0])
        assert errors[0] == errors[1]
