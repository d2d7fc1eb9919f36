"""Give optimizers that have not made a step a state, so that one can be loaded into it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from tenon.optim.optimizer import Optimizer
from tenon.tensors.creation.factories import zeros_like
from tenon.tensors.tensor import Tensor


@contextlib.contextmanager
def initialized(optimizers: Iterable[Optimizer]) -> Iterator[None]:
    """Inside, ``optimizers`` have a state; those that had none lose it again on an exception."""
    fresh = [optimizer for optimizer in optimizers if initialize(optimizer)]
    try:
        yield
    except BaseException:
        for optimizer in fresh:
            optimizer.state.clear()
        raise


def initialize(optimizer: Optimizer) -> bool:
    """Make a step of ``optimizer`` with zeros for gradients and learning rates, if it has no state.

    Returns whether it did. Parameters keep their values. An optimizer whose parameters have gradients is left
    as it is: it has no state because it needs none, or is in the middle of a step.
    """
    parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
    if optimizer.state or any(p.grad is not None for p in parameters):
        return False
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = zeros_like(parameter)
    rates = [group.get("lr") for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            if "lr" in group:
                group["lr"] = zeros_like(group["lr"]) if isinstance(group["lr"], Tensor) else 0.0
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if "lr" in group:
                group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
    return True
