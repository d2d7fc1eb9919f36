"""A layer is one class: ``tenon.nn`` offers the names of the family files, and a new class needs nothing more."""

import importlib
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import nn

pytestmark = pytest.mark.together

FOLDER = Path(nn.layers.__file__).parent
#: PyTorch has it in the module of its family only.
UNOFFERED = {"NonDynamicallyQuantizableLinear"}
FAMILIES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "__init__")


@pytest.mark.parametrize("family", FAMILIES)
def test_nn_offers_every_layer_of_a_family(family):
    module = importlib.import_module(f"tenon.nn.layers.{family}")
    written = {
        name
        for name, thing in vars(module).items()
        if isinstance(thing, type)
        and issubclass(thing, nn.Module)
        and thing.__module__ == module.__name__
        and not name.startswith("_")
    }

    assert written - UNOFFERED <= set(module.__all__), "name it in the file's __all__"
    assert set(module.__all__) <= set(nn.__all__), f"nn/layers/__init__.py lacks the line of {family}"
    assert all(getattr(nn, name) is getattr(module, name) for name in module.__all__)


class Scale(nn.Module):
    """``x * weight``, an axis with a weight for each place."""

    def __init__(self, features, device=None, dtype=None):
        super().__init__()
        self.features = features
        self.weight = nn.Parameter(tenon.full((features,), 2.0, device=device, dtype=dtype))

    def forward(self, x):
        return x * self.weight

    def extra_repr(self):
        return f"features={self.features}"


@pytest.fixture
def layer():
    return Scale(3)


def test_a_new_layer_computes_and_learns(layer):
    x = tenon.tensor([[1.0, 2.0, 3.0]])
    y = layer(x)
    y.sum().backward()

    np.testing.assert_array_equal(y.detach().numpy(), [[2.0, 4.0, 6.0]])
    np.testing.assert_array_equal(layer.weight.grad.numpy(), [1.0, 2.0, 3.0])
    tenon.optim.SGD(layer.parameters(), lr=1.0).step()
    np.testing.assert_array_equal(layer.weight.detach().numpy(), [1.0, 0.0, -1.0])


def test_a_new_layer_saves_and_loads(layer, tmp_path):
    tenon.save(layer.state_dict(), tmp_path / "scale.pt")
    other = Scale(3)
    other.weight.data.zero_()
    other.load_state_dict(tenon.load(tmp_path / "scale.pt"))

    assert tenon.equal(other.weight, layer.weight)


def test_a_new_layer_has_a_text_a_dtype_and_a_meta_form(layer):
    assert repr(nn.Sequential(layer)) == "Sequential(\n  (0): Scale(features=3)\n)"
    assert layer.to(tenon.float64)(tenon.ones(1, 3, dtype=tenon.float64)).dtype is tenon.float64
    assert tuple(Scale(3, device="meta")(tenon.empty(5, 3, device="meta")).shape) == (5, 3)


def test_a_new_layer_compiles(layer):
    compiled = tenon.compile(layer, fullgraph=True)
    x = tenon.randn(4, 3)
    for _ in range(3):
        y = compiled(x)

    np.testing.assert_allclose(y.detach().numpy(), 2 * x.numpy(), rtol=1e-6)
