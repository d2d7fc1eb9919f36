"""Containers of parameters: ``ParameterList`` and ``ParameterDict``.

Both convert every tensor to a Parameter on assignment; other objects are stored unchanged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Any, NoReturn, Self, TypeAlias

from tenon.errors import ModuleError, ModuleTypeError
from tenon.nn.containers import pairs, position
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.registration import typename
from tenon.tensors.tensor import Tensor

#: A value of a ParameterList or ParameterDict: a parameter, or any object that is not a tensor.
Value: TypeAlias = Any
#: What a ParameterDict can be updated with; values that are not tensors are stored unchanged.
Entries: TypeAlias = "Mapping[str, object] | ParameterDict | Iterable[tuple[str, object]]"


def _as_parameter(value: object) -> object:
    """Return a tensor as a Parameter, any other object unchanged."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(key: int | str, value: object, type_text: str) -> str:
    """Return one line of the repr: ``(0): Parameter containing: [torch.float32 of size 2x3]``."""
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    device = "" if value.device.type in ("cpu", "meta") else f" ({value.device})"
    return f"  ({key}): {kind} containing: [{type_text} of size {size}{device}]"


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values: Iterable[object] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, idx: int | slice) -> Value:
        if isinstance(idx, slice):
            part = type(self)()
            for i in range(*idx.indices(len(self))):
                part.append(self[i])
            return part
        return getattr(self, str(position(idx, self._size)))

    def __setitem__(self, idx: int, param: object) -> None:
        setattr(self, str(position(idx, self._size)), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Value]:
        return iter([self[i] for i in range(self._size)])

    def append(self, value: object) -> Self:
        """Add ``value`` at the end; return the list."""
        setattr(self, str(self._size), _as_parameter(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[object]) -> Self:
        """Add every element of an iterable at the end; return the list."""
        # A tensor is iterable too, but passing one is a mistake.
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise ModuleTypeError(
                f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, parameters: Iterable[object]) -> Self:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def extra_repr(self) -> str:
        """Return one line per element."""
        return "\n".join(
            _describe(i, value, str(value.dtype) if isinstance(value, Tensor) else "")
            for i, value in enumerate(self)
        )

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise: a list is not callable."""
        raise ModuleError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters, in order of insertion; a plain unordered mapping is sorted by key first."""

    def __init__(self, parameters: Entries | None = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key: str) -> str:
        if not isinstance(key, str):
            raise ModuleTypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                f"'{type(key).__name__}'). Use string keys."
            )
        return key

    def __getitem__(self, key: str) -> Value:
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key: str, value: object) -> None:
        setattr(self, self._key_to_attr(key), _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """Return a new ParameterDict with the same parameters."""
        return ParameterDict(OrderedDict((key, self[key]) for key in self._keys))

    def setdefault(self, key: str, default: object = None) -> Value:
        """Return the value of ``key``, set to ``default`` if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all entries."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Value:
        """Remove ``key`` and return its value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Value]:
        """Remove and return the last entry."""
        if not self._keys:
            raise KeyError("popitem(): ParameterDict is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: object = None) -> Value:
        """Return the value of ``key``, or ``default``."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: object = None) -> ParameterDict:
        """Return a new ParameterDict with ``default`` for every key."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Value]]:
        """Return pairs of name and value."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Value]:
        """Return the values."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Entries) -> None:
        """Set the entries of a mapping or of an iterable of pairs."""
        entries = pairs("ParameterDict", parameters)
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            entries = sorted(entries)
        for key, value in entries:
            self[key] = value

    def extra_repr(self) -> str:
        """Return one line per entry."""
        return "\n".join(_describe(key, value, typename(value)) for key, value in self.items())

    def __call__(self, input: object) -> NoReturn:
        """Raise: a dict is not callable."""
        raise ModuleError("ParameterDict should not be called.")

    def __or__(self, other: Entries) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: dict[str, Value]) -> dict[str, Value]:
        joined = other.copy()
        joined.update(self)
        return joined

    def __ior__(self, other: Entries) -> Self:
        self.update(other)
        return self
