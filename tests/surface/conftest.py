"""Runs one call in tenon and in torch and compares values, dtypes, shapes, errors and gradients.

Calls are written as data (``tests/parity/sides.py``). What a case of the catalogue can say belongs there;
here is what it cannot: dtypes beside float32 and float64, ``out=``, what a method leaves in its tensor.
"""

import sys
from pathlib import Path

import pytest

import tenon

sys.path.append(str(Path(__file__).parents[1]))

from parity.sides import Side, check, check_gradients, flat, is_spec, loss, tolerance_of


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
        ours, theirs = flat(ours), flat(theirs)
        tolerance = 0 if exact else tolerance_of(theirs, dtype)
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
            totals = [
                loss(side.lib, flat_side) for side, flat_side in zip(sides, (ours, theirs), strict=True)
            ]
            if totals[1] is not None:
                for total in totals:
                    total.backward()
                check_gradients(sides[0].leaves, sides[1].leaves, tolerance)

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
                    loss(lib, [written]).backward()
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
