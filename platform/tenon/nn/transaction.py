"""Atomic changes of a module's members: deferred writes, and rollback of immediate ones.

Deferred writes need no second copy of the model. They are probed (copying an empty slice checks dtype, device
and writability without changing a value) and executed together. Modules with custom loading code are backed
up first, by ``immediately``, and restored if anything fails later.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tenon.errors import ModuleError
from tenon.nn.conversion_settings import get_swap_module_params_on_conversion
from tenon.nn.parameter import Buffer, Parameter, is_lazy
from tenon.nn.registry import NAMES
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.swapping import swap_tensors
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module

_current: contextvars.ContextVar[Transaction | None] = contextvars.ContextVar("transaction", default=None)


class Write(NamedTuple):
    """One tensor to be copied into a member, or assigned in its place."""

    key: str
    module: Module
    name: str
    member: Tensor
    value: Tensor
    assign: bool

    def probe(self) -> None:
        """Raise what the write would raise; in most cases two attribute reads show that it succeeds."""
        if self.assign or is_lazy(self.member):
            return
        target, source = self.member.raw, self.value.raw
        writable = getattr(getattr(target, "flags", None), "writeable", True)
        if type(target) is not type(source) or target.dtype != source.dtype or not writable:
            _empty_part(self.member).copy_(_empty_part(self.value))

    def carry_out(self) -> None:
        """Execute the write."""
        swap = get_swap_module_params_on_conversion() and not is_lazy(self.member)
        if swap and type(self.member).module_load is not Tensor.module_load:  # type: ignore[attr-defined]
            self._swap()
            return
        if not self.assign:
            with no_grad():
                self.member.copy_(self.value)
            return
        value = self.value
        if swap:
            if value is not self.member:
                self.member.data = value.detach()
            return
        if isinstance(self.member, Parameter):
            if isinstance(value, Parameter):
                value.requires_grad_(self.member.requires_grad)
            else:
                value = Parameter(value, requires_grad=self.member.requires_grad)
        setattr(self.module, self.name, value)

    def _swap(self) -> None:
        """Swap the member with the result of its class's ``module_load``."""
        member, value = self.member, self.value
        with no_grad():
            new = member.module_load(value, assign=self.assign)
        if new is value or new is member:
            raise ModuleError(
                f"module_load of {type(member).__name__} returned one of self or other, which would be"
                " changed by the exchange: please .detach() the result if returning one of the inputs in"
                " module_load."
            )
        if isinstance(member, Parameter) and not isinstance(new, Parameter):
            new = Parameter(new, requires_grad=member.requires_grad)
        swap_tensors(member, new.requires_grad_(member.requires_grad))


class Transaction:
    """The writes of one load; if the ``with`` block raises, everything is rolled back."""

    def __init__(self) -> None:
        self._deferred: list[Write] = []
        self._backups: list[Backup] = []
        self._backed_up: set[tuple[Module, bool]] = set()
        self._immediate = 0
        self._token: contextvars.Token[Transaction | None]

    def __enter__(self) -> Transaction:
        self._token = _current.set(self)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        _current.reset(self._token)
        if error is not None:
            for backup in reversed(self._backups):
                backup.restore()

    @staticmethod
    def later(
        key: str, module: Module, name: str, member: Tensor, value: Tensor, assign: bool, errors: list[str]
    ) -> None:
        """Defer one write; without a transaction, or inside ``immediately``, execute it now."""
        transaction = _current.get()
        write = Write(key, module, name, member, value, assign)
        if transaction is not None and not transaction._immediate:
            if assign:
                transaction.back_up(module, values=False)
            elif type(member) not in (Tensor, Parameter, Buffer):
                transaction.back_up(module)
            transaction._deferred.append(write)
        else:
            _try(write.carry_out, write, errors)

    @contextmanager
    def immediately(self, module: Module | None) -> Iterator[None]:
        """Context manager: write immediately, after a backup of ``module`` and its tree; None: no effect."""
        if module is None:
            yield
            return
        for child in module.modules():
            self.back_up(child)
        self._immediate += 1
        try:
            yield
        finally:
            self._immediate -= 1

    def back_up(self, module: Module, values: bool = True) -> None:
        """Back up the module's members, at most once; with ``values`` a copy of their values too."""
        if (module, values) not in self._backed_up and (module, True) not in self._backed_up:
            self._backed_up.add((module, values))
            self._backups.append(Backup(module, values))

    def carry_out(self, errors: list[str]) -> None:
        """Execute all deferred writes, after probing every one."""
        for write in self._deferred:
            _try(write.probe, write, errors)
        if not errors:
            for write in self._deferred:
                _try(write.carry_out, write, errors)


