"""Which modules of a model are sharded by themselves: policies for ``FullyShardedDataParallel``.

Source: torch.distributed.fsdp.wrap.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from tenon.errors import ArgumentError
from tenon.nn.containers import ModuleDict, ModuleList
from tenon.nn.layers.attention import MultiheadAttention
from tenon.nn.module import Module

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
]


class WrapPolicy(Protocol):
    """A function that is asked about each module, inner ones first."""

    def __call__(self, module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
        """Whether to look inside of ``module`` (``recurse``), or to shard it by itself.

        ``nonwrapped_numel`` is the number of elements of its parameters that no inner module has.
        """
        ...


#: Options of ``FullyShardedDataParallel``, by name.
Options: TypeAlias = dict[str, Any]
#: The class and the options of ``enable_wrap``, inside of it.
_wrapping: contextvars.ContextVar[tuple[Callable[..., Module], Options] | None] = contextvars.ContextVar(
    "wrapping", default=None
)


def always_wrap_policy(*args: object, **kwargs: object) -> bool:
    """Shard every module by itself."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Shard the modules of which ``lambda_fn`` is true. ``nonwrapped_numel`` has no effect."""
    return recurse or bool(lambda_fn(module))


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type[Module]]
) -> bool:
    """Shard the modules of these classes. ``nonwrapped_numel`` has no effect."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Shard the modules of at least ``min_num_params`` elements that no inner module has.

    ``force_leaf_modules`` are not looked into, ``exclude_wrap_modules`` not sharded by themselves; by default
    multi-head attention, and lists and dicts of modules.
    """
    leaves = {MultiheadAttention} if force_leaf_modules is None else force_leaf_modules
    excluded = {ModuleList, ModuleDict} if exclude_wrap_modules is None else exclude_wrap_modules
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, tuple(leaves))
    return large and not isinstance(module, tuple(excluded))


class ModuleWrapPolicy:
    """Shard the modules of these classes by themselves."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._module_classes = frozenset(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: object, **kwargs: object) -> bool:
        """As a policy function."""
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(c.__name__ for c in self._module_classes)})"


class CustomPolicy:
    """Shard the modules of which ``lambda_fn`` is true; it may also return a dict of options for them."""

    def __init__(self, lambda_fn: Callable[[Module], bool | Options]) -> None:
        self._lambda_fn = lambda_fn

    def options_of(self, module: Module) -> Options | None:
        """The options of a module that is to be sharded by itself; None for others."""
        answer = self._lambda_fn(module)
        if not isinstance(answer, bool | dict):
            raise ArgumentError(
                f"CustomPolicy: the function returned {answer!r} for a {type(module).__name__}; it has to"
                " return True, False or a dict of options."
            )
        return answer if isinstance(answer, dict) else ({} if answer else None)


def selected(root: Module, policy: object, ignored: set[int]) -> list[tuple[Module, Options]]:
    """The modules inside of ``root`` to shard by themselves, with options, inner ones first.

    ``policy`` is a function or an object as above; ``ignored`` are ids of modules.
    """
    found: list[tuple[Module, Options]] = []
    if policy is None:
        return found
    if isinstance(policy, CustomPolicy):
        for module in reversed(list(root.modules())):
            options = None if module is root or id(module) in ignored else policy.options_of(module)
            if options is not None:
                found.append((module, options))
        return found
    if not callable(policy):
        raise ArgumentError(
            f"auto_wrap_policy: {policy!r} is not a policy. Pass a function of (module, recurse,"
            " nonwrapped_numel), ModuleWrapPolicy or CustomPolicy."
        )
    _select(root, policy, ignored, found, set())
    return [(module, options) for module, options in found if module is not root]


def _select(
    module: Module,
    policy: WrapPolicy,
    ignored: set[int],
    found: list[tuple[Module, Options]],
    counted: set[int],
) -> None:
    """Append to ``found`` what the policy selects of ``module`` and below; ``counted`` are the parameters, by
    id, of what has been selected."""
    if id(module) in ignored:
        return
    if policy(module=module, recurse=True, nonwrapped_numel=_elements(module, counted)):
        for child in module.children():
            _select(child, policy, ignored, found, counted)
    rest = _elements(module, counted)
    if policy(module=module, recurse=False, nonwrapped_numel=rest) and not isinstance(
        module, ModuleList | ModuleDict
    ):
        found.append((module, {}))
        counted.update(id(p) for p in module.parameters())


def _elements(module: Module, counted: set[int]) -> int:
    return sum(p.numel() for p in module.parameters() if id(p) not in counted)


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls: Callable[..., Module], **wrapper_kwargs: object) -> Iterator[None]:
    """Inside, ``wrap`` makes ``wrapper_cls(module, **wrapper_kwargs)`` of modules."""
    token = _wrapping.set((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _wrapping.reset(token)


def wrap(module: Module, **wrap_overrides: object) -> Module:
    """``module`` wrapped as ``enable_wrap`` says; as it is outside of that."""
    wrapping = _wrapping.get()
    return module if wrapping is None else wrapping[0](module, **{**wrapping[1], **wrap_overrides})
