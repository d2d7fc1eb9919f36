"""Control flow as functions: ``cond`` and ``while_loop``, run eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenon.engine.value import Value

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["cond", "while_loop"]


def _true(value: Any) -> bool:
    return bool(value.item()) if isinstance(value, Value) else bool(value)  # type: ignore[attr-defined]


def cond(
    pred: bool, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Tensor] = ()
) -> Tensor:
    """Call ``true_fn(*operands)`` if ``pred`` is true, else ``false_fn(*operands)``."""
    if not isinstance(pred, (bool, Value)):
        raise TypeError(f"Expected pred to be bool or tensor, but got {pred}.")
    return (true_fn if _true(pred) else false_fn)(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """Apply ``body_fn`` to its own results as long as ``cond_fn`` of them is true; return the last ones."""
    carried = tuple(carried_inputs)
    while _true(cond_fn(*carried)):
        carried = tuple(body_fn(*carried))
    return carried
