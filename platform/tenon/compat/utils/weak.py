"""PyTorch's module ``torch.utils.weak``: dictionaries with weakly held keys that are compared by identity.

Tensors compare elementwise, so they cannot be keys of a ``WeakKeyDictionary``.
"""

from __future__ import annotations

import builtins
import copy
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Generic, Self, TypeVar

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class WeakIdRef(weakref.ref[K]):
    """A weak reference that equals others to the same object, whatever the object's ``__eq__`` returns."""

    __slots__ = ("_id",)

    def __init__(self, key: K, callback: Callable[[Self], object] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __call__(self) -> K | None:
        """Return the object, or None if it was freed."""
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        target = self()
        if target is None or not isinstance(other, WeakIdRef):
            return self is other
        return target is other()

    def __ne__(self, other: object) -> bool:  # weakref.ref defines its own, which compares the objects
        return not self == other


class WeakIdKeyDictionary(MutableMapping[K, V]):
    """A dictionary that drops an entry when its key is garbage collected."""

    def __init__(self, dict: Mapping[K, V] | None = None, ref_type: type[WeakIdRef[K]] = WeakIdRef) -> None:
        self.ref_type = ref_type
        self.data: builtins.dict[WeakIdRef[K], V] = {}
        entries = weakref.ref(self)

        def forget(key: WeakIdRef[K]) -> None:
            dictionary = entries()
            if dictionary is not None:
                dictionary.data.pop(key, None)

        self._forget = forget
        self.update(dict or {})

    def __getitem__(self, key: K) -> V:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: K, value: V) -> None:
        self.data[self.ref_type(key, self._forget)] = value

    def __delitem__(self, key: K) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data  # type: ignore[arg-type]
        except TypeError:  # no weak reference to it is possible, so it is not a key
            return False

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[K]:
        for reference in list(self.data):  # a key may be collected during the iteration
            key = reference()
            if key is not None:
                yield key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def keyrefs(self) -> list[WeakIdRef[K]]:
        """Return the weak references to the keys."""
        return list(self.data)

    def copy(self) -> WeakIdKeyDictionary[K, V]:
        """Return a dictionary of the same keys and values."""
        return type(self)(self, ref_type=self.ref_type)

    __copy__ = copy

    def __deepcopy__(self, memo: builtins.dict[int, object]) -> WeakIdKeyDictionary[K, V]:
        """Return a dictionary of the same keys and copies of the values."""
        new = type(self)(ref_type=self.ref_type)
        for key, value in self.items():
            new[key] = copy.deepcopy(value, memo)
        return new

    def __or__(self, other: Mapping[K, V]) -> WeakIdKeyDictionary[K, V]:
        new = self.copy()
        new.update(other)
        return new

    def __ior__(self, other: Mapping[K, V]) -> WeakIdKeyDictionary[K, V]:
        self.update(other)
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(k): v for k, v in self.items()} == {id(k): v for k, v in other.items()}

    __hash__ = None  # type: ignore[assignment]


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef(Generic[T]):
    """A weak reference to a tensor."""

    def __init__(self, tensor: T) -> None:
        self.ref = weakref.ref(tensor)

    def __call__(self) -> T | None:
        """Return the tensor, or None if it was freed."""
        return self.ref()
