"""``Module``: the base class of all neural networks: calls, hooks and ``repr``.

Its other parts are mixins: registration of members in ``registration.py``, traversal of the module tree in
``traversal.py``, conversion in ``convert.py``, state dicts in ``state.py``.

Calls are a hot path: three checks, then ``forward``. All other cases go to ``hooked_call.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import ref

from tenon.engine.scopes import running
from tenon.engine.types import Forwarded, Nested
from tenon.errors import MissingForwardError, ModuleError, ModuleTypeError
from tenon.nn import call_listeners, hooks
from tenon.nn.error_context import add_module_path
from tenon.nn.hooked_call import call, call_eagerly
from tenon.nn.hooks import HookAttribute, HookDict
from tenon.nn.registration import typename
from tenon.nn.state import State
from tenon.tensors.autograd.handles import RemovableHandle


def _forward_unimplemented(self: Module, *input: Nested) -> Nested:
    """Compute the output from the inputs; every module overrides it.

    Call the module, not ``forward``: the call also runs the hooks.
    """
    raise MissingForwardError(f'Module [{type(self).__name__}] is missing the required "forward" function')


def indent(text: str, width: int) -> str:
    """Indent all lines of ``text`` but the first; blank lines stay empty."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * width + line if line.strip() else "" for line in rest)])


class Module(State):
    """Base class of all neural network modules.

    A subclass calls ``super().__init__()``, assigns parameters, buffers and other modules as
    attributes, and defines ``forward``.

    >>> from tenon import nn
    >>> class Model(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner = nn.Linear(3, 2)
    ...
    ...     def forward(self, x):
    ...         return self.inner(x)
    >>> [name for name, _ in Model().named_parameters()]
    ['inner.weight', 'inner.bias']
    """

    call_super_init: bool = False
    training: bool
    #: None until a hook dictionary exists; the flag that ``__call__`` checks.
    _hooks: bool | None = None
    _is_full_backward_hook: bool | None = None
    _compiled_call_impl: Callable[..., Nested] | None = None

    _forward_hooks = HookAttribute()
    _forward_hooks_with_kwargs = HookAttribute()
    _forward_hooks_always_called = HookAttribute()
    _forward_pre_hooks = HookAttribute()
    _forward_pre_hooks_with_kwargs = HookAttribute()
    _backward_hooks = HookAttribute()
    _backward_pre_hooks = HookAttribute()
    _state_dict_hooks = HookAttribute()
    _state_dict_pre_hooks = HookAttribute()
    _load_state_dict_pre_hooks = HookAttribute()
    _load_state_dict_post_hooks = HookAttribute()

    def __init__(self, *args: object, **kwargs: object) -> None:
        if not self.call_super_init:
            name = type(self).__name__
            if kwargs:
                raise ModuleTypeError(
                    f"{name}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
                )
            if args:
                raise ModuleTypeError(
                    f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given"
                )
        self.__dict__["training"] = True
        self._initialise_registries()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Nested] = _forward_unimplemented

    def __call__(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Call ``forward(*args, **kwargs)`` and the registered hooks."""
        outer = running.place
        running.place = (ref(self) if outer is None else outer[0], id(self), type(self))
        try:
            if self._hooks is None and hooks.global_hooks is None and call_listeners.active is None:
                return self.forward(*args, **kwargs)
            return call(self, args, kwargs)
        except Exception as error:
            add_module_path(self, error)
            raise
        finally:
            running.place = outer

    def _call_impl(self, *args: Nested, **kwargs: Nested) -> Nested:
        return call_eagerly(self, args, kwargs)

    _wrapped_call_impl = _call_impl

    # Hooks.

    def register_forward_pre_hook(
        self, hook: Callable[..., object], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args) -> None or new args`` before ``forward``.

        A single value is wrapped into a tuple. ``with_kwargs``: ``hook(module, args, kwargs) -> None or
        (new args, new kwargs)``. ``prepend`` runs it before the module's other pre-hooks.
        """
        flags = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return self._add_hook(self._forward_pre_hooks, hook, prepend, flags)

    def register_forward_hook(
        self,
        hook: Callable[..., object],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call ``hook(module, args, output) -> None or new output`` after ``forward``.

        ``with_kwargs`` adds the keyword arguments after ``args``; ``always_call`` runs the hook also
        when ``forward`` raised; ``prepend`` runs it before the module's other hooks.
        """
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        if always_call:
            flags.append(self._forward_hooks_always_called)
        return self._add_hook(self._forward_hooks, hook, prepend, flags)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output) -> None or new grad_output`` before the module's backward."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend, [])

    def register_full_backward_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` after the module's backward.

        It may return a new ``grad_input``. Both are tuples, with None for arguments that are not tensors;
        ``grad_input`` covers positional arguments only. If no input needs a gradient the hook gets
        ``(None, ...)`` and a warning is given. Unlike in torch, inputs and outputs may be changed in
        place, as ``ReLU(inplace=True)`` does.
        """
        self._use_backward_hooks(full=True)
        return self._add_hook(self._backward_hooks, hook, prepend, [])

    def register_backward_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` after the module's backward; deprecated.

        Use ``register_full_backward_hook``. Unlike in torch the hook gets the gradients of all the
        module's inputs and outputs, not those of its last operation. A module can have hooks of only
        one of the two kinds.
        """
        self._use_backward_hooks(full=False)
        return self._add_hook(self._backward_hooks, hook, False, [])

    def _use_backward_hooks(self, full: bool) -> None:
        """Note which kind of backward hooks the module has; raise ModuleError if it has the other."""
        if self._is_full_backward_hook is not None and self._is_full_backward_hook != full:
            raise ModuleError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please "
                f"use only one of them: {type(self).__name__} has hooks of the {'old' if full else 'full'} "
                "kind. register_full_backward_hook is the one to keep."
            )
        self.__dict__["_is_full_backward_hook"] = full

    def _add_hook(
        self, table: HookDict, hook: Callable[..., object], prepend: bool, flags: list[HookDict]
    ) -> RemovableHandle:
        """Add ``hook`` to ``table``, first if ``prepend``, and its id to the dictionaries ``flags``."""
        handle = RemovableHandle(table, extra_dict=flags)
        for flag in flags:
            flag[handle.id] = True
        table[handle.id] = hook
        if prepend:
            table.move_to_end(handle.id, last=False)
        return handle

    def compile(self, *args: Forwarded, **kwargs: Forwarded) -> None:
        """Compile the calls of this module in place, with the options of ``tenon.compile``."""
        from tenon.nn.compiler import compile  # imported here: loaded only if used

        self.__dict__["_compiled_call_impl"] = compile(self._call_impl, *args, **kwargs)
        self.__dict__["_hooks"] = True  # leave the fast path of __call__

    # Text.

    def extra_repr(self) -> str:
        """Return the text between the parentheses of the module's ``repr``; override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        settings = extra.split("\n") if extra else []
        children = [f"({name}): {indent(repr(child), 2)}" for name, child in self._modules.items()]
        if len(settings) == 1 and not children:
            return f"{self._get_name()}({settings[0]})"
        if not settings and not children:
            return f"{self._get_name()}()"
        lines = "\n  ".join([*settings, *children])
        return f"{self._get_name()}(\n  {lines}\n)"


#: The class of a module, for functions that return the module that they take.
ModuleT = TypeVar("ModuleT", bound=Module)

__all__ = ["Module", "ModuleT", "indent", "typename"]
