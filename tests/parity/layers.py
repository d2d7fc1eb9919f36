"""A layer's case in both libraries: initial weights, keys, text, outputs, gradients, buffers afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from parity.functions import SEED, refused_alike
from parity.sides import Side, as_numpy, check, check_gradients, check_results, loss, parts, tolerance_of

import tenon


def _made(lib: Any, name: str, content: dict[str, Any], dtype: str) -> Any:
    lib.manual_seed(SEED)
    return Side(lib, dtype).construct(name, content["make"])


def _called(lib: Any, layer: Any, content: dict[str, Any], dtype: str, strided: bool) -> tuple[Side, Any]:
    side = Side(lib, dtype, strided)
    positional, keywords = parts(content["call"])
    arguments, keywords = side.build(positional) if positional else (), side.build(keywords)
    arguments = [a * 1 if getattr(a, "requires_grad", False) else a for a in arguments]  # inplace=True
    lib.manual_seed(SEED + 1)
    return side, layer(*arguments, **keywords)


def compare_initial(torch: Any, name: str, content: dict[str, Any]) -> None:
    """The same seed gives the same weights, under the same keys; both print alike."""
    try:
        theirs = _made(torch, name, content, "float32")
    except Exception as error:
        with pytest.raises(Exception) as refused:
            _made(tenon, name, content, "float32")
        return refused_alike(refused.value, error)
    ours = _made(tenon, name, content, "float32")
    state, expected = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(expected)
    for key in expected:
        if type(expected[key]).__name__.startswith("Uninitialized"):  # of a lazy layer: no data yet
            assert type(state[key]).__name__ == type(expected[key]).__name__, key
        elif hasattr(expected[key], "detach"):
            assert str(state[key].dtype) == str(expected[key].dtype), key
            np.testing.assert_array_equal(as_numpy(state[key]), as_numpy(expected[key]), err_msg=key)
    assert repr(ours) == repr(theirs)
    needs = [[(n, p.requires_grad) for n, p in m.named_parameters()] for m in (ours, theirs)]
    assert needs[0] == needs[1]


def compare(
    torch: Any, name: str, content: dict[str, Any], dtype: str, training: bool, strided: bool = False
) -> None:
    """Outputs, gradients of inputs and parameters, and the buffers afterwards; or both refuse."""
    if dtype not in content.get("dtypes", (dtype,)):
        return
    found: list[Any] = []
    for lib in (tenon, torch):
        try:
            layer = _made(lib, name, content, dtype).to(getattr(lib, dtype)).train(training)
            side, results = _called(lib, layer, content, dtype, strided)
            total = loss(lib, results)
            if total is not None:
                total.backward()
            found.append((layer, side, results))
        except Exception as error:
            found.append(error)
    ours, theirs = found
    if isinstance(theirs, Exception):
        return refused_alike(ours if isinstance(ours, Exception) else None, theirs)
    if isinstance(ours, Exception):
        raise AssertionError(f"tenon refuses what torch computes: {ours!r}") from ours
    tolerance = tolerance_of([], dtype)
    check_results(ours[2], theirs[2], tolerance)
    check_gradients(ours[1].leaves, theirs[1].leaves, tolerance)
    expected = dict(theirs[0].named_parameters())
    actual = dict(ours[0].named_parameters())
    assert list(actual) == list(expected)
    check_gradients(actual.values(), expected.values(), tolerance, "parameter gradient")
    for key, value in theirs[0].state_dict().items():
        if hasattr(value, "detach"):
            check(ours[0].state_dict()[key], value, tolerance, key)
