"""Masks, weights, gradients and what is drawn at random are torch's."""

import numpy as np
import pytest

import tenon
from tenon.nn.utils import prune as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.nn.utils.prune")
pytestmark = pytest.mark.oracle

STEPS = {
    "half": lambda p, m: p.l1_unstructured(m, "weight", 0.5),
    "count": lambda p, m: p.l1_unstructured(m, "weight", 3),
    "all": lambda p, m: p.l1_unstructured(m, "weight", 1.0),
    "random": lambda p, m: p.random_unstructured(m, "weight", 0.4),
    "random slices": lambda p, m: p.random_structured(m, "weight", 0.5, 1),
    "slices": lambda p, m: p.ln_structured(m, "weight", 0.4, 2, 0),
    "columns by largest": lambda p, m: p.ln_structured(m, "weight", 1, float("inf"), -1),
    "columns by sum": lambda p, m: p.ln_structured(m, "weight", 1, 1, 1),
    "bias": lambda p, m: p.l1_unstructured(m, "bias", 1),
    "identity": lambda p, m: p.identity(m, "weight"),
}
ORDERS = [(name,) for name in STEPS] + [
    ("random", "half", "slices"),
    ("slices", "random slices", "count"),
    ("columns by sum", "columns by largest"),
]


def pruned(lib, face, layer, order):
    lib.manual_seed(3)
    module = lib.nn.Linear(4, 5) if layer == "linear" else lib.nn.Conv2d(3, 4, 2)
    for name in order:
        STEPS[name](face, module)
    x = np.random.default_rng(0).standard_normal((2, 4) if layer == "linear" else (2, 3, 5, 5))
    out = module(lib.tensor(x.astype(np.float32)))
    out.sin().sum().backward()
    state = {name: value.detach().numpy() for name, value in module.state_dict().items()}
    gradients = [p.grad.numpy() for p in module.parameters()]
    for name in ("weight", "bias"):
        if f"{name}_mask" in state:
            face.remove(module, name)
    return state, [out.detach().numpy(), *gradients], [p.detach().numpy() for p in module.parameters()]


@pytest.mark.together
@pytest.mark.draws
@pytest.mark.parametrize("layer", ["linear", "convolution"])
@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_pruning_prunes_as_torch(order, layer):
    state, results, baked = pruned(tenon, ours, layer, order)
    torch_state, torch_results, torch_baked = pruned(torch, theirs, layer, order)

    assert list(state) == list(torch_state)
    for name in state:
        assert state[name].dtype == torch_state[name].dtype
        np.testing.assert_array_equal(state[name], torch_state[name])
    for a, b in zip(results + baked, torch_results + torch_baked, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
