"""Graphs built by hand and at random."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.aval import Aval, aval_of
from tenon.engine.op import table
from tenon.graph.graph import Graph, Ref, Write
from tenon.kernels.backend import backend_named

F32 = np.dtype(np.float32)


class Maker:
    """Writes a graph as one writes a function: ``m.add(x, y)`` appends a call."""

    def __init__(self, seed=0):
        self.graph = Graph()
        self.arrays = {}
        self.random = np.random.default_rng(seed)

    def input(self, *shape, dtype=F32, label="", high=None):
        dtype = np.dtype(dtype)
        node = self.graph.input(Aval(shape, dtype), None, label)
        if high is not None:
            self.arrays[node] = self.random.integers(0, high, shape).astype(dtype)
        else:
            self.arrays[node] = np.asarray(self.random.normal(size=shape)).astype(dtype)
        return node.out()

    def constant(self, array):
        return self.graph.constant(np.asarray(array)).out()

    def scalar(self, label="lr"):
        return self.graph.scalar("input", (), None, label).out()

    def number(self, function, *args):
        return self.graph.scalar(function, args).out()

    def call(self, name, *args, residuals=(), **attrs):
        op = table[name]
        made = op.infer(*(a.aval if a.__class__ is Ref else a for a in args), **attrs)
        avals = made if isinstance(made, tuple) else (made,)
        node = self.graph.call(op, args, attrs, (*(aval_of(a) for a in avals), *residuals))
        return node.out() if op.outputs == 1 else tuple(node.out(i) for i in range(len(avals)))

    def __getattr__(self, name):
        if name not in table.by_name:
            raise AttributeError(name)
        return lambda *args, **attrs: self.call(name, *args, **attrs)

    def __repr__(self):
        return str(self.graph)

    def returns(self, *refs):
        self.graph.outputs = list(refs)

    def writes(self, target, value):
        self.graph.writes.append(Write(target.node, value))

    def copies(self):
        """Fresh arrays of the inputs."""
        return {node: array.copy() for node, array in self.arrays.items()}


@pytest.fixture
def make():
    return Maker


@pytest.fixture
def backend():
    return backend_named("cpu")


@pytest.fixture(scope="session")
def twins():
    """The module ``twins.py`` beside this file."""
    spec = importlib.util.spec_from_file_location("twins", Path(__file__).with_name("twins.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
