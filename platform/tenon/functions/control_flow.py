"""Control flow as functions: ``cond`` and ``while_loop``, run eagerly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tenon.engine.value import Value

if TYPE_CHECKING:
    from tenon.engine.types import Nested
    from tenon.tensors.tensor import Tensor

T = TypeVar("T")

__all__ = ["cond", "while_loop"]


def _is_true(value: Tensor | bool) -> bool:
    return bool(value.item()) if isinstance(value, Value) else bool(value)


def cond(
    pred: Tensor | bool,
    true_fn: Callable[..., T],
    false_fn: Callable[..., T],
    operands: Sequence[Nested] = (),
) -> T:
    """Call ``true_fn(*operands)`` if ``pred`` is true, else ``false_fn(*operands)``."""
    if not isinstance(pred, (bool, Value)):
        raise TypeError(f"Expected pred to be bool or tensor, but got {pred}.")
    return (true_fn if _is_true(pred) else false_fn)(*operands)


def while_loop(
    cond_fn: Callable[..., Tensor | bool],
    body_fn: Callable[..., Iterable[Nested]],
    carried_inputs: Iterable[Nested],
) -> tuple[Nested, ...]:
    """Replace the inputs by the results of ``body_fn`` while ``cond_fn`` of them is true; return the last."""
    carried = tuple(carried_inputs)
    while _is_true(cond_fn(*carried)):
        carried = tuple(body_fn(*carried))
    return carried
