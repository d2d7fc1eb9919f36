"""Modules whose activations are computed again in backward: ``checkpoint`` as a module around another.

Wrap the blocks of a model first, then apply ``fully_shard`` to the wrappers. Keys of ``state_dict`` are those
of the model without wrappers.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tenon.autograd.checkpoint import checkpoint
from tenon.engine.types import Nested
from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter

__all__ = ["CheckpointImpl", "CheckpointWrapper", "apply_activation_checkpointing", "checkpoint_wrapper"]

_WRAPPED = "_checkpoint_wrapped_module"
_PREFIX = f"{_WRAPPED}."


class CheckpointImpl(enum.Enum):
    """The kind of ``checkpoint``: by a backward pass of its own, or by hooks on saved tensors."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class CheckpointWrapper(Module):
    """``mod``, called by ``checkpoint_fn``; attributes that it lacks are those of ``mod``. See
    ``checkpoint_wrapper``."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Nested] | None = None,
        **checkpoint_fn_kwargs: object,
    ) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
            checkpoint_fn = functools.partial(checkpoint, use_reentrant=reentrant)
        self.checkpoint_fn = functools.partial(checkpoint_fn, **checkpoint_fn_kwargs)
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def forward(self, *args: Nested, **kwargs: Nested) -> Nested:
        """The result of the wrapped module, without its activations."""
        module: Any = self._checkpoint_wrapped_module  # called with the arguments that it takes
        if kwargs and self.checkpoint_impl is CheckpointImpl.REENTRANT:
            names, count = list(kwargs), len(args)

            def call(*values: Nested) -> Nested:
                return module(*values[:count], **dict(zip(names, values[count:], strict=True)))

            return self.checkpoint_fn(call, *args, *kwargs.values())
        return self.checkpoint_fn(module, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:  # of any type, as attributes of modules are
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _WRAPPED:
                raise
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:  # of the wrapped module
        """The item of a wrapped ``Sequential``, or another module that has items."""
        wrapped: Any = self._checkpoint_wrapped_module  # one that has items
        return wrapped[key]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters, by their names in the wrapped module."""
        for name, parameter in super().named_parameters(prefix, recurse, remove_duplicate):
            yield name.replace(_PREFIX, ""), parameter


def _without_prefix(module: Module, state_dict: dict[str, object], prefix: str, *args: object) -> None:
    _rename(state_dict, prefix + _PREFIX, prefix)


def _with_prefix(module: Module, state_dict: dict[str, object], prefix: str, *args: object) -> None:
    _rename(state_dict, prefix, prefix + _PREFIX)


def _rename(state_dict: dict[str, object], old: str, new: str) -> None:
    """Replace the prefix ``old`` of keys by ``new``, unless they have it already."""
    for key in list(state_dict):
        if key.startswith(old) and not (len(new) > len(old) and key.startswith(new)):
            state_dict[new + key.removeprefix(old)] = state_dict.pop(key)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Nested] | None = None,
    **checkpoint_fn_kwargs: object,
) -> Module:
    """``module``, called by ``checkpoint_fn(module, *args, **checkpoint_fn_kwargs)``, by default the
    ``checkpoint`` of the given kind.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper.

    >>> import tenon
    >>> from tenon import nn
    >>> block = checkpoint_wrapper(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    >>> list(block.state_dict())
    ['0.weight', '0.bias']
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Replace the modules in ``model`` for which ``check_fn`` is true by ``checkpoint_wrapper_fn(module)``.

    Inner ones come first. If ``auto_wrap_policy`` is given, it decides instead: it is called with ``module``,
    ``recurse=False`` and ``nonwrapped_numel``, the number of elements of the module's parameters.

    Raises ``ArgumentError`` for a policy that is not callable.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper.
    """
    if auto_wrap_policy is not None and not callable(auto_wrap_policy):
        raise ArgumentError(
            f"apply_activation_checkpointing: auto_wrap_policy is a {type(auto_wrap_policy).__name__}; pass a"
            " function of module, recurse and nonwrapped_numel, or use check_fn."
        )
    wrappers: dict[int, Module] = {}

    def wrapped(module: Module) -> Module:
        if id(module) not in wrappers:
            _replace(module)
            chosen = check_fn(module) if auto_wrap_policy is None else _asked(auto_wrap_policy, module)
            wrappers[id(module)] = checkpoint_wrapper_fn(module) if chosen else module
        return wrappers[id(module)]

    def _replace(module: Module) -> None:
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = wrapped(child)

    _replace(model)


def _asked(policy: Callable[..., bool], module: Module) -> bool:
    return policy(module=module, recurse=False, nonwrapped_numel=sum(p.numel() for p in module.parameters()))
