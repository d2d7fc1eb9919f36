"""Registration of a module's parameters, buffers and children.

``__setattr__`` decides by type: a Parameter, Buffer or Module is registered under the attribute's name, a
tensor assigned to a buffer's name replaces that buffer, everything else is a plain attribute. ``register_*``
do the same by name. Error messages are PyTorch's, because code matches on them.

Names in ``_weights`` are not stored: they are computed when read, by a pipeline of ``weights.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tenon.engine.watchers import WATCHERS
from tenon.errors import ModuleAttributeError, ModuleError, ModuleNameError, ModuleTypeError, ModuleValueError
from tenon.nn import hooks
from tenon.nn.parameter import Buffer, Parameter
from tenon.nn.registry import NAMES, Registry, set_registry
from tenon.tensors.generation import Generation
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module

_REGISTRIES = frozenset(NAMES)
_ABSENT = object()


def typename(value: object) -> str:
    """Return PyTorch's name of a value's type, as in ``cannot assign 'torch.FloatTensor' object``."""
    if isinstance(value, Tensor):
        return str(value.type())
    # A function, a class, or anything else with a name.
    named: Any = value if hasattr(value, "__qualname__") or hasattr(value, "__name__") else type(value)
    module = getattr(named, "__module__", None) or ""
    name = str(getattr(named, "__qualname__", None) or named.__name__)
    return name if module in ("", "builtins") else f"{module}.{name}"


def _check_name(kind: str, name: object, owner: object, registry: Mapping[str, object]) -> None:
    """Raise, with PyTorch's messages, unless a member of ``owner`` may have this name."""
    if not isinstance(name, str):
        raise ModuleTypeError(f"{kind} name should be a string. Got {typename(name)}")
    if "." in name:
        got = f", got: {name}" if kind == "module" else ""
        raise ModuleNameError(f'{kind} name can\'t contain "."{got}')
    if name == "":
        raise ModuleNameError(f'{kind} name can\'t be empty string ""')
    if name not in registry and hasattr(owner, name):
        raise ModuleNameError(f"attribute '{name}' already exists")


_SAVING = (
    ". tenon.jit.trace(module, example_inputs).save(path) writes what the module computes to a file, and"
    " tenon.save(module.state_dict(), path) its weights."
)
#: What to do instead of reading attributes that only traces have.
_OF_TRACES = {
    "save": _SAVING,
    "save_to_buffer": _SAVING,
    **dict.fromkeys(("code", "graph", "inlined_graph"), ". tenon.jit.trace(module, example_inputs) has it."),
}


