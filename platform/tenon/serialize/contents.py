"""The types that a checkpoint can hold, and key paths for error messages.

Both formats hold the same types: tensors, and the plain containers and numbers that PyTorch's
``weights_only=True`` accepts. Everything else raises UnsavableError with its key path before a byte is
written.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import NoReturn, TypeAlias

import numpy as np

from tenon.compat.typed_storage import TypedStorage
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.errors import UnsavableError
from tenon.nn.module import Module
from tenon.nn.parameter import Buffer, UninitializedTensorMixin
from tenon.serialize.modules import state_of
from tenon.tensors.size import Size
from tenon.tensors.storage.untyped import UntypedStorage
from tenon.tensors.tensor import Tensor

#: The deepest nesting of containers: readers everywhere recurse.
MAX_DEPTH = 200

#: Bits of the largest integer that PyTorch's safe reader accepts (255 bytes).
MAX_INTEGER_BITS = 255 * 8 - 1

MAPPINGS = (dict, OrderedDict, Counter)
SEQUENCES = (list, tuple, set, Size)
SCALARS = (type(None), bool, int, float, complex, str, bytes, bytearray, dtype, Device)
#: Storages by themselves, which PyTorch's files can hold.
STORAGES = (TypedStorage, UntypedStorage)
_KEYS = (type(None), bool, int, float, complex, str, bytes, dtype, Device, Size)

#: A key path: the keys, indices and ``MarkedStep``s that lead from the saved object to a value.
Path: TypeAlias = tuple[object, ...]


def format_path(path: Path) -> str:
    """Format a key path as a Python expression.

    >>> format_path(("model", 3, "weight"))
    "obj['model'][3]['weight']"
    """
    return "obj" + "".join(step if isinstance(step, MarkedStep) else f"[{step!r}]" for step in path)


class MarkedStep(str):
    """A step of a key path that is not a subscript, such as an attribute, formatted verbatim."""

    __slots__ = ()


MEMBER = MarkedStep("{member}")
KEY = MarkedStep("{key}")
METADATA = MarkedStep("._metadata")


def simple(value: object) -> object:
    """``value``, or the equal Python number if it is a NumPy scalar."""
    if isinstance(value, np.generic):
        number = value.item()
        if type(number) in SCALARS:
            return number
    return value


def check_key(key: object, path: Path) -> object:
    """Return ``key``, a dict key or a set member, made ``simple``; raise unless every reader supports it."""
    key = simple(key)
    if type(key) in _KEYS:
        return key
    if type(key) is tuple and len(path) < MAX_DEPTH:
        return tuple(check_key(item, (*path, KEY)) for item in key)
    raise UnsavableError(
        f"cannot save {format_path(path)}: a {_name(key)} cannot be a key or a member of a set in a "
        "checkpoint. Use a string, a number, bytes, None or a tuple of these."
    )


def attributes_of(mapping: object, path: Path) -> dict[str, object]:
    """The instance attributes of an OrderedDict: ``_metadata`` of a state dict, or none."""
    attributes = vars(mapping) if type(mapping) is OrderedDict else {}
    unknown = [name for name in attributes if name != "_metadata"]
    if unknown:
        raise UnsavableError(
            f"cannot save {format_path(path)}: the OrderedDict has attributes {unknown}, and only "
            "`_metadata` is saved. Put them into the dict, or delete them."
        )
    return dict(attributes)


def attributes_of_tensor(tensor: Tensor) -> dict[str, object]:
    """The attributes that users have set on a tensor, and for a ``Buffer`` the mark ``_is_buffer``."""
    attributes = {name: value for name, value in tensor.__dict__.items() if not name.startswith("_")}
    return attributes | {"_is_buffer": True} if isinstance(tensor, Buffer) else attributes


def tensors_of(obj: object) -> list[Tensor]:
    """All distinct tensors in ``obj``, in order of traversal."""
    return [value for value in _traverse(obj, attributes=False) if isinstance(value, Tensor)]


def tensors_and_storages_of(obj: object) -> list[Tensor | TypedStorage | UntypedStorage]:
    """All distinct tensors and storages in ``obj``, in order of traversal, also in attributes of tensors."""
    return _traverse(obj, attributes=True)


def _traverse(obj: object, *, attributes: bool) -> list[Tensor | TypedStorage | UntypedStorage]:
    """All distinct tensors and storages in ``obj``; with ``attributes``, also in those of tensors."""
    contents: dict[int, Tensor | TypedStorage | UntypedStorage] = {}
    seen: dict[int, object] = {}  # keyed by id; the values keep the objects alive, so that ids stay unique
    pending: list[tuple[object, Path]] = [(obj, ())]
    while pending:
        value, path = pending.pop()
        if isinstance(value, Tensor):
            _check_tensor(value, path)
            if id(value) not in contents:
                contents[id(value)] = value
                items = attributes_of_tensor(value) if attributes else {}
                pending.extend((item, (*path, attribute(name))) for name, item in items.items())
            continue
        if isinstance(value, STORAGES):
            contents.setdefault(id(value), value)
            continue
        plain = type(value) in MAPPINGS or type(value) in SEQUENCES
        if not (plain or isinstance(value, Module)) or id(value) in seen:
            continue
        if len(path) > MAX_DEPTH:
            refuse_depth(path)
        seen[id(value)] = value
        pending.extend(reversed(_children(value, path)))
    return list(contents.values())


def refuse(value: object, path: Path) -> NoReturn:
    """Raise ``UnsavableError`` with the type of ``value``, its key path, and advice on what to save."""
    name, where = _name(value), format_path(path)
    if hasattr(value, "state_dict"):
        advice = f"Save its state instead: {where}.state_dict()."
    elif isinstance(value, np.ndarray):
        advice = "Save it as a tensor: tenon.from_numpy(array)."
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        advice = (
            "Save value._asdict() or tuple(value): a named tuple's class would have to be imported to read "
            "it."
        )
    elif isinstance(value, dict):
        advice = "Save dict(value)."
    elif isinstance(value, (list, tuple, set, frozenset)):
        advice = f"Save {'set' if isinstance(value, (set, frozenset)) else 'list'}(value)."
    elif isinstance(value, (int, float, str, bytes)):
        advice = f"Save {next(t.__name__ for t in (int, float, str, bytes) if isinstance(value, t))}(value)."
    else:
        advice = "Save what it consists of: tensors, numbers, strings, bytes, dicts, lists, tuples, sets."
    raise UnsavableError(
        f"cannot save {where}: a checkpoint cannot hold a {name}, because reading it back would run code. "
        f"{advice}"
    )


def refuse_depth(path: Path) -> NoReturn:
    """Raise UnsavableError for containers that are nested too deeply or contain themselves."""
    raise UnsavableError(
        f"cannot save {format_path(path[:8])}...: containers are nested deeper than {MAX_DEPTH}, or contain "
        "themselves. "
        "Flatten them."
    )


def check_integer(value: int, path: Path) -> int:
    """Return ``value``; raise ``UnsavableError`` if it is too large for PyTorch's safe reader."""
    if value.bit_length() > MAX_INTEGER_BITS:
        raise UnsavableError(
            f"cannot save {format_path(path)}: an integer of {value.bit_length()} bits; the limit is "
            f"{MAX_INTEGER_BITS}. "
            "Save it as a string."
        )
    return value


