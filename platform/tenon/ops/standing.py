"""Classes that are asked of ops, ``__torch_dispatch__``, and tensors that stand for others.

An op that gets a tensor of such a class calls ``__torch_dispatch__(func, types, args, kwargs)`` instead of a
kernel; calling ``func`` computes the op on whatever it is given. A tensor that stands for others, made by
``Tensor._make_wrapper_subclass``, has a shape and a dtype, and no data: where data is wanted (``tolist``,
comparing, gradients) its class is asked to copy it into a plain tensor. The history of what a handler gives
is that of the same op on the data. See ADR 0040.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tenon.device import Device, get_default_device
from tenon.dtypes import get_default_dtype
from tenon.engine.aval import contiguous_strides
from tenon.engine.backend import backend_for
from tenon.engine.grad_mode import MODE, no_grad
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite
from tenon.engine.tape import CustomNode, StandIn
from tenon.errors import ArgumentError
from tenon.ops.aten import Operator, called
from tenon.tensors.extensions import EXTENSIONS
from tenon.tensors.pytree import tree_flatten
from tenon.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]


class Shell(NDArrayOperatorsMixin):
    """What stands where an array does: NumPy sees the data that the owner's class copies out."""

    __slots__ = ("_owner", "dtype", "shape", "strides")

    #: As of an array that owns its memory.
    base = None

    def __init__(self, owner: Any, shape: Sequence[int], strides: Sequence[int], dtype: Any) -> None:
        self._owner = weakref.ref(owner)
        self.shape = tuple(shape)
        self.dtype: np.dtype[Any] = dtype
        self.strides = tuple(s * dtype.itemsize for s in strides)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes that the data would take."""
        return self.size * self.dtype.itemsize

    @property
    def owner(self) -> Any:
        """The tensor that has it."""
        found = self._owner()
        if found is None:
            raise ReferenceError(
                f"the tensor of shape {list(self.shape)} that stood for others is gone: keep it, and not"
                " its .raw."
            )
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The data, copied out by the class of the owner."""
        owner = self.owner
        plain = Tensor._of(owner._backend.empty(self.shape, self.dtype, owner.device), owner._backend)
        _copy(plain, owner)
        found: Array = plain._backend.to_host(plain.raw)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(i) if isinstance(i, Shell) else i for i in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        data = np.asarray(self)
        data[key] = value
        owner = self.owner
        _copy(owner, Tensor._of(owner._backend.from_host(data, owner.device), owner._backend))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # NumPy asks for protocols, which would give the data's own
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


class _Copy(Operator):
    """``copy_`` as handlers are shown it."""

    __slots__ = ()

    def __call__(self, tensor: Any, *args: Any, **options: Any) -> Any:
        """``tensor``, with the numbers of the first of ``args``."""
        return tensor.copy_(*args)


def _copy(target: Any, source: Any) -> None:
    with no_grad():
        handler = next(type(t) for t in (target, source) if stands(t))
        handler.__torch_dispatch__(_Copy("copy_", "default"), (handler,), (target, source), {})


class Called(Operator):
    """One op under torch's name, as handlers are shown it; calling it computes the op on other tensors."""

    __slots__ = ("op",)

    def __init__(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> None:
        super().__init__(called(op, args, attrs).name, "default")
        self.op = op

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        """The op's result."""
        return self.op(*args, **attrs)


class _Opened(CustomNode):
    """From the data of a tensor that stands for others to that tensor: its gradient as it is."""

    __slots__ = ()

    def apply_tensors(self, grad: Any, create_graph: bool) -> list[Any]:
        """The gradient as it is."""
        return [grad]


_OPENED = StandIn("open", "AliasBackward0")


def stands(value: Any) -> bool:
    """Whether ``value`` stands for others."""
    return isinstance(value, Tensor) and value.raw.__class__ is Shell


class _Off(threading.local):
    depth = 0


class _Asking:
    """Asks the classes that have a ``__torch_dispatch__``."""

    only_casts = True

    def __init__(self) -> None:
        self.classes: set[type] = set()
        self.off = _Off()

    def run(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The op, or what the first handler makes of it."""
        types: Any = tuple(dict.fromkeys(a.__class__ for a in args if a.__class__ in self.classes))
        if not types or self.off.depth:
            return SLOT.below(self)(op, args, attrs)
        if isinstance(op, Composite) and not op.differentiable:
            return SLOT.parts(op, args, attrs)
        tracked = MODE.enabled and any(isinstance(a, Tensor) and (a._track or a._stale()) for a in args)
        with no_grad():
            for cls in types:
                made = cls.__torch_dispatch__(Called(op, args, attrs), types, args, dict(attrs))
                if made is not NotImplemented:
                    break
            else:
                raise TypeError(
                    f"Multiple dispatch failed for 'torch.ops.aten.{op.name}'; all __torch_dispatch__"
                    f" handlers returned NotImplemented: {', '.join(c.__name__ for c in types)}"
                )
        if tracked:
            plain = SLOT.below(self)(op, tuple(_opened(a) if stands(a) else a for a in args), attrs)
            # A handler may give something else altogether, which then has no history.
            for given, shadow in zip(tree_flatten(made)[0], tree_flatten(plain)[0], strict=False):
                if isinstance(given, Tensor) and shadow._track:
                    given._node, given._index, given._track = shadow._node, shadow._index, True
        return made


_ASKING = _Asking()


def _ask(cls: type) -> None:
    """Have ``cls`` asked from now on."""
    _ASKING.classes.add(cls)
    if not SLOT.holds(_ASKING):
        SLOT.sink(_ASKING)


def ask_nobody() -> None:
    """Forget the classes that are asked: for measurements."""
    _ASKING.classes.clear()
    SLOT.pop(_ASKING)


@contextlib.contextmanager
def no_dispatch() -> Iterator[None]:
    """A block in which no class is asked: for a handler whose tensors have data of their own."""
    _ASKING.off.depth += 1
    try:
        yield
    finally:
        _ASKING.off.depth -= 1


def _opened(value: Any) -> Any:
    """The data of ``value`` with its history."""
    data = value._backend.from_host(np.asarray(value.raw), value.device)
    made = Tensor._of(data, value._backend)
    if value._track:
        made._node, made._track = _Opened(_OPENED, value._backend, (value,)), True
    return made


def _make_wrapper_subclass(
    cls: type,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **kwargs: Any,
) -> Any:
    """A leaf of class ``cls``, of shape ``size`` and without data, which stands for others: ops on it call
    its class's ``__torch_dispatch__``.

    ``dtype``, ``device`` and ``strides`` (in elements) are what it says of itself; the other arguments change
    nothing here.
    """
    if not hasattr(cls, "__torch_dispatch__"):
        raise ArgumentError(
            f"_make_wrapper_subclass: you must define __torch_dispatch__ on {cls.__name__}: its tensors have"
            " no data that an op could read."
        )
    _ask(cls)
    EXTENSIONS.array_stand_in = Shell
    kind = (get_default_dtype() if dtype is None else dtype).numpy
    backend = backend_for(get_default_device() if device is None else Device(device))
    made: Any = cls._of(None, backend)  # type: ignore[attr-defined]
    made.raw = Shell(made, size, contiguous_strides(size) if strides is None else strides, kind)
    return made.requires_grad_() if requires_grad else made


EXTENSIONS.intercept_class = _ask
Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)  # type: ignore[attr-defined]