class Backup:
    """Backup of one module: its attributes, its members and, with ``values``, copies of their values."""

    def __init__(self, module: Module, values: bool) -> None:
        self.module = module
        self.attributes = {name: value for name, value in module.__dict__.items() if name not in NAMES}
        self.members = {registry: dict(module.__dict__[registry]) for registry in NAMES}
        self.non_persistent = set(module._non_persistent_buffers_set)
        tensors = [t for kind in NAMES[:2] for t in self.members[kind].values() if t is not None]
        self.lazy = [(t, type(t), t.data) for t in tensors if is_lazy(t)]
        self.values = [
            (t, type(t), t.detach(), t.detach().clone() if values and _writable(t) else None, t.requires_grad)
            for t in tensors
            if not is_lazy(t)
        ]
        self.extra = copy.deepcopy(module.get_extra_state()) if values and _has_extra_state(module) else None

    def restore(self) -> None:
        """Restore everything, including what the module's own code replaced or changed in place."""
        if self.extra is not None:
            self.module.set_extra_state(self.extra)
        attributes = self.module.__dict__
        for registry, members in self.members.items():
            current = attributes[registry]
            if list(current) != list(members) or any(
                current[name] is not member for name, member in members.items()
            ):
                current.clear()
                current.update(members)
        for tensor, kind, data in self.lazy:
            tensor.__class__ = kind
            tensor.data = data
        for tensor, kind, data, value, requires_grad in self.values:
            tensor.__class__ = kind
            tensor.data = data
            if value is not None:
                with no_grad():
                    tensor.copy_(value)
            tensor.requires_grad_(requires_grad)
        for name in [name for name in attributes if name not in self.attributes and name not in NAMES]:
            del attributes[name]
        attributes.update(self.attributes)
        self.module._non_persistent_buffers_set.clear()
        self.module._non_persistent_buffers_set.update(self.non_persistent)


def _writable(tensor: Tensor) -> bool:
    """Whether the values can be written in place: those of quantized layers cannot."""
    return bool(getattr(getattr(tensor.raw, "flags", None), "writeable", True))


def _has_extra_state(module: Module) -> bool:
    """Return whether the class of ``module`` saves and loads extra state."""
    from tenon.nn.state import overrides

    return overrides(module, "get_extra_state") and overrides(module, "set_extra_state")


def _empty_part(tensor: Tensor) -> Tensor:
    """Return a view of ``tensor`` without elements."""
    flat, backend = tensor.detach(), tensor._backend
    if backend.own is not backend:  # sharded: of the part that is stored here, without communication
        flat = Tensor._of(backend.own_part(tensor.raw, tensor.raw), backend.own)
    return flat.reshape(1)[:0] if flat.dim() == 0 else flat[:0]


def _try(action: Callable[[], None], write: Write, errors: list[str]) -> None:
    """Call ``action``; append an error, with PyTorch's message, to ``errors`` if it raises."""
    try:
        action()
    except Exception as error:
        target, source = write.member.size(), write.value.size()
        errors.append(
            f'While copying the parameter named "{write.key}", whose dimensions in the model are {target} and'
            f" whose dimensions in the checkpoint are {source}, an exception occurred : {error.args}."
        )
