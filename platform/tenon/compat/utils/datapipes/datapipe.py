"""``IterDataPipe`` and ``MapDataPipe``: data sets with methods that wrap them in other data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, TypeAlias, TypeVar

from tenon.data import Dataset, IterableDataset
from tenon.errors import ArgumentError

C = TypeVar("C", bound=type)
T_co = TypeVar("T_co", covariant=True)


#: A function that pipes have as a method: its parameters and result are its own.
Method: TypeAlias = Callable[..., Any]


class _Registered:
    """Base of both kinds of pipes: looks methods up among the registered functions."""

    functions: ClassVar[dict[str, Method]] = {}

    def __getattr__(self, name: str) -> Method:
        if name in type(self).functions:
            return partial(type(self).functions[name], self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def register_function(cls, function_name: str, function: Method) -> None:
        """Make ``pipe.function_name(...)`` call ``function(pipe, ...)``."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: type, enable_df_api_tracing: bool = False
    ) -> None:
        """Make ``pipe.function_name(...)`` return ``cls_to_register(pipe, ...)``."""
        if function_name in cls.functions:
            raise ArgumentError(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register


class IterDataPipe(_Registered, IterableDataset[T_co]):
    """An iterable data set: a subclass defines ``__iter__``."""

    functions: ClassVar[dict[str, Method]] = {}

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__().")


class MapDataPipe(_Registered, Dataset[T_co]):
    """A data set with indices: a subclass defines ``__getitem__`` and ``__len__``."""

    functions: ClassVar[dict[str, Method]] = {}


class functional_datapipe:
    """Decorate a class of pipes: it becomes the method ``name`` of all pipes of its kind."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: C) -> C:
        """Register ``cls``; return it."""
        base = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        if not issubclass(cls, base):
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        base.register_datapipe_as_function(self.name, cls)
        return cls