class Registration:
    """Mixin of Module: registration of members; see ``registry.py`` for their storage."""

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]  # Modules, and None for reserved names
    _non_persistent_buffers_set: set[str]
    _mirrors: ClassVar[bool] = True

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add ``tensor`` as a buffer: state that is not a parameter, such as a running mean.

        A persistent buffer is part of ``state_dict``. ``None`` reserves the name.
        """
        buffers = self.__dict__.get("_buffers")
        if buffers is None:
            raise ModuleAttributeError("cannot assign buffer before Module.__init__() call")
        _check_name("buffer", name, self, buffers)
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.assigning(self, name)
        if not (tensor is None or isinstance(tensor, Tensor) or hasattr(tensor, "__torch_function__")):
            raise ModuleTypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' (torch Tensor or None "
                "required)"
            )
        self._store_buffer(name, tensor, persistent)

    def _store_buffer(self, name: str, tensor: Tensor | None, persistent: bool) -> None:
        if hooks._global_buffer_registration_hooks:
            tensor = hooks.run_registration_hooks(hooks._global_buffer_registration_hooks, self, name, tensor)
        self._put("_buffers", name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add ``param`` under ``name``; ``None`` reserves the name for a parameter."""
        parameters = self.__dict__.get("_parameters")
        if parameters is None:
            raise ModuleAttributeError("cannot assign parameter before Module.__init__() call")
        _check_name("parameter", name, self, parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise ModuleTypeError(
                    f"cannot assign '{typename(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ModuleValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                    f"explicitly. To express '{name}' as a function of another Tensor, compute the value in "
                    "the "
                    "forward() method."
                )
            if hooks._global_parameter_registration_hooks:
                param = hooks.run_registration_hooks(
                    hooks._global_parameter_registration_hooks, self, name, param
                )
        self._put("_parameters", name, param)

    def add_module(self, name: str, module: Module) -> None:
        """Add ``module`` as the child ``name``; ``None`` reserves the name."""
        children = self.__dict__.get("_modules")
        if children is None:
            raise ModuleAttributeError("cannot assign module before Module.__init__() call")
        if module is not None and not isinstance(module, Registration):
            raise ModuleTypeError(f"{typename(module)} is not a Module subclass")
        _check_name("module", name, self, children)
        self._store_module(name, module)

    def register_module(self, name: str, module: Module) -> None:
        """Alias of ``add_module``."""
        self.add_module(name, module)

    def _store_module(self, name: str, module: object) -> None:
        if hooks._global_module_registration_hooks:
            module = hooks.run_registration_hooks(hooks._global_module_registration_hooks, self, name, module)
        self._put("_modules", name, module)

    def _put(self, registry: str, name: str, value: object) -> None:
        """Set an entry of a registry; a registry that belongs to another module is copied first."""
        members = self.__dict__[registry]
        if not isinstance(members, Registry) or members.owner is not self:
            # Set without __setattr__, or unpickled by a __setstate__ that did not call this class's.
            set_registry(self, registry, members)
            members = self.__dict__[registry]
        members[name] = value

    def __setattr__(self, name: str, value: Any) -> None:  # as in PyTorch
        Generation.attributes += 1
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.assigning(self, name)
        attributes = self.__dict__
        computed = attributes.get("_weights")
        if computed is not None and name in computed:
            computed[name].write(self, value)
            return
        if isinstance(value, Parameter):
            if "_parameters" not in attributes:
                raise ModuleAttributeError("cannot assign parameters before Module.__init__() call")
            self._clear_for(name, "_parameters")
            self.register_parameter(name, value)
            return
        parameters = attributes.get("_parameters")
        if parameters is not None and name in parameters:
            if value is not None:
                raise ModuleTypeError(
                    f"cannot assign '{typename(value)}' as parameter '{name}' (torch.nn.Parameter or None "
                    "expected)"
                )
            self.register_parameter(name, value)
            return
        children = attributes.get("_modules")
        if isinstance(value, Registration):
            if children is None:
                raise ModuleAttributeError("cannot assign module before Module.__init__() call")
            self._clear_for(name, "_modules")
            self._store_module(name, value)
            return
        if children is not None and name in children:
            if value is not None:
                raise ModuleTypeError(
                    f"cannot assign '{typename(value)}' as child module '{name}' (torch.nn.Module or None "
                    "expected)"
                )
            self._store_module(name, value)
            return
        buffers = attributes.get("_buffers")
        if isinstance(value, Buffer) or (buffers is not None and name in buffers):
            self._assign_buffer(name, value)
        elif name in _REGISTRIES:
            set_registry(self, name, value)
        else:
            super().__setattr__(name, value)
            if name == "__dict__":
                for registry in _REGISTRIES & value.keys():
                    set_registry(self, registry, value[registry])

    def _clear_for(self, name: str, registry: str) -> None:
        """Remove ``name`` from plain attributes and from the registries other than ``registry``."""
        attributes = self.__dict__
        if attributes.get(name, _ABSENT) is not attributes[registry].get(name, _ABSENT):
            attributes.pop(name, None)
        for other in NAMES:
            if other != registry and name in attributes[other]:
                del attributes[other][name]
        self._non_persistent_buffers_set.discard(name)

    def _assign_buffer(self, name: str, value: Tensor | None) -> None:
        """Assign ``value`` to the buffer ``name``, registering it if it is new."""
        if "_buffers" not in self.__dict__:
            raise ModuleAttributeError("cannot assign buffer before Module.__init__() call")
        if not (value is None or isinstance(value, Tensor) or hasattr(value, "__torch_function__")):
            raise ModuleTypeError(
                f"cannot assign '{typename(value)}' as buffer '{name}' "
                "(torch.nn.Buffer, torch.Tensor or None expected)"
            )
        if isinstance(value, Buffer):
            persistent = value.persistent
        else:
            persistent = name not in self._non_persistent_buffers_set
        if type(self).register_buffer is Registration.register_buffer:
            if name in self._buffers:
                self._store_buffer(name, value, persistent)
            else:
                self.register_buffer(name, value, persistent)
        elif "persistent" in inspect.signature(self.register_buffer).parameters:
            self.register_buffer(name, value, persistent)
        elif persistent:
            self.register_buffer(name, value)
        else:
            raise ModuleError(
                f"Registering a non-persistent buffer ('{name}') on a Module subclass that implements "
                "register_buffer() without the persistent argument is not allowed. Add persistent=True to "
                "the "
                f"signature of {type(self).__name__}.register_buffer."
            )

    def __delattr__(self, name: str) -> None:
        for registry in NAMES:
            members = self.__dict__.get(registry)
            if members is not None and name in members:
                value = members[name]
                del members[name]
                if self.__dict__.get(name, _ABSENT) is value:  # the mirror of a registry that is not bound
                    del self.__dict__[name]
                self._non_persistent_buffers_set.discard(name)
                return
        if name in self.__dict__.get("_weights", ()):
            raise ModuleAttributeError(
                f"'{name}' of {type(self).__name__} is computed by steps and cannot be deleted. Remove them"
                " with parametrize.remove_parametrizations or prune.remove first."
            )
        super().__delattr__(name)
        Generation.attributes += 1

    def __getattr__(self, name: str) -> Any:  # as in PyTorch: a parameter, buffer or module
        attributes = self.__dict__
        for registry in NAMES:
            value = attributes.get(registry, {}).get(name, _ABSENT)
            if value is not _ABSENT:
                return value
        computed = attributes.get("_weights")
        if computed is not None and name in computed:
            return computed[name].read(self)
        missing = f"'{type(self).__name__}' object has no attribute '{name}'"
        raise AttributeError(missing + _OF_TRACES.get(name, ""), name=name, obj=self)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__}
        for registry in NAMES:
            names.update(self.__dict__.get(registry, ()))
        names.update(self.__dict__.get("_weights", ()))
        return sorted(name for name in names if not name[:1].isdigit())

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        # A class with its own __getattr__ may want to see every read of a member, so it gets no mirror.
        cls._mirrors = cls.__getattr__ is Registration.__getattr__

    def _initialise_registries(self) -> None:
        for name in NAMES:
            set_registry(self, name, {})
        self.__dict__["_non_persistent_buffers_set"] = set()

    def __getstate__(self) -> dict[str, Any]:  # the attributes of a module
        """Return ``__dict__`` without the entries that registries mirror into it."""
        state = self.__dict__.copy()
        for registry in NAMES:
            for name, value in state.get(registry, {}).items():
                if state.get(name, _ABSENT) is value:
                    del state[name]
        return state

    def _replicate_for_data_parallel(self) -> Self:
        """Return a shallow copy without parameters, to which views of this module's parameters can be
        assigned."""
        replica = self.__new__(type(self))
        state = Registration.__getstate__(self)
        replica.__dict__.update(state)
        for registry in NAMES:
            replica.__dict__[registry] = {}
            set_registry(replica, registry, {} if registry == "_parameters" else dict(state[registry]))
        replica.__dict__["_is_replica"] = True
        return replica

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        for registry in NAMES:
            set_registry(self, registry, self.__dict__.get(registry, {}))