def attribute(name: str) -> MarkedStep:
    """The step from a module to its attribute ``name``."""
    return MarkedStep(f".{name}")


def _children(value: object, path: Path) -> list[tuple[object, Path]]:
    """The values that a module or container holds, with their key paths."""
    if isinstance(value, Module):
        return [
            (item, (*path, attribute(name))) for name, item in state_of(value, format_path(path))[1].items()
        ]
    if isinstance(value, dict):
        children: list[tuple[object, Path]] = [(item, (*path, key)) for key, item in value.items()]
        if getattr(value, "__dict__", None):
            children.extend((item, (*path, METADATA)) for item in vars(value).values())
        return children
    if isinstance(value, (list, tuple)):
        return [(item, (*path, index)) for index, item in enumerate(value)]
    return []  # the members of a set are keys: check_key refuses tensors


def _check_tensor(tensor: Tensor, path: Path) -> None:
    """Raise ``UnsavableError`` for a tensor without data."""
    if tensor._backend.own is not tensor._backend:
        raise UnsavableError(
            f"cannot save {format_path(path)}: it is sharded over the ranks of this job. Save full_tensor(),"
            " which all ranks call, or the part of each rank, to_local()."
        )
    if isinstance(tensor, UninitializedTensorMixin):
        raise UnsavableError(
            f"cannot save {format_path(path)}: it is uninitialised, so it has no data yet. "
            "Call the module once with a batch, then save."
        )


def _name(value: object) -> str:
    """The full name of the class of ``value``."""
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
