"""Comparison with real torch: values, gradients and second-order gradients of one expression in both."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon

TOLERANCE = {"float32": 2e-5, "float64": 1e-10}


def _run(
    library: Any, expression: Callable[..., Any], arrays: tuple[np.ndarray, ...], order: int
) -> list[Any]:
    functional = __import__(f"{library.__name__}.nn.functional", fromlist=["x"])
    tensors = [library.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in arrays]
    leaves = [t.requires_grad_() for a, t in zip(arrays, tensors, strict=True) if _floating(a)]
    result = expression(library, functional, *tensors)
    outputs = result if isinstance(result, tuple) else (result,)
    found: list[Any] = [o.detach().numpy(force=True) for o in outputs]
    if not order:
        return found
    traced = [o for o in outputs if o.requires_grad]
    grads = library.autograd.grad(
        [(o * _weights(library, o)).sum() for o in traced], leaves, create_graph=order > 1, allow_unused=True
    )
    found += [None if g is None else g.detach().numpy(force=True) for g in grads]
    if order > 1:
        totals = [(g * g).sum() for g in grads if g is not None and g.requires_grad]
        second = library.autograd.grad(totals, leaves, allow_unused=True) if totals else [None] * len(leaves)
        found += [None if g is None else g.detach().numpy(force=True) for g in second]
    return found


def _floating(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def _weights(library: Any, like: Any) -> Any:
    host = np.cos(np.arange(like.numel(), dtype=np.float64)) + 0.3
    return library.from_numpy(host.reshape(tuple(like.shape)).astype(str(like.dtype).removeprefix("torch.")))


def _agree(
    expression: Callable[..., Any], *arrays: Any, order: int = 1, tolerance: float | None = None
) -> None:
    """``expression(library, functional, *tensors)`` gives the same in tenon and torch, with its gradients."""
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _run(torch, expression, arrays, order)
    actual = _run(tenon, expression, arrays, order)
    assert len(actual) == len(expected)
    for position, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if e is None or a is None:
            value = a if e is None else e
            assert value is None or not np.any(value), f"result {position}: one side has no gradient"
            continue
        assert a.shape == e.shape, f"result {position}: shape {a.shape}, torch {e.shape}"
        assert a.dtype == e.dtype, f"result {position}: dtype {a.dtype}, torch {e.dtype}"
        limit = TOLERANCE.get(e.dtype.name, 0) if tolerance is None else tolerance
        np.testing.assert_allclose(a, e, rtol=limit, atol=limit, err_msg=f"result {position}")


@pytest.fixture
def agree() -> Callable[..., None]:
    return _agree


def _refuse(expression: Callable[..., Any], *arrays: Any) -> None:
    """Both libraries refuse ``expression``: tenon with a class of torch's exception, and torch's opening
    words."""
    torch = pytest.importorskip("torch")
    tensors = [
        [lib.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in arrays]
        for lib in (torch, tenon)
    ]
    with pytest.raises(Exception) as expected:
        expression(torch, torch.nn.functional, *tensors[0])
    with pytest.raises(type(expected.value)) as actual:
        expression(tenon, tenon.nn.functional, *tensors[1])
    wanted = str(expected.value).split("\n")[0].rstrip(".")
    assert str(actual.value).startswith(wanted), f"tenon: {actual.value}\ntorch: {wanted}"


@pytest.fixture
def refuse() -> Callable[..., None]:
    return _refuse


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
