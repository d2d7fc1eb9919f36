"""Errors in backward name the module whose forward made the node."""

import pytest

import tenon
from tenon import nn
from tenon.errors import FreedGraphError, ModifiedValueError


class Spoils(nn.Module):
    """Modifies in place what its own exp needs."""

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


def test_the_place_is_left_behind_when_forward_raises():
    from tenon.core import scopes

    with pytest.raises(Exception, match="cannot be multiplied"):
        nn.Sequential(nn.Linear(3, 2))(tenon.ones(1, 4))

    assert scopes.here.place is None
