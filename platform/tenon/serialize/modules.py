"""Whole modules in ``.pt`` files: layers of ``tenon.nn``, stored as their names and attributes.

A file names a layer as PyTorch's files do, ``torch.nn.Linear``, and lists its attributes, so that either
library reads the other's files. No code is executed but ``Module.__init__``: classes and functions are looked
up in a table of those in ``tenon.nn`` and ``nn.functional``; attributes are plain values, tensors and such
modules, and may not hide a method. A traced program (``tenon.fx``) is written as a list of its nodes.
Classes of the user's are not in the table: their code would have to be imported.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from types import FunctionType
from typing import Any, TypeAlias, TypeGuard

from tenon.compat.finder import second_names
from tenon.dtypes import dtype
from tenon.errors import CheckpointError, UnsafeCheckpointError, UnsavableError
from tenon.nn.functional.linear_cross_entropy import LinearCrossEntropyOptions
from tenon.nn.hooks import HookAttribute
from tenon.nn.lazy import LazyModuleMixin
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.serialize.limits import short
from tenon.tensors.tensor import Tensor

_LAYERS, _FUNCTIONS = "torch.nn", "torch.nn.functional"
#: Registry of a module -> the class of its members, which may also be None.
_REGISTRIES: dict[str, type] = {"_parameters": Parameter, "_buffers": Tensor, "_modules": Module}
#: Names of hook dictionaries: empty in a file; here a module has none until a hook is registered.
HOOKS = tuple(name for name, value in vars(Module).items() if isinstance(value, HookAttribute))
#: Attributes of some of PyTorch's layers that are properties here.
_PROPERTIES = ("_flat_weights", "_flat_weights_names", "activation_relu_or_gelu")
#: Attributes of PyTorch's modules that modules here do not have.
_FOREIGN = frozenset((*HOOKS, "_is_full_backward_hook"))

#: A dataclass of plain values among a module's attributes.
Record: TypeAlias = LinearCrossEntropyOptions
#: Class of records -> the module and the name of that class in files.
RECORDS: dict[type, tuple[str, str]] = {
    LinearCrossEntropyOptions: (
        f"{_LAYERS}.modules.linear_cross_entropy_options",
        "LinearCrossEntropyOptions",
    )
}


class Named:
    """The name of a function of ``nn.functional`` among a module's attributes."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def is_record(value: object) -> TypeGuard[Record]:
    """Whether ``value`` is an instance of one of ``RECORDS``."""
    return type(value) in RECORDS


def state_of(module: Module, where: str) -> tuple[tuple[str, str], dict[str, object]]:
    """``((module, name) of the class, attributes)`` for a file.

    Raises ``UnsavableError``, naming the key path ``where``, if a file cannot hold ``module``.
    """
    kind = type(module)
    graphs = _saved_graphs()
    if kind not in _names() and graphs is not None and graphs.holds(module):
        return graphs.NAME, _own_state(module, graphs.state_of(module, where), where)
    if kind not in _names():
        raise UnsavableError(
            f"cannot save {where}: a checkpoint cannot hold a {kind.__module__}.{kind.__qualname__}, because"
            " reading it back would run code: only layers of tenon.nn are known to every reader. Save its"
            f" state instead: {where}.state_dict()."
        )
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        raise UnsavableError(
            f"cannot save {where}: it is uninitialised, so it has no data yet. Call the module once with a"
            " batch, then save."
        )
    return _names()[kind], _own_state(module, dict(module.__getstate__()), where)


def _own_state(
    module: Module,
    state: dict[str, Any],  # of any type
    where: str,
) -> dict[str, Any]:  # of any type
    """Return ``state`` with what files have of it; ``UnsavableError`` for hooks and unknown functions."""
    for name in _PROPERTIES:
        if hasattr(module, name):
            state[name] = getattr(module, name)
    for name in [n for n in state if n == "_hooks" or n in _FOREIGN]:
        if name != "_hooks" and state[name]:
            raise UnsavableError(
                f"cannot save {where}: it has hooks ({name}), which are code. Remove them, or save"
                f" {where}.state_dict()."
            )
        del state[name]
    for name, value in state.items():
        if name in _REGISTRIES:
            state[name] = dict(value)
        elif inspect.isfunction(value):
            title = str(value.__name__)
            if _functions().get(title) is not value:
                raise UnsavableError(
                    f"cannot save {where}: its {name!r} is the function {value.__qualname__}, and only those"
                    f" of tenon.nn.functional are known to every reader. Save {where}.state_dict()."
                )
            state[name] = Named(title)
    return state


