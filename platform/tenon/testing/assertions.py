"""Compare results with references, with one tolerance per dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tenon.engine.types import Operand

#: dtype -> (relative, absolute)
TOLERANCE: dict[np.dtype, tuple[float, float]] = {
    np.dtype(np.float64): (1e-10, 1e-12),
    np.dtype(np.float32): (2e-5, 2e-6),
    np.dtype(np.float16): (4e-3, 1e-3),
    np.dtype(ml_dtypes.bfloat16): (3e-2, 1e-2),
    np.dtype(np.complex64): (2e-5, 2e-6),
    np.dtype(np.complex128): (1e-10, 1e-12),
}


def host(value: Operand) -> np.ndarray:
    """Return ``value`` (tensor, array or number) as a NumPy array."""
    if hasattr(value, "_backend"):
        return value._backend.to_host(value.raw)
    return np.asarray(value)


def assert_same(
    actual: Operand, expected: Operand, *, loose: float = 1.0, check_dtype: bool = True, where: str = ""
) -> None:
    """Raise AssertionError unless shapes and dtypes are equal and values within the tolerance of the dtype,
    times ``loose``; NaN equals NaN."""
    a, e = host(actual), host(expected)
    assert a.shape == e.shape, f"{where}: shape {list(a.shape)}, expected {list(e.shape)}"
    if check_dtype:
        assert a.dtype == e.dtype, f"{where}: dtype {a.dtype}, expected {e.dtype}"
    if a.dtype.kind in "fcV":
        rtol, atol = TOLERANCE[a.dtype]
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            a.astype(wide), e.astype(wide), rtol * loose, atol * loose, equal_nan=True, err_msg=where
        )
    else:
        np.testing.assert_array_equal(a, e, err_msg=where)


def as_tuple(value: Operand) -> tuple[Operand, ...]:
    """Return a tuple or list as a tuple, anything else as a tuple of one element."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
