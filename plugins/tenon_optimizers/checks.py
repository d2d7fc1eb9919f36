"""Checks on hyper-parameters that several optimizers share."""

from __future__ import annotations

from typing import Any


def non_negative(what: str, value: Any) -> None:
    """ValueError in torch's words if ``value`` is negative."""
    if not float(value) >= 0.0:
        raise ValueError(f"Invalid {what}: {value}")


def beta(position: int, value: float) -> None:
    """ValueError in torch's words unless ``0 <= value < 1``."""
    if not 0.0 <= value < 1.0:
        raise ValueError(f"Invalid beta parameter at index {position}: {value}")
