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
        where, place = _first_failure(x, np.linalg.cholesky, _bad_minor)
        return (
            f"linalg.cholesky: {where}The factorization could not be completed because the input is not "
            f"positive-definite (the leading minor of order {place} is not positive-definite). {shapes}"
        )
    if function in ("inv", "solve"):
        where, place = _first_failure(x, np.linalg.inv, _zero_pivot)
        if function == "solve":
            return f"torch.linalg.solve: {where}The solver failed {_SINGULAR} {shapes}"
        return (
            f"linalg.inv: {where}The diagonal element {place} is zero, the inversion could not be completed "
            f"{_SINGULAR} {shapes}"
        )
    return f"linalg.{name}: {error} {shapes}"


def _first_failure(
    x: np.ndarray, works: Callable[[np.ndarray], object], place: Callable[[np.ndarray], int]
) -> tuple[str, int]:
    """Return which matrix of the batch fails first, as text, and the index in it at which (from 1)."""
    flat = np.asarray(x).reshape(-1, *x.shape[-2:])
    for n, each in enumerate(flat):
        try:
            works(each)
        except np.linalg.LinAlgError:
            return f"(Batch element {n}): " if x.ndim > 2 else "", place(each)
    return "", 0


def _bad_minor(x: np.ndarray) -> int:
    """The order of the first leading minor that is not positive definite."""
    for order in range(1, len(x)):
        try:
            np.linalg.cholesky(x[:order, :order])
        except np.linalg.LinAlgError:
            return order
    return len(x)


def _zero_pivot(x: np.ndarray) -> int:
    """Return the index of the first zero pivot in an elimination with partial pivoting."""
    left = np.array(x)
    for step in range(len(left) - 1):
        best = step + int(np.abs(left[step:, step]).argmax())
        left[[step, best]] = left[[best, step]]
        if left[step, step] == 0:
            return step + 1
        rows = left[step + 1 :, step] / left[step, step]
        left[step + 1 :, step:] -= rows[:, None] * left[step, step:]
    return len(left)
