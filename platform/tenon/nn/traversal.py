"""Traversal of the module tree: children, parameters, buffers, and lookup by path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tenon.distributed.processes.recent_modules import RECENT_MODULES
from tenon.errors import ModuleAttributeError, ModuleValueError
from tenon.nn.parameter import Parameter
from tenon.nn.registration import Registration
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module


_Member = TypeVar("_Member")


class Traversal(Registration):
    """Mixin of Module: traversal."""

    def _get_name(self) -> str:
        parametrized = "_weights" in self.__dict__ and "parametrizations" in self._modules
        return f"Parametrized{type(self).__name__}" if parametrized else type(self).__name__

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield ``(path, module)`` for this module (path ``prefix``) and all below, each once by default."""
        # An explicit stack: nested generators would cost their depth for every item.
        memo = set() if memo is None else memo
        waiting: list[tuple[str, Any]] = [(prefix, self)]  # Modules, which have this mixin
        while waiting:
            path, module = waiting.pop()
            if module in memo:
                continue
            if module is not self and type(module).named_modules is not Traversal.named_modules:
                yield from module.named_modules(memo, path, remove_duplicate)
                continue
            if remove_duplicate:
                memo.add(module)
            yield path, module
            children = module._modules
            if children:
                start = f"{path}." if path else ""
                waiting += [
                    (start + name, child) for name, child in reversed(children.items()) if child is not None
                ]

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Yield this module and all below."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield ``(name, child)`` for the direct children, each once."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """Yield the direct children, each once."""
        for _, child in self.named_children():
            yield child

    def _named_members(
        self,
        get_members_fn: Callable[[Module], Iterable[tuple[str, _Member | None]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, _Member]]:
        """Yield members with their paths; ``get_members_fn`` returns a module's ``(name, member)`` pairs."""
        seen: set[int] = set()
        modules: Any = [(prefix, self)]  # pairs of path and Module, which has this mixin
        if recurse:
            modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in modules:
            for name, member in get_members_fn(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield ``(path, parameter)`` of this module and, with ``recurse``, of all below."""
        if RECENT_MODULES.modules is not None:
            RECENT_MODULES.add(self)
        yield from self._named_members(
            lambda module: module._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters of this module and, with ``recurse``, of all below."""
        cls = type(self)
        if (cls.named_parameters, cls._named_members) != (
            Traversal.named_parameters,
            Traversal._named_members,
        ):
            for _, parameter in self.named_parameters(recurse=recurse):
                yield parameter
            return
        if RECENT_MODULES.modules is not None:
            RECENT_MODULES.add(self)
        # Called in every step, by zero_grad; building names would double its time.
        seen: set[int] = set()
        for _, module in self.named_modules() if recurse else (("", self),):
            for member in module._parameters.values():
                if member is not None and id(member) not in seen:
                    seen.add(id(member))
                    yield member

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield ``(path, buffer)`` of this module and, with ``recurse``, of all below."""
        yield from self._named_members(
            lambda module: module._buffers.items(), prefix, recurse, remove_duplicate
        )

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers of this module and, with ``recurse``, of all below."""
        cls = type(self)
        if (cls.named_buffers, cls._named_members) != (Traversal.named_buffers, Traversal._named_members):
            for _, buffer in self.named_buffers(recurse=recurse):
                yield buffer
            return
        # Without names, as in ``parameters``: data parallel iterates over buffers in each forward pass.
        seen: set[int] = set()
        for _, module in self.named_modules() if recurse else (("", self),):
            for member in module._buffers.values():
                if member is not None and id(member) not in seen:
                    seen.add(id(member))
                    yield member

    def get_submodule(self, target: str) -> Module:
        """Return the module at the dotted path ``target``; the empty path is this module."""
        module: Any = self  # a Module with this mixin
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise ModuleAttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Traversal):
                raise ModuleAttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Set ``module`` at the dotted path ``target``; with ``strict`` only if a module exists there."""
        if target == "":
            raise ModuleValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Traversal):
            raise ModuleValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if hasattr(parent, name):
            if not isinstance(getattr(parent, name), Traversal):
                raise ModuleAttributeError(f"`{name}` is not an nn.Module")
        elif strict:
            raise ModuleAttributeError(f"{parent._get_name()} has no attribute `{name}`")
        setattr(parent, name, module)

    def _get_member(self, target: str) -> tuple[Module, str, Any]:  # the callers check the value
        """Return the owner, the name and the value of the attribute at the dotted path ``target``."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise ModuleAttributeError(f"{module._get_name()} has no attribute `{name}`")
        return module, name, getattr(module, name)

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at the dotted path ``target``."""
        _, name, member = self._get_member(target)
        if not isinstance(member, Parameter):
            raise ModuleAttributeError(f"`{name}` is not an nn.Parameter")
        return member

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at the dotted path ``target``."""
        module, name, member = self._get_member(target)
        if name not in module._buffers:
            raise ModuleAttributeError(f"`{name}` is not a buffer")
        return member

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call ``fn`` with every module below, then with this one; return this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)  # type: ignore[arg-type]
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode here and below; with ``mode=False`` evaluation mode."""
        if not isinstance(mode, bool):
            raise ModuleValueError(f"training mode is expected to be boolean, got {mode!r}")
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode here and below."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set ``requires_grad`` of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or with ``set_to_none=False`` to zero."""
        for parameter in self.parameters():
            grad = parameter.grad
            if grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()
