"""``Stateful``: objects whose state ``save`` and ``load`` take from them and give back."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

from tenon.distributed.checkpoint.flattening import Leaf, flatten_state_dict
from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE
from tenon.distributed.tensor.dtensor import DTensor
from tenon.nn.module import Module
from tenon.optim.optimizer import Optimizer
from tenon.tensors.tensor import Tensor

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """An object with ``state_dict`` and ``load_state_dict``: modules, optimizers, loaders, schedules."""

    def state_dict(self) -> STATE_DICT_TYPE:
        """The state, which ``save`` writes, and whose tensors ``load`` reads into."""

    def load_state_dict(self, state_dict: STATE_DICT_TYPE) -> Any:  # modules return the keys that differ
        """Take over a state."""


LARGEST = 1 << 20
"""Bytes of the tensors in a state that is saved as one value."""


def state_to_save(value: Stateful) -> STATE_DICT_TYPE | Leaf:
    """The state of ``value`` as it is saved.

    Those of modules and optimizers have a name for each tensor. Others whose tensors are small, as of loaders
    and schedules, are one value, as their keys may depend on how far they are: an object that is about to be
    loaded could not name them.
    """
    state = value.state_dict()
    if isinstance(value, (Module, Optimizer)):
        return state
    tensors = [leaf for leaf in flatten_state_dict(state)[0].values() if isinstance(leaf, Tensor)]
    is_small = sum(t.nbytes for t in tensors) <= LARGEST and not any(isinstance(t, DTensor) for t in tensors)
    return Leaf(state) if is_small else state


StatefulT = TypeVar("StatefulT", bound=Stateful)
