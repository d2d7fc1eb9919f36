"""``tenon.func`` returns what ``torch.func`` does, nested and under autograd, and raises the same errors."""

import numpy as np
import pytest

import tenon
from tenon.tensors.pytree import tree_leaves

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
    pytest.mark.together,
]


@pytest.fixture(scope="module")
def sides():
    torch = pytest.importorskip("torch")
    return [(tenon, tenon.func), (torch, torch.func)]


def inputs(lib):
    draw = np.random.default_rng(0)
    return [lib.from_numpy(draw.normal(size=shape)) for shape in (3, 3, (4, 3))]


CASES = {
    "grad": lambda t, f, x, y, b: f.grad(lambda a: (a.sin() * a).sum())(x),
    "grad of grad": lambda t, f, x, y, b: f.grad(lambda a: f.grad(lambda c: (c**3).sum())(a).sum())(x),
    "argnums": lambda t, f, x, y, b: f.grad(lambda a, c: (a * c).sum(), argnums=(0, -1))(x, y),
    "nest": lambda t, f, x, y, b: f.grad(lambda d: (d["a"] * d["b"].exp()).sum())({"a": x, "b": y}),
    "aux": lambda t, f, x, y, b: f.grad(lambda a: ((a * a).sum(), {"k": a + 1}), has_aux=True)(x),
    "value": lambda t, f, x, y, b: f.grad_and_value(lambda a: ((a * a).sum(), a + 1), has_aux=True)(x),
    "unused": lambda t, f, x, y, b: f.grad(lambda a, c: c.sum())(x, y),
    "vjp": lambda t, f, x, y, b: (lambda o, p: (o, p((x, y)), p((y, y))))(
        *f.vjp(lambda a, c: (a * c, a + c.exp()), x, y)
    ),
    "jvp": lambda t, f, x, y, b: f.jvp(lambda a, c: (a * c, a + c.exp(), c * 0 + 1), (x, y), (y, x)),
    "jvp of a captured": lambda t, f, x, y, b: f.grad(
        lambda w: f.jvp(lambda a: a**2 * w, (x,), (y,))[1].sum()
    )(y),
    "jacrev": lambda t, f, x, y, b: f.jacrev(lambda a, c: (a * c, a.sum()), argnums=(0, 1))(x, y),
    "jacrev of nests": lambda t, f, x, y, b: f.jacrev(lambda a: {"o": a["k"] ** 2})({"k": x}),
    "jacfwd": lambda t, f, x, y, b: f.jacfwd(lambda a: a.exp() * a.sum())(x),
    "hessian": lambda t, f, x, y, b: f.hessian(lambda a: (a**3).sum() * a[0])(x),
    "hessian by both": lambda t, f, x, y, b: f.hessian(lambda a, c: (a**2 * c).sum(), argnums=(0, 1))(x, y),
    "linearize": lambda t, f, x, y, b: (lambda o, p: (o, p(y)))(*f.linearize(lambda a: a.sin(), x)),
    "vmap": lambda t, f, x, y, b: f.vmap(lambda a, c: (a.dot(c), a * c), in_dims=(0, None), out_dims=(0, 1))(
        b, x
    ),
    "vmap of nests": lambda t, f, x, y, b: f.vmap(
        lambda d: {"s": d["a"] + d["b"]}, in_dims=({"a": 0, "b": None},)
    )({"a": b, "b": x}),
    "vmap of grad": lambda t, f, x, y, b: f.vmap(f.grad(lambda w, s: (w * s).sin().sum()), in_dims=(None, 0))(
        x, b
    ),
    "vmap of vmap": lambda t, f, x, y, b: f.vmap(
        f.vmap(lambda a, c: a * c, in_dims=(0, None)), in_dims=(None, 0)
    )(x, b),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(sides, name):
    ours, theirs = (tree_leaves(CASES[name](lib, func, *inputs(lib))) for lib, func in sides)

    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)
        assert a.requires_grad == b.requires_grad


