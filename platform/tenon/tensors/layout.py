"""``layout``: PyTorch's name for how a tensor is stored. Tensors are always strided here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from tenon.engine.watchers import WATCHERS
from tenon.errors import UnsupportedError

F = TypeVar("F", bound=Callable[..., object])


class TorchName:
    """A constant of PyTorch of which tenon has the name only; compare by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(TorchName):
    """One of PyTorch's layouts; compare by identity."""

    __slots__ = ()


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
_mkldnn = layout("_mkldnn")


def check_layout(name: str, rest: dict[str, object]) -> None:
    """Check the remaining keyword arguments of a factory: ``layout`` must be strided, ``pin_memory`` is
    ignored (only data loaders use it), any other is a TypeError."""
    kind = rest.pop("layout", None)
    rest.pop("pin_memory", None)
    if kind not in (None, strided):
        raise UnsupportedError(f"{name}: tenon's tensors are torch.strided, not {kind!r}. Omit layout=.")
    if rest:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(rest))!r}")


def with_layout(make: F) -> F:
    """Decorate the factory ``make`` to accept ``layout=`` and ``pin_memory=``, and to appear in profiles."""

    @functools.wraps(make)
    def wrapped(
        *args: object, layout: layout | None = None, pin_memory: bool = False, **options: object
    ) -> object:
        if layout is not None:
            check_layout(make.__name__, {"layout": layout})
        if WATCHERS.around_creation is not None:
            return WATCHERS.around_creation(make.__name__, make, args, options)
        return make(*args, **options)

    return wrapped  # type: ignore[return-value]
