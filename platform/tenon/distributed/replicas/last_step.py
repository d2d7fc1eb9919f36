"""Compare the options of optimizers between the ranks, as different learning rates are an error.

After averaging the gradients every rank updates its own copy of the parameters. With different options the
copies diverge silently, so the first message of each backward includes the options of the last step.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tenon.engine.watchers import WATCHERS
from tenon.optim.step_hooks import GLOBAL_PRE, register_optimizer_step_pre_hook
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer

_OWN = ("params", "param_names")
_listening: weakref.WeakSet[LastStep] = weakref.WeakSet()


class LastStep:
    """The last optimizer steps, as text, of the parameters whose ids are the keys of ``numbers``."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self.numbers = numbers
        self.text = ""
        """``", last stepped by ..."``; empty before the first step."""
        self._descriptions: weakref.WeakKeyDictionary[Optimizer, str] = weakref.WeakKeyDictionary()

    def listen(self) -> None:
        """Record steps from now on."""
        if _on_step not in GLOBAL_PRE.values():
            register_optimizer_step_pre_hook(_on_step)
        _listening.add(self)

    def record(self, optimizer: Optimizer, description: str) -> None:
        """Record that ``optimizer`` is about to step."""
        if self._descriptions.get(optimizer) != description:
            self._descriptions[optimizer] = description
            self.text = f", last stepped by {' and '.join(sorted(set(self._descriptions.values())))}"

    def forget(self) -> None:
        """Forget all steps, where ranks have taken different numbers of them."""
        self._descriptions.clear()
        self.text = ""


def _on_step(optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """The hook before each optimizer step."""
    groups = getattr(optimizer, "param_groups", ())  # an optimizer that wraps another one may have none
    first = next((p for group in groups for p in group["params"]), None)
    description = ""
    for last_step in _listening:
        if id(first) in last_step.numbers:
            description = description or _describe(optimizer)
            last_step.record(optimizer, description)


def options(group: Mapping[str, object]) -> str:
    """The options of a parameter group that are numbers, texts or tuples, except zeros, as text.

    >>> options({"params": [], "lr": 0.1, "betas": (0.9, 0.99), "amsgrad": False, "foreach": None})
    'lr=0.1, betas=(0.9, 0.99)'
    """
    texts = []
    for name, value in group.items():
        if isinstance(value, Tensor) and value.numel() == 1 and WATCHERS.recorder is None:
            value = value.item()  # not under a recorder, which would make the number a guard
        if name not in _OWN and isinstance(value, (int, float, str, tuple)) and value not in (0, ()):
            texts.append(f"{name}={value!r}")
    return ", ".join(texts)


def _describe(optimizer: Optimizer) -> str:
    """The class of ``optimizer`` and the different options of its parameter groups.

    >>> from tenon import optim, zeros
    >>> _describe(optim.SGD([zeros(2, requires_grad=True)], lr=0.1, momentum=0.9))
    'SGD(lr=0.1, momentum=0.9)'
    """
    kind = getattr(optimizer, "optim", optimizer)
    texts = dict.fromkeys(options(group) for group in optimizer.param_groups)
    return f"{type(kind).__name__}({'; '.join(texts)})"
