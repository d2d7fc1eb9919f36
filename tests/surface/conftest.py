"""Runs one call in tenon and in torch and compares values, dtypes, shapes, errors and gradients.

A call is written as data: strings such as ``"f:3,4"`` stand for arrays. Their letter says what is in them:
f normal, p positive, u in (-0.9, 0.9), q in (0, 1), i integers below 5, n small non-zero integers,
b booleans, s sorted, c complex, z with NaN and infinities, d positive definite; ``"k:3,4<7"`` below 7.
"""

import math
import re
import zlib

import numpy as np
import pytest

import tenon

SPEC = re.compile(r"^([fpuqinbsczdk]):([\d,]*)(?:<(\d+))?$")
TOLERANCE = {
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "float32": 2e-5,
    "float64": 1e-10,
    "complex64": 2e-5,
    "complex128": 1e-10,
}


def make(spec, seed=0):
    """The array that ``spec`` stands for."""
    kind, sizes, bound = SPEC.match(spec).groups()
    shape = tuple(int(s) for s in sizes.split(",") if s)
    draw = np.random.default_rng([zlib.crc32(spec.encode()), seed])
    if kind == "b":
        return draw.random(shape) > 0.5
    if kind in "ik":
        return draw.integers(0, int(bound or 5), shape)
    if kind == "n":
        return draw.integers(1, 6, shape) * draw.choice([-1, 1], shape)
    if kind == "d":
        x = draw.normal(size=shape)
        return np.asarray(x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1]))
    x = draw.normal(size=shape)
    if kind == "c":
        x = x + 1j * draw.normal(size=shape)
    elif kind == "z":
        x = np.where(
            draw.random(shape) < 0.3, draw.choice([math.nan, math.inf, -math.inf, 0.0, -0.0], shape), x
        )
    elif kind == "s":
        x = np.sort(x, -1)
    elif kind != "f":
        x = {"p": np.abs(x) + 0.1, "u": np.tanh(x) * 0.9, "q": 1 / (1 + np.exp(-x))}[kind]
    return np.asarray(x)


def is_spec(value):
    return isinstance(value, str) and SPEC.match(value) is not None


class Side:
    """One of both libraries, with the leaves that a call made."""

    def __init__(self, lib, dtype):
        self.lib, self.dtype, self.leaves, self.count = lib, dtype, [], 0

    def build(self, value):
        if is_spec(value):
            self.count += 1
            array = make(value, self.count)
            tensor = self.lib.from_numpy(array.copy())
            if value[0] not in "ikb" and self.dtype:
                kind = (
                    self.dtype if value[0] != "c" else {"float64": "complex128"}.get(self.dtype, "complex64")
                )
                tensor = tensor.to(getattr(self.lib, kind))
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                tensor.requires_grad_()
                self.leaves.append(tensor)
            return tensor
        if isinstance(value, str) and value.startswith("dtype:"):
            return getattr(self.lib, value[6:])
        if isinstance(value, (list, tuple)):
            return type(value)(self.build(v) for v in value)
        if isinstance(value, dict):
            return {k: self.build(v) for k, v in value.items()}
        return value

    def run(self, name, args, kwargs, as_method=False):
        if as_method:
            first, *rest = self.build(args)
            return getattr(first, name)(*rest, **self.build(kwargs))
        target = self.lib
        for part in name.split("."):
            target = getattr(target, part)
        return target(*self.build(args), **self.build(kwargs))


def flat(result):
    if isinstance(result, (tuple, list)):
        return [leaf for r in result for leaf in flat(r)]
    return [result]


def as_numpy(tensor):
    tensor = tensor.detach()
    if "bfloat16" in str(tensor.dtype):
        tensor = tensor.float()
    return tensor.numpy(force=True)


def check(ours, theirs, tolerance, what):
    assert str(ours.dtype) == str(theirs.dtype), f"{what}: dtype {ours.dtype}, torch has {theirs.dtype}"
    assert tuple(ours.shape) == tuple(theirs.shape), (
        f"{what}: shape {tuple(ours.shape)}, torch has {tuple(theirs.shape)}"
    )
    np.testing.assert_allclose(as_numpy(ours), as_numpy(theirs), rtol=tolerance, atol=tolerance, err_msg=what)


def loss(side, results):
    """A number that depends differently on every element of every differentiable result."""
    total = None
    for r in results:
        if hasattr(r, "requires_grad") and r.requires_grad:
            count = math.prod(r.shape)
            weights = side.lib.from_numpy(np.cos(np.arange(count, dtype=np.float64)).reshape(tuple(r.shape)))
            term = (r * weights.to(r.dtype)).sum()
            term = term.real if term.dtype.is_complex else term
            total = term if total is None else total + term.to(total.dtype)
    return total


