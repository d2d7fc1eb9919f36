"""Storage of module hooks: per module, and global for all modules.

A module without hooks has no hook dictionaries. PyTorch's attributes (``_forward_hooks`` etc.) are
descriptors that create their dictionary when it is first read or written; ``Module.__call__`` checks a single
flag. Global hooks work the same way: ``global_hooks`` is None while none exists.

``generation()`` changes with every change of a dictionary that affects calls. Caches of calls, such as the
compiler's, include it in their key, so that no hook is ever silently dropped.

Next: ``module.py`` registers a module's own hooks, ``hooked_call.py`` runs all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from tenon.errors import ModuleError
from tenon.tensors.autograd.handles import RemovableHandle
from tenon.tensors.generation import Generation
from tenon.tensors.generation import generation as generation

if TYPE_CHECKING:
    from tenon.nn.module import Module


#: An entry of a HookDict: a hook, whose signature depends on its kind, or True in a dict of flags.
Entry: TypeAlias = Any


class HookDict(OrderedDict[int, Entry]):
    """An ordered dict of hooks by id, in the order in which they run; in dicts of flags the values are
    True."""

    def _changed(self) -> None:
        Generation.value += 1

    def __setitem__(self, key: int, hook: object) -> None:
        super().__setitem__(key, hook)
        self._changed()

    def __delitem__(self, key: int) -> None:
        super().__delitem__(key)
        self._changed()

    def pop(self, key: int, *default: object) -> Entry:
        """Remove the hook ``key`` and return it."""
        hook = super().pop(key, *default)
        self._changed()
        return hook

    def popitem(self, last: bool = True) -> tuple[int, Entry]:
        """Remove the last hook, or the first."""
        item = super().popitem(last)
        self._changed()
        return item

    def clear(self) -> None:
        """Remove all hooks."""
        super().clear()
        self._changed()

    def move_to_end(self, key: int, last: bool = True) -> None:
        """Make a hook the last to run, or the first."""
        super().move_to_end(key, last)
        self._changed()


class _GlobalHookDict(HookDict):
    """A dict of global hooks, which keeps ``global_hooks`` in sync."""

    def _changed(self) -> None:
        super()._changed()
        Generation.everywhere += 1
        _refresh_global()


EMPTY: HookDict = HookDict()


class HookAttribute:
    """Descriptor of ``module._forward_hooks`` and similar attributes: a dictionary created on first use."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.affects_call = "state_dict" not in name

    @overload
    def __get__(self, module: None, owner: type) -> HookAttribute: ...
    @overload
    def __get__(self, module: Module, owner: type | None = None) -> HookDict: ...
    def __get__(self, module: Module | None, owner: type | None = None) -> HookAttribute | HookDict:
        if module is None:
            return self
        hooks = module.__dict__.get(self.name)
        return self._keep(module, HookDict()) if hooks is None else hooks

    def __set__(self, module: Module, hooks: Mapping[int, object]) -> None:
        self._keep(module, hooks if isinstance(hooks, HookDict) else HookDict(hooks))

    def __delete__(self, module: Module) -> None:
        module.__dict__.pop(self.name, None)
        Generation.value += 1

    def _keep(self, module: Module, hooks: HookDict) -> HookDict:
        """Store ``hooks`` in ``module``, and set its flag if they affect calls."""
        module.__dict__[self.name] = hooks
        if self.affects_call:
            module.__dict__["_hooks"] = True
            Generation.value += 1
        return hooks


_global_forward_pre_hooks = _GlobalHookDict()
_global_forward_hooks = _GlobalHookDict()
_global_forward_hooks_always_called = _GlobalHookDict()
_global_forward_hooks_with_kwargs = _GlobalHookDict()
_global_backward_pre_hooks = _GlobalHookDict()
_global_backward_hooks = _GlobalHookDict()
_global_buffer_registration_hooks = HookDict()
_global_module_registration_hooks = HookDict()
_global_parameter_registration_hooks = HookDict()

global_hooks: bool | None = None
#: Kind of hooks in ``_global_backward_hooks``: True for full hooks, False for deprecated ones.
global_is_full_backward_hook: bool | None = None


def _refresh_global() -> None:
    global global_hooks
    kinds = (
        _global_forward_pre_hooks,
        _global_forward_hooks,
        _global_backward_pre_hooks,
        _global_backward_hooks,
    )
    global_hooks = True if any(kinds) else None


def _register(
    hooks: HookDict, hook: Callable[..., object], extra: list[HookDict] | None = None
) -> RemovableHandle:
    """Add ``hook`` to ``hooks``; the handle also removes its id from the dictionaries ``extra``."""
    handle = RemovableHandle(hooks, extra_dict=extra)
    hooks[handle.id] = hook
    return handle


def register_module_forward_pre_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(module, args) -> None or new args`` before the forward of every module.

    Global hooks run before the module's own. Meant for debugging and profiling.
    """
    return _register(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., object], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output) -> None or new output`` after the forward of every module.

    ``with_kwargs`` adds the keyword arguments after ``args``. ``always_call`` runs the hook also when
    the forward raised. Global hooks run before the module's own.
    """
    extra: list[HookDict] = [_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called]
    handle = _register(_global_forward_hooks, hook, extra)
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(module, grad_output) -> None or new grad_output`` before the backward of every module."""
    return _register(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` after the backward of every module."""
    _use_backward_hooks(full=True)
    return _register(_global_backward_hooks, hook)


def register_module_backward_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` after the backward of every module; deprecated.

    Use ``register_module_full_backward_hook``; see ``Module.register_backward_hook``.
    """
    _use_backward_hooks(full=False)
    return _register(_global_backward_hooks, hook)


def _use_backward_hooks(full: bool) -> None:
    global global_is_full_backward_hook
    if _global_backward_hooks and global_is_full_backward_hook != full:
        raise ModuleError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please "
            "use only one of them: register_module_full_backward_hook is the one to keep."
        )
    global_is_full_backward_hook = full


def register_module_buffer_registration_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(module, name, buffer) -> None or new buffer`` at every registration of a buffer."""
    return _register(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(module, name, submodule) -> None or new submodule`` at every registration of a child."""
    return _register(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(module, name, param) -> None or new parameter`` at every registration of a parameter."""
    return _register(_global_parameter_registration_hooks, hook)


# A hook may return anything in place of the value.
def run_registration_hooks(hooks: HookDict, module: object, name: str, value: object) -> Any:
    """Run all registration hooks on a value; return the value to register, which they may replace."""
    for hook in list(hooks.values()):
        output = hook(module, name, value)
        if output is not None:
            value = output
    return value
