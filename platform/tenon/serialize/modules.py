"""Whole modules in ``.pt`` files: layers of ``tenon.nn`` as what they are called and what they hold.

A file names a layer as PyTorch's do, ``torch.nn.Linear``, and lists its attributes, so that either library
reads the other's. Nothing runs but ``Module.__init__``: classes and functions are found in a table of what
``tenon.nn`` and ``nn.functional`` offer, attributes are plain values, tensors and modules of the same kinds,
and none may hide a method. Classes of the user's own are not in the table: their code would have to be
imported.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from typing import Any

from tenon.compat.finder import second_names
from tenon.dtypes import dtype
from tenon.errors import CheckpointError, UnsafeCheckpointError, UnsavableError
from tenon.nn.functional.linear_classes import LinearCrossEntropyOptions
from tenon.nn.hooks import HookAttribute
from tenon.nn.lazy import LazyModuleMixin
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.tensor import Tensor

_LAYERS, _FUNCTIONS = "torch.nn", "torch.nn.functional"
#: What each registry of a module may hold, besides None.
_REGISTRIES: dict[str, type] = {"_parameters": Parameter, "_buffers": Tensor, "_modules": Module}
#: Names of hook dictionaries: empty in a file, and absent here as long as they are.
HOOKS = tuple(name for name, value in vars(Module).items() if isinstance(value, HookAttribute))
#: What some of PyTorch's layers keep as attributes, and layers here work out when they are asked.
_LISTED = ("_flat_weights", "_flat_weights_names", "activation_relu_or_gelu")
#: What PyTorch's modules have besides, and modules here do not.
_FOREIGN = frozenset((*HOOKS, "_is_full_backward_hook"))

#: Plain records among a module's attributes: class -> where a file says it is, and its name there.
RECORDS: dict[type, tuple[str, str]] = {
    LinearCrossEntropyOptions: (
        f"{_LAYERS}.modules.linear_cross_entropy_options",
        "LinearCrossEntropyOptions",
    )
}


class Named:
    """A function of ``nn.functional`` among a module's attributes, by its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def state_of(module: Module, where: str) -> tuple[tuple[str, str], dict[str, Any]]:
    """Name and attributes of a module that a file can hold; UnsavableError for any other."""
    kind = type(module)
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
    state: dict[str, Any] = dict(module.__getstate__())
    for name in _LISTED:
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
    return _names()[kind], state


def known() -> dict[str, Any]:
    """Full name in a file -> class or function, for all that a file may name."""
    table: dict[str, Any] = dict(_layers())
    for name, function in _functions().items():
        table[f"{_FUNCTIONS}.{name}"] = function
    table["torch._C._nn.gelu"] = _functions()["gelu"]
    for record, (place, name) in RECORDS.items():
        table[f"{place}.{name}"] = record
    return table


def new(kind: type[Module]) -> Module:
    """A module of ``kind`` without attributes, as a file's object tree begins one."""
    made = kind.__new__(kind)
    Module.__init__(made)
    return made


def restore_record(record: Any, state: Any) -> None:
    """Give a record the values that a file lists, in the order of its fields; its own checks follow."""
    fields = dataclasses.fields(record)
    if type(state) is not list or len(state) != len(fields):
        raise CheckpointError(f"a {type(record).__name__} of other fields than {[f.name for f in fields]}")
    for field, value in zip(fields, state, strict=True):
        if type(value) not in (type(None), bool, int, str, dtype):
            raise CheckpointError(f"{field.name} of a {type(record).__name__} is a {type(value).__name__}")
        object.__setattr__(record, field.name, value)
    record.__post_init__()


def restore(module: Module, state: Any, source: str) -> None:
    """Give ``module`` the attributes that a file lists."""
    kind = type(module)
    if type(state) is not dict or any(type(name) is not str for name in state):
        raise CheckpointError(f"the attributes of a {kind.__name__} are no dict of names")
    for registry, member in _REGISTRIES.items():
        held = state.get(registry)
        if not isinstance(held, dict) or not all(
            type(name) is str and (value is None or isinstance(value, member)) for name, value in held.items()
        ):
            raise CheckpointError(
                f"{registry} of a {kind.__name__} holds something else than {member.__name__}s"
            )
    if type(state.get("training")) is not bool:
        raise CheckpointError(f"a {kind.__name__} that is neither training nor evaluating")
    kept = {}
    for name, value in state.items():
        if name in _FOREIGN:
            if value:
                raise UnsafeCheckpointError(
                    f"refused to load {source}: a {kind.__name__} in it has hooks ({name}), which are code."
                )
            continue
        if name.startswith("__") or callable(getattr(kind, name, None)):
            raise UnsafeCheckpointError(
                f"refused to load {source}: it sets {name!r} of a {kind.__name__}, which could replace a"
                " method."
            )
        if not isinstance(inspect.getattr_static(kind, name, None), property):
            kept[name] = value
    module.__setstate__(kept)


@functools.cache
def _layers() -> dict[str, type[Module]]:
    """The public layers and ``Module`` itself, by all the names that PyTorch's files have for them."""
    faces = {_LAYERS: importlib.import_module("tenon.nn")}
    for face in ("container", *sorted(second_names("tenon.nn.modules") - {"container"})):
        faces[f"{_LAYERS}.modules.{face}"] = importlib.import_module(f"tenon.nn.modules.{face}")
    layers = {
        f"{place}.{name}": value
        for place, face in faces.items()
        for name, value in ((name, getattr(face, name)) for name in dir(face) if name[:1].isupper())
        if isinstance(value, type) and issubclass(value, Module)
    }
    return layers | {f"{_LAYERS}.modules.module.Module": Module}


@functools.cache
def _names() -> dict[type[Module], tuple[str, str]]:
    """Class -> where a file says it is, and its name there."""
    found: dict[type[Module], tuple[str, str]] = {}
    for full, kind in _layers().items():
        place, _, name = full.rpartition(".")
        if name == kind.__name__:
            found.setdefault(kind, (place, name))
    return found


@functools.cache
def _functions() -> dict[str, Any]:
    """The public functions of ``nn.functional``."""
    functional = importlib.import_module("tenon.nn.functional")
    found = {name: getattr(functional, name) for name in dir(functional) if not name.startswith("_")}
    return {
        name: value for name, value in found.items() if inspect.isfunction(value) and value.__name__ == name
    }
