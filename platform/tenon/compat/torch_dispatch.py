"""``__torch_dispatch__`` of tensor subclasses, and wrapper subclasses, whose tensors have no data.

An op with an argument of a registered class calls ``__torch_dispatch__(func, types, args, kwargs)`` instead
of a kernel; calling ``func`` computes the op on the arguments it receives. A wrapper tensor, made by
``Tensor._make_wrapper_subclass``, has a shape and a dtype but no storage: where its elements are needed
(``tolist``, comparison, gradients) its class handles a ``copy_`` into a plain tensor. Autograd differentiates
the same op applied to the unwrapped data; the handler's result takes that node. See ADR 0040.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from tenon.device import Device, DeviceLike, get_default_device
from tenon.dtypes import dtype as Dtype
from tenon.dtypes import get_default_dtype
from tenon.engine.aval import contiguous_strides
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, Op
from tenon.engine.tape import CustomNode, StandIn
from tenon.engine.types import Attr, Attrs, Operand, OpResult
from tenon.errors import ArgumentError
from tenon.kernels.backend import backend_for
from tenon.ops.aten import Operator, operator_of
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.extensions import EXTENSIONS
from tenon.tensors.layout import layout
from tenon.tensors.memory_formats import memory_format as Format
from tenon.tensors.pytree import tree_flatten
from tenon.tensors.tensor import Tensor


class Shell(NDArrayOperatorsMixin):
    """The ``raw`` array of a wrapper tensor: shape, dtype and strides, without a buffer.

    NumPy functions applied to it operate on a copy of the elements, which the owner's class provides.
    """

    __slots__ = ("_owner", "dtype", "shape", "strides")

    #: NumPy's ``base``: None, as for an array that owns its memory.
    base = None

    def __init__(self, owner: Tensor, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype) -> None:
        self._owner = weakref.ref(owner)
        self.shape = tuple(shape)
        self.dtype: np.dtype = dtype
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
        """Size in bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def owner(self) -> Tensor:
        """The wrapper tensor that this is the ``raw`` of; ReferenceError once that is freed."""
        owner = self._owner()
        if owner is None:
            raise ReferenceError(
                f"the wrapper tensor of shape {list(self.shape)} was freed: keep a reference to the"
                " tensor, not to its .raw."
            )
        return owner

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """Return the elements, copied into a plain array by the owner's class."""
        owner = self.owner
        plain = Tensor._of(owner._backend.empty(self.shape, self.dtype, owner.device), owner._backend)
        _copy(plain, owner)
        host: np.ndarray = plain._backend.to_host(plain.raw)
        return host if dtype is None else host.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> object:
        plain = [np.asarray(i) if isinstance(i, Shell) else i for i in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getitem__(self, key: Any) -> Any:  # as ``numpy.ndarray`` declares it
        return np.asarray(self)[key]

    def __setitem__(self, key: Any, value: npt.ArrayLike) -> None:  # as ``numpy.ndarray`` declares it
        data = np.asarray(self)
        data[key] = value
        owner = self.owner
        _copy(owner, Tensor._of(owner._backend.from_host(data, owner.device), owner._backend))

    def __getattr__(self, name: str) -> Any:  # an attribute of an array
        if name.startswith("__"):  # NumPy looks protocols up, and would bypass __array__
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


class _Copy(Operator):
    """The ``func`` of a ``copy_``, as passed to handlers."""

    __slots__ = ()

    def __call__(self, tensor: Tensor, *args: Tensor, **options: object) -> Tensor:
        """Copy the elements of ``args[0]`` into ``tensor`` in place and return it."""
        return tensor.copy_(*args)


def _copy(target: Tensor, source: Tensor) -> None:
    """Copy by the ``copy_`` handler of the wrapper among both."""
    with no_grad():
        handler: Any = next(type(t) for t in (target, source) if is_wrapper(t))  # of the user's class
        handler.__torch_dispatch__(_Copy("copy_", "default"), (handler,), (target, source), {})


class Called(Operator):
    """The ``func`` passed to handlers: one op under PyTorch's name; calling it computes the op."""

    __slots__ = ("op",)

    def __init__(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> None:
        super().__init__(operator_of(op, args, attrs).name, "default")
        self.op = op

    def __call__(self, *args: Operand, **attrs: Attr) -> OpResult:
        """Compute the op on ``args``."""
        return self.op(*args, **attrs)


class _Unwrap(CustomNode):
    """The node from a wrapper tensor to its unwrapped data: the identity, so it passes the gradient on."""

    __slots__ = ()

    def apply_tensors(self, grad: Tensor, create_graph: bool) -> list[Tensor]:
        """Return ``grad`` unchanged."""
        return [grad]


_UNWRAP = StandIn("open", "AliasBackward0")


def is_wrapper(value: object) -> bool:
    """Whether ``value`` is a wrapper tensor, one without data of its own."""
    return isinstance(value, Tensor) and value.raw.__class__ is Shell


class _Disabled(threading.local):
    """The number of ``no_dispatch`` blocks that this thread is in."""

    depth = 0


class _ClassDispatch:
    """The interceptor that calls ``__torch_dispatch__`` of the registered classes."""

    only_casts = True

    def __init__(self) -> None:
        self.classes: set[type] = set()
        self.disabled = _Disabled()

    def run(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> OpResult:
        """Return the result of the first handler that does not return NotImplemented, or of the op itself."""
        types: Any = tuple(  # classes with __torch_dispatch__
            dict.fromkeys(a.__class__ for a in args if a.__class__ in self.classes)
        )
        if not types or self.disabled.depth:
            return SLOT.below(self)(op, args, attrs)
        if isinstance(op, Composite) and not op.differentiable:
            return SLOT.parts(op, args, attrs)
        tracked = MODE.enabled and any(isinstance(a, Tensor) and (a._track or a._stale()) for a in args)
        with no_grad():
            for cls in types:
                result = cls.__torch_dispatch__(Called(op, args, attrs), types, args, dict(attrs))
                if result is not NotImplemented:
                    break
            else:
                raise TypeError(
                    f"Multiple dispatch failed for 'torch.ops.aten.{op.name}'; all __torch_dispatch__"
                    f" handlers returned NotImplemented: {', '.join(c.__name__ for c in types)}"
                )
        if tracked:
            plain = SLOT.below(self)(op, tuple(_unwrapped(a) if is_wrapper(a) else a for a in args), attrs)
            # A handler may return another structure; what has no counterpart gets no autograd history.
            for handled, plain_result in zip(tree_flatten(result)[0], tree_flatten(plain)[0], strict=False):
                if isinstance(handled, Tensor) and plain_result._track:
                    handled._node, handled._index, handled._track = (
                        plain_result._node,
                        plain_result._index,
                        True,
                    )
        return result


_DISPATCH = _ClassDispatch()


def _register(cls: type) -> None:
    """Call ``cls.__torch_dispatch__`` for every op from now on that has an argument of class ``cls``."""
    _DISPATCH.classes.add(cls)
    if not SLOT.holds(_DISPATCH):
        SLOT.sink(_DISPATCH)


def unregister_all() -> None:
    """Empty the registry of classes and remove the interceptor, so that measurements do not pay for it."""
    _DISPATCH.classes.clear()
    SLOT.pop(_DISPATCH)


@contextlib.contextmanager
def no_dispatch() -> Iterator[None]:
    """Disable ``__torch_dispatch__`` of classes within a block, in this thread.

    For a handler whose tensors have data of their own: without it, its ops would call the handler again.
    """
    _DISPATCH.disabled.depth += 1
    try:
        yield
    finally:
        _DISPATCH.disabled.depth -= 1


def _unwrapped(value: Tensor) -> Tensor:
    """Return a plain tensor with the elements of ``value``, connected to it in the autograd graph."""
    data = value._backend.from_host(np.asarray(value.raw), value.device)
    plain = Tensor._of(data, value._backend)
    if value._track:
        plain._node, plain._track = _Unwrap(_UNWRAP, value._backend, (value,)), True
    return plain


def _make_wrapper_subclass(
    cls: type,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    storage_offset: int | None = None,
    memory_format: Format | None = None,
    dtype: Dtype | None = None,
    layout: layout | None = None,
    device: DeviceLike = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **kwargs: object,
) -> Tensor:
    """Create a leaf tensor of class ``cls`` and shape ``size`` without data: a wrapper, whose ops call
    ``cls.__torch_dispatch__``.

    ``dtype``, ``device`` and ``strides`` (in elements) are the metadata it reports. The remaining arguments
    are those of PyTorch's method and have no effect.
    """
    if not hasattr(cls, "__torch_dispatch__"):
        raise ArgumentError(
            f"_make_wrapper_subclass: you must define __torch_dispatch__ on {cls.__name__}: its tensors have"
            " no data that an op could read."
        )
    _register(cls)
    EXTENSIONS.array_stand_in = Shell
    kind = (get_default_dtype() if dtype is None else dtype).numpy
    backend = backend_for(get_default_device() if device is None else Device(device))
    wrapper: Any = cls._of(None, backend)  # type: ignore[attr-defined]
    wrapper.raw = Shell(wrapper, size, contiguous_strides(size) if strides is None else strides, kind)
    return wrapper.requires_grad_() if requires_grad else wrapper


EXTENSIONS.intercept_class = _register
Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)  # type: ignore[attr-defined]
