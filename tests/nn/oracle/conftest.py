"""Runs one program on tenon and on PyTorch and compares what it returns."""

import re

import pytest

import tenon


def small(t):
    """The modules that the programs are about, over the framework ``t``."""

    class Affine(t.nn.Module):
        def __init__(self, inputs=2, outputs=3):
            super().__init__()
            self.weight = t.nn.Parameter(t.ones(outputs, inputs))
            self.register_parameter("bias", None)
            self.register_buffer("calls", t.zeros(1))
            self.register_buffer("scratch", t.zeros(2), persistent=False)
            self.register_buffer("nothing", None)

        def forward(self, x):
            return x @ self.weight.t()

    class Double(t.nn.Module):
        def forward(self, x, scale=2.0):
            return x * scale

    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Affine()
            self.twice = Double()
            self.rest = t.nn.ModuleList([Affine(3, 3), Affine(3, 3), Double()])
            self.named = t.nn.ModuleDict({"b": Double(), "a": Affine()})
            self.shared = self.first

        def extra_repr(self):
            return "one=1"

        def forward(self, x):
            return self.twice(self.first(x))

    return Affine, Double, Net


class Framework:
    """tenon or torch by its own names, with ``small()`` and ``error()`` in addition."""

    def __init__(self, package):
        self.package = package

    def __getattr__(self, name):
        return getattr(self.package, name)

    def small(self):
        """The modules that most programs are about."""
        return small(self.package)

    def error(self, action):
        """The message of what ``action`` raises (str() of torch's KeyErrors would be its repr)."""
        try:
            action()
        except Exception as raised:
            return str(raised.args[0])
        return "no error"


def public(value):
    """What both frameworks print alike: object addresses and package names removed."""
    text = re.sub(r"0x[0-9a-f]+", "0x", repr(value))
    return re.sub(r"<class '[\w.]*\.(\w+)'>", r"<class '\1'>", text)


@pytest.fixture
def same_on_both():
    torch = pytest.importorskip("torch")

    def check(program):
        assert public(program(Framework(tenon))) == public(program(Framework(torch)))

    return check
