"""``Tensor``: PyTorch's interface to a backend's array. No maths in this file.

The operators and methods come from ``methods/``, which call ops by name through the op table. This file
defines the tensor itself: data, dtype, device, position in the autograd graph, and conversions to Python and
NumPy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np

from tenon.compat.overriding import PLAIN
from tenon.compat.rerouting import register_methods
from tenon.device import Device
from tenon.dtypes import FROM_NUMPY, dtype
from tenon.engine.grad_mode import MODE, UNCOUNTED
from tenon.engine.operands import wrong_type
from tenon.engine.value import FixedView, Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, DTypeError, ExportError, GradError, TenonWarning
from tenon.tensors import copying, dlpack
from tenon.tensors.autograd.nodes import as_graph_node
from tenon.tensors.creation import create
from tenon.tensors.extensions import EXTENSIONS
from tenon.tensors.methods import ALL_METHODS
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.size import Size

_new = object.__new__
_NO_LEAF = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't"
    " be populated during autograd.backward(). If you indeed want the .grad field to be populated for a"
    " non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by"
    " mistake, make sure you access the leaf Tensor instead."
)


if TYPE_CHECKING:
    from tenon.engine.types import Array
    from tenon.kernels.backend import Backend
    from tenon.tensors.types import Memo

    class Methods(Value):
        """The methods of ``ALL_METHODS`` for type checkers: operators, and any other method by its name."""

        def _binary(self, other: object, /) -> Tensor: ...
        def _unary(self, /) -> Tensor: ...
        def __getattr__(self, name: str) -> Any: ...  # methods are derived from ops, of any signature
        def __setitem__(self, key: object, value: object) -> None: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __init_subclass__(cls, plain: bool = False) -> None: ...
        def __float__(self) -> float: ...
        def __complex__(self) -> complex: ...
        def __index__(self) -> int: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Tensor]: ...

        __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = _binary
        __mul__ = __rmul__ = __imul__ = __truediv__ = __rtruediv__ = __itruediv__ = _binary
        __floordiv__ = __rfloordiv__ = __ifloordiv__ = __mod__ = __rmod__ = __imod__ = _binary
        __pow__ = __rpow__ = __ipow__ = __matmul__ = __rmatmul__ = _binary
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _binary
        __lshift__ = __rshift__ = __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = _binary
        __eq__ = __ne__ = _binary  # type: ignore[assignment]
        __neg__ = __pos__ = __abs__ = __invert__ = _unary

else:

    class Methods(Value, *ALL_METHODS, plain=True):
        """The base with all methods; ``Value`` comes first because ``isinstance(x, Value)``, which every op
        calls two or three times, tests the bases in order."""

        __slots__ = ()


class Tensor(Methods, plain=True):
    """A multi-dimensional array with a dtype and device, and its position in the autograd graph.

    Create one with ``tenon.tensor``, ``tenon.randn`` and similar functions. ``raw`` is the backend's array.
    """

    __slots__ = ()

    __array_priority__ = 1000  # so that ndarray + Tensor comes here

    #: The accumulated gradient; None until a backward pass reached this tensor.
    _grad: Any = None  # or a tensor
    _retains: bool = False

    def __new__(cls, *args: object, **kwargs: Any) -> Any:  # subclasses may return another type
        """``Tensor(2, 3)`` (uninitialised) or ``Tensor([[1., 2.]])`` in the default dtype: PyTorch's legacy
        constructor."""
        return create.legacy_tensor(cls, args, kwargs)

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    @classmethod
    def _of(cls, raw: Array, backend: Backend) -> Self:
        """Wrap ``raw`` as an untracked tensor, without checks or copies."""
        t = _new(cls)
        t.raw = raw
        t._backend = backend
        t._node = None
        t._index = 0
        t._track = False
        t._version_counter = MODE.counter
        t._view = None
        return t

    # --- data, dtype, device ---

    @property
    def grad(self) -> Any:  # a tensor or None; callers know which
        """The accumulated gradient, or None."""
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.gradient_read(self)
        if self._grad is None and self._node is not None and not self.retains_grad:
            warnings.warn(_NO_LEAF, TenonWarning, stacklevel=2)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and value is not self._grad:
            create.check_grad(self, value)
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.gradient_set(self)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def dtype(self) -> dtype:
        """Element type, e.g. ``torch.float32``."""
        return FROM_NUMPY[self.raw.dtype]

    @property
    def device(self) -> Device:
        """The device that stores the data."""
        device: Device = self._backend.device_of(self.raw)
        return device

    @property
    def shape(self) -> Size:
        """The sizes of all axes."""
        return tuple.__new__(Size, self.raw.shape)  # integers: nothing to check

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.raw.ndim)

    @property
    def data(self) -> Tensor:
        """A tensor without history that shares this memory; assigning a tensor replaces the memory."""
        self._expose()
        return (
            Value.make(self.raw, self._backend)
            if self.raw.__class__ is not EXTENSIONS.array_stand_in
            else self.detach()
        )

    @data.setter
    def data(self, value: Tensor) -> None:
        create.exchange_data(self, value)

    @data.deleter
    def data(self) -> None:
        raise GradError("Deleting tensor data is not allowed. Delete tensor instead!")

    # --- position in the autograd graph ---

    @property
    def requires_grad(self) -> bool:
        """Whether ops on this tensor are recorded for autograd."""
        view = self._view
        if not self._track and view is not None:
            if view[2].__class__ is FixedView:  # ops on it raise an error
                return bool(view[0]._track and self._counter()[0] != view[4])
            self._stale()
        return self._track

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self.requires_grad_(flag)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise GradError("requires_grad must be a bool: set it to False instead of deleting it.")

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set ``requires_grad`` of a leaf in place."""
        if requires_grad.__class__ is not bool:
            raise wrong_type("requires_grad_", "requires_grad", 1, requires_grad, "bool")
        if requires_grad and self._version_counter is UNCOUNTED and not MODE.inference:
            raise GradError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed. clone()"
                " gives a normal tensor."
            )
        if self._node is not None:
            if not requires_grad:
                raise GradError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed"
                    " variable in a subgraph that doesn't require differentiation use var_no_grad = "
                    "var.detach()."
                )
            return self
        if requires_grad and self.raw.dtype.kind in "iub":
            what = f"not {self.dtype}. Convert with .float() first."
            raise GradError(f"only Tensors of floating point and complex dtype can require gradients, {what}")
        self._track = bool(requires_grad)
        if requires_grad and self._view is not None and not self._view[0]._track:
            self._view = None  # an independent leaf from here on, though the memory stays shared
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor has no history: created by the user, or requires no grad."""
        if self._view is not None:
            self._refresh()
        return self._node is None

    @property
    def grad_fn(self) -> Any:  # a Node or None; callers know which
        """The node of the op that computed this tensor, or None."""
        if self._view is not None:
            self._refresh()
        return None if self._node is None else as_graph_node(self._node, self)

    @property
    def output_nr(self) -> int:
        """The index of this tensor among the outputs of ``grad_fn``."""
        return self._index

    @property
    def _version(self) -> int:
        """The number of in-place changes of this memory so far."""
        if self._version_counter is UNCOUNTED:
            raise GradError("Inference tensors do not track version counter. clone() gives one that does.")
        return 0 if self._version_counter is None else self._version_counter[0]

    @as_function(out="none")
    def is_inference(self) -> bool:
        """Whether it was created in ``inference_mode``, or is a view of such a tensor."""
        return self._version_counter is UNCOUNTED

    @property
    def _base(self) -> Tensor | None:
        """The tensor that this is a view of, or None."""
        return None if self._view is None else self._view[0]

    def _is_view(self) -> bool:
        return self._view is not None

    # --- Python's protocols ---

    def __len__(self) -> int:
        if self.raw.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return int(self.raw.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if self.raw.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __bool__(self) -> bool:
        return bool(self.is_nonzero())

    def __int__(self) -> int:
        return int(_real(self.item(), "int64_t"))

    def __float__(self) -> float:
        return float(_real(self.item(), "double"))

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        value = self.item() if self.raw.size == 1 else None
        if not isinstance(value, int):
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(value)

    def __contains__(self, element: object) -> bool:
        if not isinstance(element, (Value, int, float, complex)):
            raise ArgumentError(
                f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}."
            )
        equal: Any = element == self  # a tensor: numbers leave the comparison to it
        return bool(equal.any().item())

    __hash__ = object.__hash__  # by identity, as PyTorch's; not a Python function, which is slower

    def __reversed__(self) -> Tensor:
        return self if self.raw.ndim == 0 else self.flip(0)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        from tenon.tensors.printing import tensor_repr

        return tensor_repr(self)

    def __format__(self, spec: str) -> str:
        if self.raw.ndim == 0 and type(self) is Tensor and self.device.type != "meta":
            return str(self.item().__format__(spec))
        return object.__format__(self, spec)

    def __dir__(self) -> list[str]:
        hidden = () if self.device.type == "cuda" else ("__cuda_array_interface__",)
        return sorted(n for n in set(super().__dir__()) if not n.startswith("vjp") and n not in hidden)

    def __deepcopy__(self, memo: Memo) -> Tensor:
        return copying.deepcopy(self, memo)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[..., object], tuple[object, ...]]:
        return create.reduce(self)

    # --- NumPy and DLPack ---

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """Return a NumPy array that shares memory with this CPU tensor; with ``force``, of any tensor, which
        is detached and copied if needed."""
        if force:
            return self.detach().cpu()._backend.to_host(self.raw)
        if self._track and MODE.enabled:
            raise GradError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        if self.device.type != "cpu":
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the"
                " tensor to host memory first."
            )
        self._expose()
        return self._backend.to_host(self.raw)

    def __array__(self, dtype: np.dtype | type | None = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_wrap__(self, array: object, context: object = None, return_scalar: bool = False) -> Tensor:
        return create.from_numpy(np.asarray(array))

    def __dlpack__(self, **kwargs: object) -> object:
        if self._track:
            raise ExportError("Can't export tensors that require gradient, use tensor.detach()")
        self._expose()
        return dlpack.capsule_of(self.raw, kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.raw.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        if self.device.type != "cuda":
            raise AttributeError(f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.device}")
        return self.raw.__cuda_array_interface__

    def item(self) -> Any:  # bool, int, float or complex, as the dtype
        """Return the value of a one-element tensor as a Python number."""
        if self.raw.size != 1:
            raise ArgumentError(
                f"a Tensor with {self.raw.size} elements cannot be converted to Scalar"
            ) from None
        host = self._backend.to_host(self.raw)
        value = host.item()
        return float(value) if host.dtype.kind == "V" else value

    def tolist(self) -> Any:  # lists of numbers, nested as deep as there are axes
        """Return the values as nested Python lists; of a 0-d tensor as a number."""
        host = self._backend.to_host(self.raw)
        if host.dtype.kind == "V":
            host = host.astype(np.float32)
        return host.tolist()


Value.plain = Tensor
PLAIN.update((Tensor, Size, dtype, Device))
register_methods(Tensor)


def _real(value: complex, name: str) -> float:
    """Return the real part of ``value``; DTypeError, naming the C type ``name``, if it is not real."""
    if not isinstance(value, complex):
        return value
    if value.imag:
        raise DTypeError(f"value cannot be converted to type {name} without overflow: {value}")
    return value.real
