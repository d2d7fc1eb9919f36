"""Hooks around ``step``: per optimizer, and for all optimizers at once.

``Optimizer`` wraps its own ``step`` and that of every subclass at class definition. Without registered hooks
the wrapper only records that ``step`` was called, which schedules check.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.engine import pending_copies
from tenon.engine.watchers import WATCHERS
from tenon.tensors.autograd.handles import RemovableHandle

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer
    from tenon.tensors.tensor import Tensor

#: ``hook(optimizer, ...)``: the methods that register hooks state what else each receives and may return.
Hook: TypeAlias = Callable[..., Any]

GLOBAL_PRE: OrderedDict[int, Hook] = OrderedDict()
GLOBAL_POST: OrderedDict[int, Hook] = OrderedDict()

#: The hook dictionaries of each optimizer, under PyTorch's names.
KINDS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


def register(hooks: OrderedDict[int, Hook], hook: Hook, prepend: bool = False) -> RemovableHandle:
    """Add ``hook`` at the end, or with ``prepend`` at the beginning."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before every optimizer's step; it may return new ones."""
    return register(GLOBAL_PRE, hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after the step of every optimizer."""
    return register(GLOBAL_POST, hook)


def hooked(step: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
    """Wrap ``step`` with hooks; they run once even if a subclass's ``step`` calls its parent's."""

    @functools.wraps(step)
    def stepped(self: Optimizer, *args: object, **kwargs: object) -> Tensor | None:
        own = self.__dict__
        if own.get("_stepping", False):
            return step(self, *args, **kwargs)
        own["_stepping"] = own["_opt_called"] = True
        if pending_copies.PENDING:
            pending_copies.wait_for_all()
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.stepping(self, own_rule=getattr(type(self).step, "own_rule", False))
        try:
            # A wrapper around another optimizer may never have called Optimizer.__init__.
            before = own.get("_optimizer_step_pre_hooks") or _NONE
            after = own.get("_optimizer_step_post_hooks") or _NONE
            if not (GLOBAL_PRE or GLOBAL_POST or before or after):
                return step(self, *args, **kwargs)
            arguments = _run_pre_hooks(self, before, (self, *args), kwargs)
            result = step(*arguments[0], **arguments[1])
            for hook in (*after.values(), *GLOBAL_POST.values()):
                hook(self, *arguments)
            return result
        finally:
            own["_stepping"] = False

    stepped.hooked = True  # type: ignore[attr-defined]
    return stepped


_NONE: dict[int, Hook] = {}


def _run_pre_hooks(
    optimizer: Optimizer, hooks: Mapping[int, Hook], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    for hook in (*GLOBAL_PRE.values(), *hooks.values()):
        result = hook(optimizer, args, kwargs)
        if result is not None:
            if not (isinstance(result, tuple) and len(result) == 2):
                raise RuntimeError(
                    f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                )
            args, kwargs = result
    return args, kwargs
