"""Validation of hyper-parameters, shared by several optimizers, with PyTorch's error messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tenon.extend import Operand, Tensor
from tenon.optim.types import Scalar

#: Hyper-parameters that must not be negative, with their names in error messages, in the order of the checks.
_NON_NEGATIVE = {"eps": "epsilon value"} | {
    name: f"{name} value"
    for name in (
        "momentum", "lr_decay", "weight_decay", "momentum_decay", "trust_coefficient",
        "initial_accumulator_value",
    )
}  # fmt: skip
#: Hyper-parameters that may have any value but infinity and NaN.
_FINITE = ("r", "weight_lr_power")


# Each hyper-parameter has the type that the constructors of optimizers state.
def validated(**options: Any) -> dict[str, Any]:
    """Return the hyper-parameters ``options``, each of which is checked by its name.

    ValueError if one is out of its range, RuntimeError if flags contradict each other. Betas that are
    1-element tensors become 0-d.
    """
    for name, value in options.items():
        if isinstance(value, complex):
            raise TypeError(f"{name} must be a real number, not {value}")
    learning_rate(options["lr"])
    if "betas" in options:
        options["betas"] = betas(options["betas"])
    for name, title in _NON_NEGATIVE.items():
        if name in options:
            non_negative(title, options[name])
    for name in _FINITE:
        if name in options and not math.isfinite(as_float(options[name])):
            raise ValueError(f"Invalid {name} value: {options[name]}")
    if not 0 <= as_float(options.get("warmup_steps", 0)) < math.inf:
        raise ValueError(f"Invalid warmup_steps value: {options['warmup_steps']}")
    variants(options.get("foreach"), options.get("fused"), options.get("differentiable"))
    return options


def as_float(value: Scalar) -> float:
    """Return the value of a number or a one-element tensor; TypeError for a string, of which ``float`` reads
    one."""
    if isinstance(value, str):
        raise TypeError(f"must be a number, not the string {value!r}")
    return float(value)


def non_negative(title: str, value: Scalar) -> None:
    """Raise ValueError, with the hyper-parameter's ``title``, if ``value`` is negative or NaN."""
    if not as_float(value) >= 0.0:
        raise ValueError(f"Invalid {title}: {value}")


def learning_rate(value: Scalar) -> None:
    """Raise ValueError unless ``value`` is a non-negative number or one-element tensor."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    non_negative("learning rate", value)


def step_size(value: Scalar) -> None:
    """Raise ValueError, as PyTorch's newer optimizers do, unless ``value`` is one non-negative number."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"Tensor lr must be 1-element, but its shape is {list(value.shape)}.")
    if not as_float(value) >= 0.0:
        raise ValueError(f"Learning rate should be >= 0 but is: {value}")


def betas(values: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
    """Validate and return the two decay rates; 1-element tensors become 0-d."""
    for position, value in enumerate(values):
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"Tensor betas[{position}] must be 1-element")
        if not 0.0 <= as_float(value) < 1.0:
            raise ValueError(f"Invalid beta parameter at index {position}: {value}")
    first, second = values
    if isinstance(first, Tensor) != isinstance(second, Tensor):
        raise ValueError("betas must be either both floats or both Tensors")
    if isinstance(first, Tensor):
        return first.squeeze(), second.squeeze()
    return first, second


def real(optimizer: str, p: Operand) -> None:
    """Raise RuntimeError if ``p``, a tensor or an array, is complex."""
    if "complex" in str(p.dtype):
        raise RuntimeError(
            f"{optimizer} does not support complex parameters. Train its real and imaginary parts."
        )


def variants(foreach: bool | None, fused: bool | None, differentiable: bool | None) -> None:
    """Raise RuntimeError for contradictory flags. All implementations compute the same here."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def numbers_for_lists(
    foreach: bool | None, capturable: bool, lr: Scalar, betas: tuple[Scalar, Scalar]
) -> None:
    """Raise ValueError for tensor options that PyTorch's foreach implementation does not accept."""
    if not foreach or capturable:
        return
    for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if isinstance(value, Tensor):
            raise ValueError(
                f"{name} as a Tensor is not supported for capturable=False and foreach=True. Leave out "
                "foreach, which changes no result."
            )