@pytest.fixture
def compare():
    """``compare(name, args, kwargs, dtype, grad)``: call in both libraries and compare everything."""
    torch = pytest.importorskip("torch")

    def run(name, args=(), kwargs=None, dtype="float64", grad=True, exact=False, refusals=True, method=False):
        if method and (name == "where" or not (args and is_spec(args[0]) and hasattr(torch.Tensor, name))):
            return  # a function only, or a method whose self is another argument

        sides = [Side(tenon, dtype), Side(torch, dtype)]
        results = []
        for side in sides:
            try:
                results.append(side.run(name, tuple(args), kwargs or {}, method))
            except Exception as error:
                results.append(error)
        ours, theirs = results
        if isinstance(theirs, Exception) and not refusals:
            return  # what torch computes is compared; tenon may compute more
        if isinstance(theirs, Exception):
            assert isinstance(ours, Exception), f"torch refuses ({theirs}), tenon returned {ours}"
            return
        if isinstance(ours, Exception):
            raise AssertionError(f"tenon refuses what torch computes: {ours!r}") from ours
        tolerance = 0 if exact else TOLERANCE.get(dtype, 1e-6)
        ours, theirs = flat(ours), flat(theirs)
        if not exact:
            names = (str(getattr(t, "dtype", "")).removeprefix("torch.") for t in theirs)
            tolerance = max(tolerance, *(TOLERANCE.get(n, 0) for n in names))
        assert len(ours) == len(theirs)
        for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if isinstance(b, torch.Tensor):
                check(a, b, tolerance, f"result {position}")
                if grad:
                    assert a.requires_grad == b.requires_grad, (
                        f"result {position} requires_grad={a.requires_grad}"
                    )
            else:
                assert a == b or str(a) == str(b)  # dtypes are equal by their names
        if grad:
            totals = [loss(side, flat_side) for side, flat_side in zip(sides, (ours, theirs), strict=True)]
            if totals[1] is not None:
                for total in totals:
                    total.backward()
                for position, (a, b) in enumerate(zip(sides[0].leaves, sides[1].leaves, strict=True)):
                    assert (a.grad is None) == (b.grad is None), (
                        f"gradient {position}: {a.grad}, torch has {b.grad}"
                    )
                    if b.grad is not None:
                        check(a.grad, b.grad, tolerance * 10, f"gradient {position}")

    return run


@pytest.fixture
def written():
    """``written(name, args)``: what both libraries write into ``out=``, as NumPy arrays."""
    torch = pytest.importorskip("torch")

    def run(name, args):
        arrays = []
        for lib in (tenon, torch):
            side = Side(lib, "float64")
            built = side.build(args)
            for leaf in side.leaves:
                leaf.requires_grad_(False)
            out = lib.empty(0, dtype=lib.float64)
            target = lib
            for part in name.split("."):
                target = getattr(target, part)
            result = target(*built, out=out)
            assert result is out
            arrays.append(out.numpy())
        return arrays

    return run


@pytest.fixture
def compare_in_place():
    """``compare_in_place(name, target, args, kwargs, grad)``: a method that writes into its tensor."""
    torch = pytest.importorskip("torch")

    def run(name, target, args, kwargs, grad=False):
        found = []
        for lib in (tenon, torch):
            side = Side(lib, "float64")
            x = side.build(target)
            rest, options = side.build(tuple(args)), side.build(kwargs)
            if not grad:
                for leaf in side.leaves:
                    leaf.requires_grad_(False)
            written = x.clone() if grad else x
            try:
                result = getattr(written, name)(*rest, **options)
                assert result is written
                if grad:
                    loss(side, [written]).backward()
                found.append((written, [leaf.grad for leaf in side.leaves]))
            except Exception as error:
                found.append(error)
        ours, theirs = found
        if isinstance(theirs, Exception):
            assert isinstance(ours, Exception), f"torch refuses ({theirs}), tenon returned {ours}"
            return
        if isinstance(ours, Exception):
            raise AssertionError(f"tenon refuses what torch computes: {ours!r}") from ours
        check(ours[0], theirs[0], 1e-10, name)
        for position, (a, b) in enumerate(zip(ours[1], theirs[1], strict=True)):
            assert (a is None) == (b is None), f"gradient {position}: {a}, torch has {b}"
            if b is not None:
                check(a, b, 1e-9, f"gradient {position}")

    return run
