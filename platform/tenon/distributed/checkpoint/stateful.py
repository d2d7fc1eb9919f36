"""``Stateful``: objects whose state ``save`` and ``load`` take from them and give back."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """An object with ``state_dict`` and ``load_state_dict``: modules, optimizers, loaders, schedules."""

    def state_dict(self) -> dict[str, Any]:
        """The state, which ``save`` writes, and whose tensors ``load`` reads into."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:  # modules return the keys that differ
        """Take over a state."""


StatefulT = TypeVar("StatefulT", bound=Stateful)