def test_results_belong_to_a_graph_outside_if_there_is_one(sides):
    found = []
    for lib, func in sides:
        x, w, _ = (v.requires_grad_() for v in inputs(lib))
        grad = func.grad(lambda a, w=w: (a**3 * w).sum())
        grad(x).sum().backward()
        alone = func.grad(lambda a: (a**3).sum())(x.detach())
        with lib.no_grad():
            quiet = grad(x)
        captured = grad(x.detach())
        found.append(
            [x.grad.numpy(), w.grad.numpy(), alone.requires_grad, quiet.requires_grad, captured.requires_grad]
        )

    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b)


REFUSED = {
    "no scalar": lambda t, f, x, y, b: f.grad(t.sin)(x),
    "no tensor": lambda t, f, x, y, b: f.grad(lambda a: 3)(x),
    "integers": lambda t, f, x, y, b: f.grad(lambda a: a.sum())(t.ones(3, dtype=t.long)),
    "argnum": lambda t, f, x, y, b: f.grad(lambda a: a.sum(), argnums=2)(x),
    "argnum twice": lambda t, f, x, y, b: f.grad(lambda a, c: a.sum(), argnums=(0, 0))(x, y),
    "cotangents": lambda t, f, x, y, b: f.vjp(lambda a: (a, a), x)[1]((x,)),
    "primals": lambda t, f, x, y, b: f.jvp(t.sin, x, y),
    "tangent": lambda t, f, x, y, b: f.jvp(t.sin, (x,), (y[:2],)),
    "sizes": lambda t, f, x, y, b: f.vmap(lambda a, c: a)(x, b),
    "no in_dims": lambda t, f, x, y, b: f.vmap(lambda a: a, in_dims=None)(x),
    "nothing mapped": lambda t, f, x, y, b: f.vmap(lambda a: a, in_dims=(None,))(x),
    "no inputs": lambda t, f, x, y, b: f.vmap(lambda: 1)(),
    "a number": lambda t, f, x, y, b: f.vmap(lambda a: a)(3),
    "returns a number": lambda t, f, x, y, b: f.vmap(lambda a: 3)(x),
    "random": lambda t, f, x, y, b: f.vmap(lambda a: t.rand(2))(x),
    "randomness": lambda t, f, x, y, b: f.vmap(t.sin, randomness="some")(x),
    "axis": lambda t, f, x, y, b: f.vmap(lambda a: a, in_dims=3)(x),
    "nesting": lambda t, f, x, y, b: f.vmap(lambda a: a, in_dims=(0, 0))(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused_in_its_words(sides, name):
    errors = []
    for lib, func in sides:
        with pytest.raises(Exception) as caught:
            REFUSED[name](lib, func, *inputs(lib))
        errors.append(caught.value)

    assert isinstance(errors[0], type(errors[1]))
    assert str(errors[0])[:40] == str(errors[1])[:40]


def test_random_numbers_are_the_same_or_different():
    x = tenon.ones(3)

    same = tenon.func.vmap(lambda a: tenon.rand(2), randomness="same")(x)
    different = tenon.func.vmap(lambda a: tenon.rand(2), randomness="different")(x)

    assert tenon.equal(same[0], same[2])
    assert not tenon.equal(different[0], different[2])


def test_gradients_of_each_sample_of_a_model():
    model = tenon.nn.Linear(3, 1)
    parameters = dict(model.named_parameters())
    x, y = tenon.randn(4, 3), tenon.randn(4, 1)

    def loss(parameters, x, y):
        return (tenon.func.functional_call(model, parameters, (x,)) - y).square().sum()

    each = tenon.func.vmap(tenon.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)

    loss(parameters, x, y).backward()
    assert each["weight"].shape == (4, 1, 3)
    assert tenon.allclose(each["weight"].sum(0), model.weight.grad)


@pytest.mark.parametrize("outer", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("inner", ["jacrev", "jacfwd", "grad"])
def test_jacobians_are_computed_under_no_grad(sides, outer, inner):
    found = []
    for lib, func in sides:
        with lib.no_grad():
            hessian = getattr(func, outer)(getattr(func, inner)(lambda a: (a**3).sum()))(inputs(lib)[0])
        assert not hessian.requires_grad
        found.append(hessian.numpy())
    np.testing.assert_allclose(*found)
    assert np.any(found[0])
