"""The slow path of ``Module.__call__``: calls of modules with hooks, or under a recorder or profiler.

Order, as in torch: global forward pre-hooks, the module's own, forward, global forward hooks, the
module's own; backward hooks are set up around forward. If anything raises, the ``always_call``
hooks that have not run yet run, and their own errors become warnings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.errors import ModuleError
from tenon.nn import call_listeners, hooks
from tenon.nn.backward_hooks import BackwardHook
from tenon.nn.legacy_backward_hooks import LegacyBackwardHook

if TYPE_CHECKING:
    from tenon.nn.module import Module

#: A hook: what it takes and returns depends on its kind.
Hook: TypeAlias = Callable[..., Any]


def call(module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Call ``module`` with its hooks; the compiled form after ``module.compile()``."""
    compiled = module._compiled_call_impl
    return call_eagerly(module, args, kwargs) if compiled is None else compiled(*args, **kwargs)


def call_eagerly(module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Call ``module`` with its hooks, never compiled."""
    active = call_listeners.active
    if active is None:
        return _hooked(module, args, kwargs)
    active.push(module)
    try:
        return _hooked(module, args, kwargs)
    finally:
        active.pop()


def _hooked(module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Return the result of ``forward`` after all hooks of the module and the global ones."""
    attribute = module.__dict__.get
    if (
        hooks.global_hooks is not None
        or attribute("_backward_hooks")
        or attribute("_backward_pre_hooks")
        or attribute("_forward_hooks_always_called")
    ):
        return _Call(module, args, kwargs).run()
    pre = attribute("_forward_pre_hooks")
    if pre:
        with_kwargs = attribute("_forward_pre_hooks_with_kwargs", ())
        for key, hook in list(pre.items()):
            args, kwargs = _pre_hook(module, hook, key in with_kwargs, args, kwargs)
    result = module.forward(*args, **kwargs)
    post = attribute("_forward_hooks")
    if post:
        with_kwargs = attribute("_forward_hooks_with_kwargs", ())
        for key, hook in list(post.items()):
            result = _post_hook(module, hook, key in with_kwargs, args, kwargs, result)
    return result


def _pre_hook(
    module: Module, hook: Hook, with_kwargs: bool, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Run a forward pre-hook; return ``args`` and ``kwargs`` as it changed them."""
    if not with_kwargs:
        returned = hook(module, args)
        if returned is None:
            return args, kwargs
        return (returned if isinstance(returned, tuple) else (returned,)), kwargs
    returned = hook(module, args, kwargs)
    if returned is None:
        return args, kwargs
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise ModuleError(
            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {returned}."
        )
    return returned


def _post_hook(
    module: Module,
    hook: Hook,
    with_kwargs: bool,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    result: object,
) -> object:
    """Run a forward hook; return ``result`` as it changed it."""
    returned = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
    return result if returned is None else returned


class _Call:
    """One call with global, backward or ``always_call`` hooks, and its current arguments and result."""

    def __init__(self, module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self.result: object = None
        self.ran: set[int] = set()
        attribute = module.__dict__.get
        self.pre = [
            *hooks._global_forward_pre_hooks.items(),
            *attribute("_forward_pre_hooks", hooks.EMPTY).items(),
        ]
        self.pre_with_kwargs = attribute("_forward_pre_hooks_with_kwargs", hooks.EMPTY)

    def _post(self) -> list[tuple[int, Hook, bool, bool, bool]]:
        """Return forward hooks as ``(id, hook, with_kwargs, always_call, is_global)``, in their order."""
        attribute = self.module.__dict__.get
        kinds = (
            (
                hooks._global_forward_hooks,
                hooks._global_forward_hooks_with_kwargs,
                hooks._global_forward_hooks_always_called,
                True,
            ),
            (
                attribute("_forward_hooks", hooks.EMPTY),
                attribute("_forward_hooks_with_kwargs", hooks.EMPTY),
                attribute("_forward_hooks_always_called", hooks.EMPTY),
                False,
            ),
        )
        return [
            (key, hook, key in with_kwargs, key in always, is_global)
            for table, with_kwargs, always, is_global in kinds
            for key, hook in table.items()
        ]

    def run(self) -> object:
        """Run the call; return the output after all hooks."""
        try:
            return self._run()
        except Exception:
            self._run_always_called()
            raise

    def _run(self) -> object:
        """Run hooks and ``forward``; leave arguments and result in the attributes if one raises."""
        backward = self._backward()
        for key, hook in self.pre:
            with_kwargs = key in self.pre_with_kwargs
            self.args, self.kwargs = _pre_hook(self.module, hook, with_kwargs, self.args, self.kwargs)
        for boundary in backward:
            self.args = boundary.wrap_inputs(self.args)
        self.result = self.module.forward(*self.args, **self.kwargs)
        for key, hook, with_kwargs, always, _ in self._post():
            if always:
                self.ran.add(key)
            self.result = _post_hook(self.module, hook, with_kwargs, self.args, self.kwargs, self.result)
        for boundary in backward:
            self.result = boundary.wrap_outputs(self.result)
        return self.result

    def _backward(self) -> list[BackwardHook]:
        """Return the backward-hook objects to install around ``forward``: none, or one of each kind."""
        attribute = self.module.__dict__.get
        pre = [
            *hooks._global_backward_pre_hooks.values(),
            *attribute("_backward_pre_hooks", hooks.EMPTY).values(),
        ]
        full: list[Hook] = []
        old: list[Hook] = []
        for table, is_full in (
            (hooks._global_backward_hooks, hooks.global_is_full_backward_hook),
            (attribute("_backward_hooks", hooks.EMPTY), self.module._is_full_backward_hook),
        ):
            (old if is_full is False else full).extend(table.values())
        backward = [BackwardHook(self.module, full, pre)] if full or pre else []
        return [*backward, LegacyBackwardHook(self.module, old)] if old else backward

    def _run_always_called(self) -> None:
        """Run the ``always_call`` hooks that have not run; their errors become warnings."""
        for key, hook, with_kwargs, always, is_global in self._post():
            if always and key not in self.ran:
                try:
                    self.result = _post_hook(
                        self.module, hook, with_kwargs, self.args, self.kwargs, self.result
                    )
                except Exception as error:
                    kind = "global module forward hook" if is_global else "module forward hook"
                    warnings.warn(
                        f"{kind} with ``always_call=True`` raised an exception that was silenced as another "
                        f"error was raised in forward: {error}",
                        stacklevel=6,
                    )
