"""Checks on hyper-parameters that several optimizers share."""

from __future__ import annotations

from typing import Any

from tenon.extend import Tensor


def non_negative(what: str, value: Any) -> None:
    """ValueError in torch's words if ``value`` is negative or NaN."""
    if not float(value) >= 0.0:
        raise ValueError(f"Invalid {what}: {value}")


def learning_rate(value: Any) -> None:
    """ValueError in torch's words unless ``value`` is a number or one-element tensor, not negative."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    non_negative("learning rate", value)


def betas(values: Any) -> tuple[Any, Any]:
    """The two decay rates, checked; 1-element tensors become 0-d."""
    for position, value in enumerate(values):
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"Tensor betas[{position}] must be 1-element")
        if not 0.0 <= float(value) < 1.0:
            raise ValueError(f"Invalid beta parameter at index {position}: {value}")
    first, second = values
    if isinstance(first, Tensor) != isinstance(second, Tensor):
        raise ValueError("betas must be either both floats or both Tensors")
    if isinstance(first, Tensor):
        return first.squeeze(), second.squeeze()
    return first, second


def real(optimizer: str, p: Tensor) -> None:
    """RuntimeError in torch's words if ``p`` is complex."""
    if p.is_complex():
        raise RuntimeError(f"{optimizer} does not support complex parameters")


def variants(foreach: bool | None, fused: bool | None, differentiable: bool) -> None:
    """RuntimeError for flags that contradict each other. All variants compute the same here."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
