"""The orders in which one weight is parametrized, pruned and fake-quantized in the tests, and layers made so."""

import itertools

import tenon
from tenon import nn
from tenon.nn.utils import parametrizations, parametrize, prune
from tenon.quantization import FakeQuantize

STEPS = {
    "prune": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),
    "rows": lambda layer: prune.ln_structured(layer, "weight", 1, 2, 0),
    "spectral": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "lengths": parametrizations.weight_norm,
    "fake-quantize": lambda layer: parametrize.register_parametrization(layer, "weight", FakeQuantize()),
}
#: Alone and in pairs, twice the same among them.
SHORT = [
    order
    for count in (1, 2)
    for order in itertools.product(STEPS, repeat=count)
    # Lengths and directions are what is stored, so they come first among parametrizations.
    if order[1:] != ("lengths",) or order[0] in ("prune", "rows")
]
#: The three families in every order, and two parametrizations, two masks and a quantization, each first.
_TWICE = ("spectral", "prune", "orthogonal", "fake-quantize", "rows")
DEEP = [
    *itertools.permutations(("prune", "spectral", "fake-quantize")),
    *itertools.permutations(("rows", "lengths", "fake-quantize"), 3),
    *(_TWICE[i:] + _TWICE[:i] for i in range(len(_TWICE))),
    ("prune", "spectral", "prune"),
    ("spectral", "rows", "orthogonal"),
    ("lengths", "rows", "spectral", "prune", "prune"),
    ("fake-quantize", "prune", "orthogonal", "fake-quantize"),
]
DEEP = [order for order in DEEP if "lengths" not in order or set(order[: order.index("lengths")]) <= {"rows"}]
ORDERS = SHORT + DEEP


def built(order):
    """A layer that has been through the steps of ``order``, the same at every call."""
    tenon.manual_seed(0)
    layer = nn.Linear(4, 4)
    for step in order:
        STEPS[step](layer)
    return layer


def trained(model, x, steps=2):
    """Some steps on the mean of squares; ``model``."""
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model
