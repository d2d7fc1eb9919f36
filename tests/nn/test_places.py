"""Errors name the path of the module in which they occurred, in forward and in the backward of its ops."""

import pytest

import tenon
from tenon import nn
from tenon.errors import DeviceError, DTypeError, FreedGraphError, ModifiedValueError, ShapeError


class Spoils(nn.Module):
    """Modifies in place a tensor that its own exp has saved."""

    def forward(self, x):
        y = x.exp()
        y.add_(1)
        return y


def test_a_value_modified_in_place_names_op_and_module_path():
    net = nn.Sequential(nn.Linear(3, 3), nn.ModuleDict({"inner": Spoils()})["inner"])
    tower = nn.ModuleDict({"left": net})

    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = tower

        def forward(self, x):
            return self.parts["left"](x)

    model = Tower()
    out = model(tenon.randn(2, 3))

    with pytest.raises(ModifiedValueError, match=r"output \[2, 3\] of exp in module parts\.left\.1 "):
        out.sum().backward()


def test_a_second_backward_names_op_and_module():
    net = nn.Sequential(nn.Tanh())
    loss = net(tenon.randn(3, requires_grad=True)).sum()
    loss.backward()

    with pytest.raises(FreedGraphError, match="op tanh in module 0"):
        loss.backward()


def test_outside_of_any_module_only_the_op_is_named():
    x = tenon.randn(3, requires_grad=True)
    y = x.exp()
    y.add_(1)

    with pytest.raises(ModifiedValueError, match=r"of exp is at version 1"):
        y.sum().backward()


def test_the_place_remains_when_forward_raises():
    from tenon.engine import scopes

    with pytest.raises(Exception, match="cannot be multiplied"):
        nn.Sequential(nn.Linear(3, 2))(tenon.ones(1, 4))

    assert scopes.running.place is None


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8)

    def forward(self, x):
        return self.query(x) @ x


class Layer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.attn = inner

    def forward(self, x):
        return self.attn(x)


class Encoder(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.layers = nn.ModuleList([*(Layer(nn.Identity()) for _ in range(3)), Layer(inner)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


FAULTS = {
    "inner sizes": (
        lambda: tenon.ones(5, 7),
        ShapeError,
        r"\[5, 7\] @ \[8, 8\].*attn\.layers\.3\.attn\.query \(Linear\)",
    ),
    "own product": (
        lambda: tenon.ones(5, 8),
        ShapeError,
        r"\[5, 8\] @ \[5, 8\].*layers\.3\.attn \(Attention\)",
    ),
    "dtype": (lambda: tenon.ones(8, 8).double(), DTypeError, r"Double and Float.*attn\.query"),
    "device": (lambda: tenon.ones(8, 8, device="meta"), DeviceError, r"cpu and meta.*attn\.query"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_in_forward_names_the_path_from_the_module_called_and_both_shapes(name):
    make, kind, words = FAULTS[name]

    with pytest.raises(kind, match=words) as caught:
        Layer(Encoder(Attention()))(make())

    assert caught.value.tenon_module_path.startswith("attn.layers.3.attn")
    with pytest.raises(kind) as shorter:
        Encoder(Attention())(make())
    assert shorter.value.tenon_module_path == caught.value.tenon_module_path.removeprefix("attn.")


def test_a_foreign_error_keeps_class_and_text_and_carries_the_path_as_a_note():
    class Looks(nn.Module):
        def forward(self, x):
            return {}["missing"]

    with pytest.raises(KeyError) as caught:
        Encoder(Looks())(tenon.ones(2))

    assert str(caught.value) == "'missing'"
    assert caught.value.__notes__ == ["in module layers.3.attn (Looks)"]
