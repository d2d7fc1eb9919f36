"""Diagnose which matrix of a batch LAPACK could not factorize, and at which row; run only after a failure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.engine.types import Array

_FINITE = "input tensor should not contain infs or NaNs. Look for them with isfinite()."
_SINGULAR = "because the input matrix is singular."


def failure_message(name: str, function: str, error: Exception, arrays: tuple[Array, ...]) -> str:
    """Return the message for a failure of ``xp.linalg.function(*arrays)`` in the op ``name``."""
    x = arrays[0]
    shapes = f"(shapes {[list(a.shape) for a in arrays]})"
    if not isinstance(x, np.ndarray):
        return f"linalg.{name}: {error} {shapes}"
    if function in ("eig", "eigvals"):
        return f"torch.linalg.eig: {_FINITE} {shapes}"
    if function == "svd" and not np.isfinite(x).all():
        return (
            "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite "
            f"values. {shapes}"
        )
    if function == "cholesky":
        element, index = _first_failure(x, np.linalg.cholesky, _bad_minor)
        return (
            f"linalg.cholesky: {element}The factorization could not be completed because the input is not "
            f"positive-definite (the leading minor of order {index} is not positive-definite). {shapes}"
        )
    if function in ("inv", "solve"):
        element, index = _first_failure(x, np.linalg.inv, _zero_pivot)
        if function == "solve":
            return f"torch.linalg.solve: {element}The solver failed {_SINGULAR} {shapes}"
        return (
            f"linalg.inv: {element}The diagonal element {index} is zero, the inversion could not be"
            f" completed {_SINGULAR} {shapes}"
        )
    return f"linalg.{name}: {error} {shapes}"


def _first_failure(
    x: np.ndarray, factorize: Callable[[np.ndarray], object], locate: Callable[[np.ndarray], int]
) -> tuple[str, int]:
    """Return the first matrix of the batch that fails, as text, and the failing index in it, from 1."""
    flat = np.asarray(x).reshape(-1, *x.shape[-2:])
    for n, each in enumerate(flat):
        try:
            factorize(each)
        except np.linalg.LinAlgError:
            return f"(Batch element {n}): " if x.ndim > 2 else "", locate(each)
    return "", 0


def _bad_minor(x: np.ndarray) -> int:
    """Return the order of the first leading minor that is not positive definite."""
    for order in range(1, len(x)):
        try:
            np.linalg.cholesky(x[:order, :order])
        except np.linalg.LinAlgError:
            return order
    return len(x)


def _zero_pivot(x: np.ndarray) -> int:
    """Return the index of the first zero pivot in an elimination with partial pivoting."""
    remaining = np.array(x)
    for step in range(len(remaining) - 1):
        best = step + int(np.abs(remaining[step:, step]).argmax())
        remaining[[step, best]] = remaining[[best, step]]
        if remaining[step, step] == 0:
            return step + 1
        rows = remaining[step + 1 :, step] / remaining[step, step]
        remaining[step + 1 :, step:] -= rows[:, None] * remaining[step, step:]
    return len(remaining)