def _saved_graphs() -> Any:  # the module, which is typed
    """The module that writes and reads traced modules, if there can be one; it stands above this one."""
    return sys.modules.get("tenon.fx.saved_graphs")


def known() -> dict[str, object]:
    """Full name in a file -> class or function, for all those that a file may name."""
    table: dict[str, object] = dict(_layers())
    graphs = importlib.import_module("tenon.fx.saved_graphs")
    table[".".join(graphs.NAME)] = graphs.KIND
    for name, function in _functions().items():
        table[f"{_FUNCTIONS}.{name}"] = function
    table["torch._C._nn.gelu"] = _functions()["gelu"]
    for record, (module, name) in RECORDS.items():
        table[f"{module}.{name}"] = record
    return table


def new(kind: type[Module]) -> Module:
    """A module of class ``kind`` without its attributes, which ``restore`` sets."""
    module = kind.__new__(kind)
    Module.__init__(module)
    return module


def restore_record(record: Record, state: object) -> None:
    """Set the fields of ``record`` to the values in the list ``state``, then run its own checks."""
    fields = dataclasses.fields(record)
    if type(state) is not list or len(state) != len(fields):
        raise CheckpointError(f"a {type(record).__name__} of other fields than {[f.name for f in fields]}")
    for field, value in zip(fields, state, strict=True):
        if type(value) not in (type(None), bool, int, str, dtype):
            raise CheckpointError(f"{field.name} of a {type(record).__name__} is a {type(value).__name__}")
        object.__setattr__(record, field.name, value)
    record.__post_init__()


def restore(module: Module, state: object, source: str) -> None:
    """Set the attributes of ``module`` to those in the dict ``state``, after checking them.

    Raises ``CheckpointError`` for values of wrong types, ``UnsafeCheckpointError`` for hooks and names of
    methods.
    """
    kind = type(module)
    if type(state) is not dict or any(type(name) is not str for name in state):
        raise CheckpointError(f"the attributes of a {kind.__name__} are not a dict of names")
    for registry, member in _REGISTRIES.items():
        members = state.get(registry)
        if not isinstance(members, dict) or not all(
            type(name) is str and (value is None or isinstance(value, member))
            for name, value in members.items()
        ):
            raise CheckpointError(
                f"{registry} of a {kind.__name__} holds something other than {member.__name__}s"
            )
    if type(state.get("training")) is not bool:
        raise CheckpointError(f"a {kind.__name__} that is neither training nor evaluating")
    attributes = {}
    for name, value in state.items():
        if name in _FOREIGN:
            if value:
                raise UnsafeCheckpointError(
                    f"refused to load {source}: a {kind.__name__} in it has hooks ({name}), which are code."
                )
            continue
        if name.startswith("__") or callable(getattr(kind, name, None)):
            raise UnsafeCheckpointError(
                f"refused to load {source}: it sets {short(name)} of a {kind.__name__}, which could replace a"
                " method."
            )
        if not isinstance(inspect.getattr_static(kind, name, None), property):
            attributes[name] = value
    graphs = _saved_graphs()
    if graphs is not None and graphs.holds(module):
        graphs.restore(module, attributes, source)
    else:
        module.__setstate__(attributes)


@functools.cache
def _layers() -> dict[str, type[Module]]:
    """The public layers and ``Module`` itself, by all their full names in PyTorch's files."""
    sources = {_LAYERS: importlib.import_module("tenon.nn")}
    for family in ("container", *sorted(second_names("tenon.nn.modules") - {"container"})):
        sources[f"{_LAYERS}.modules.{family}"] = importlib.import_module(f"tenon.nn.modules.{family}")
    layers = {
        f"{path}.{name}": value
        for path, source in sources.items()
        for name, value in ((name, getattr(source, name)) for name in dir(source) if name[:1].isupper())
        if isinstance(value, type) and issubclass(value, Module)
    }
    return layers | {f"{_LAYERS}.modules.module.Module": Module}


@functools.cache
def _names() -> dict[type[Module], tuple[str, str]]:
    """Class of layers -> its module and name in files."""
    names: dict[type[Module], tuple[str, str]] = {}
    for full, kind in _layers().items():
        module, _, name = full.rpartition(".")
        if name == kind.__name__:
            names.setdefault(kind, (module, name))
    return names


@functools.cache
def _functions() -> dict[str, FunctionType]:
    """The public functions of ``nn.functional`` by name."""
    functional = importlib.import_module("tenon.nn.functional")
    public = {name: getattr(functional, name) for name in dir(functional) if not name.startswith("_")}
    return {
        name: value for name, value in public.items() if inspect.isfunction(value) and value.__name__ == name
    }
