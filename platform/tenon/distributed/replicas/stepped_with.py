"""With which options optimizers have stepped: ranks with another learning rate notice at the next gradients.

After a mean over the ranks every rank updates its own copy of the parameters. Options that differ let the
copies drift apart in silence, so the first message of each backward names those of the last step.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from tenon.engine.watchers import WATCHERS
from tenon.optim.step_hooks import GLOBAL_PRE, register_optimizer_step_pre_hook
from tenon.tensors.tensor import Tensor

_OWN = ("params", "param_names")
_followed: weakref.WeakSet[Followed] = weakref.WeakSet()


class Followed:
    """Parameters, by their ``id``, and what they were last stepped with, in words."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self.numbers = numbers
        self.text = ""
        """", last stepped by ...", once that has happened."""
        self._by: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def listen(self) -> None:
        """Take note of steps from now on."""
        if _on_step not in GLOBAL_PRE.values():
            register_optimizer_step_pre_hook(_on_step)
        _followed.add(self)

    def note(self, optimizer: Any, text: str) -> None:
        """``optimizer`` is about to step."""
        if self._by.get(optimizer) != text:
            self._by[optimizer] = text
            self.text = f", last stepped by {' and '.join(sorted(set(self._by.values())))}"

    def forget(self) -> None:
        """Say nothing before the next step: ranks have taken different numbers of them."""
        self._by.clear()
        self.text = ""


def _on_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    groups = getattr(optimizer, "param_groups", ())  # one that wraps another may have none of its own
    first = next((p for group in groups for p in group["params"]), None)
    text = ""
    for followed in _followed:
        if id(first) in followed.numbers:
            text = text or _describe(optimizer)
            followed.note(optimizer, text)


def options(group: Mapping[str, Any]) -> str:
    """The options of a parameter group that are numbers or text, as the ranks compare them.

    >>> options({"params": [], "lr": 0.1, "betas": (0.9, 0.99), "amsgrad": False, "foreach": None})
    'lr=0.1, betas=(0.9, 0.99)'
    """
    found = []
    for name, value in group.items():
        if isinstance(value, Tensor) and value.numel() == 1 and WATCHERS.recorder is None:
            value = value.item()  # A recorder would take the number for a condition.
        if name not in _OWN and isinstance(value, (int, float, str, tuple)) and value not in (0, ()):
            found.append(f"{name}={value!r}")
    return ", ".join(found)


def _describe(optimizer: Any) -> str:
    """Class and options, those of several groups one after the other.

    >>> from tenon import optim, zeros
    >>> _describe(optim.SGD([zeros(2, requires_grad=True)], lr=0.1, momentum=0.9))
    'SGD(lr=0.1, momentum=0.9)'
    """
    kind = getattr(optimizer, "optim", optimizer)
    texts = dict.fromkeys(options(group) for group in optimizer.param_groups)
    return f"{type(kind).__name__}({'; '.join(texts)})"
