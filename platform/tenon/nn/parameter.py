"""Parameters and buffers: tensors that a Module registers on assignment.

``UninitializedParameter`` and ``UninitializedBuffer`` have a dtype and a device but no shape yet; lazy
layers ``materialize`` them in their first call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeAlias, TypedDict, TypeGuard, TypeVar

from tenon.compat.overriding import PLAIN, disabled
from tenon.engine.value import Value
from tenon.errors import ModuleError, ModuleTypeError, ModuleValueError
from tenon.tensors.creation import factories
from tenon.tensors.creation.create import NOT_COPIED
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.device import Device, DeviceLike
    from tenon.dtypes import dtype as DType

#: What ``copy.deepcopy`` has copied already, by the id of the original; each copy has its own type.
Memo: TypeAlias = dict[int, Any]
_T = TypeVar("_T", bound=Tensor)
#: The descriptor of the slot ``raw``, which ``UninitializedTensorMixin`` hides by a property.
_RAW = Value.__dict__["raw"]


class FactoryOptions(TypedDict):
    """Where and in which dtype a layer creates its parameters."""

    device: DeviceLike
    dtype: DType | None


def _leaf(cls: type[_T], data: Tensor | None, requires_grad: bool) -> _T:
    """Return a leaf of class ``cls`` that shares the memory and version counter of ``data``."""
    if data is None:
        data = factories.empty(0)
    if not isinstance(data, Tensor):
        raise ModuleTypeError(
            f"{cls.__name__}() takes a Tensor, not {type(data).__name__}. Make one with tenon.tensor(...) "
            f"first."
        )
    special = data._backend.parameter_type if cls is Parameter else None
    leaf: _T = (special or cls)._of(data.raw, data._backend)
    leaf._version_counter = data._counter()
    leaf.requires_grad_(requires_grad)
    return leaf


class Parameter(Tensor):
    """A learnable tensor: assigned to a module, it appears in ``parameters()``.

    Requires grad by default, also inside ``no_grad``. Shares memory with ``data``.
    """

    __torch_function__ = disabled

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        """Create a leaf that shares the memory of ``data``; an empty one without."""
        return _leaf(cls, data, requires_grad)

    def __deepcopy__(self, memo: Memo) -> Self:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
        return memo[id(self)]

    def __repr__(self) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        hooks: OrderedDict[int, object] = OrderedDict()  # PyTorch's format has hooks, which are not saved
        arguments = (type(self), self.data, self.requires_grad, hooks)
        state = {name: value for name, value in self.__dict__.items() if name not in NOT_COPIED}
        if state:
            return (_rebuild_parameter_with_state, (*arguments, state))
        return (_rebuild_parameter, arguments)


def _rebuild_parameter(
    cls: type[Parameter], data: Tensor, requires_grad: bool, backward_hooks: object
) -> Parameter:
    return cls(data, requires_grad)


def _rebuild_parameter_with_state(
    cls: type[Parameter], data: Tensor, requires_grad: bool, backward_hooks: object, state: dict[str, object]
) -> Parameter:
    parameter = cls(data, requires_grad)
    parameter.__dict__.update(state)
    return parameter


class Buffer(Tensor):
    """A tensor that is state but not learnable: assigned to a module, it appears in ``buffers()``.

    ``persistent`` says whether it is part of the module's ``state_dict``.
    """

    persistent: bool
    __torch_function__ = disabled

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Self:
        """Create a buffer that shares the memory of ``data``; an empty one without."""
        buffer = _leaf(cls, data, False if data is None else data.requires_grad)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo: Memo) -> Self:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.data.clone(), persistent=self.persistent).requires_grad_(
                self.requires_grad
            )
        return memo[id(self)]

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (_rebuild_buffer, (type(self), self.data, self.requires_grad, self.persistent))


PLAIN.update((Parameter, Buffer))


def _rebuild_buffer(cls: type[Buffer], data: Tensor, requires_grad: bool, persistent: bool) -> Buffer:
    return cls(data, persistent=persistent).requires_grad_(requires_grad)


class UninitializedTensorMixin:
    """Mixin of tensors without a shape: they can be converted, but not computed with."""

    __slots__ = ()
    cls_to_become: ClassVar[type]

    @property
    def raw(self) -> NoReturn:
        """Raise: there is no data yet."""
        raise ModuleValueError(
            f"Attempted to use an uninitialized parameter: {type(self).__name__} has no data yet. This error "
            f"happens "
            "when you are using a `LazyModule` or explicitly manipulating such objects. Call `forward` with "
            "a dummy "
            "batch to initialize the parameters before using them."
        )

    @property
    def data(self) -> Tensor:
        """An empty tensor that carries dtype and device."""
        return self._empty

    @data.setter
    def data(self, value: Tensor) -> None:
        self._empty = value

    @property
    def dtype(self) -> DType:
        """The dtype after ``materialize``."""
        return self._empty.dtype

    @property
    def device(self) -> Device:
        """The device after ``materialize``."""
        return self._empty.device

    @property
    def shape(self) -> NoReturn:
        """Raise: the shape is not known yet."""
        raise ModuleError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call "
            "`forward` "
            "to initialize the parameters before accessing their attributes."
        )

    _empty: Any  # a Tensor, in the __dict__ of the subclass, as this mixin has no slots

    def materialize(
        self, shape: Sequence[int], device: DeviceLike = None, dtype: DType | None = None
    ) -> None:
        """Become a normal tensor of ``shape`` with uninitialised memory."""
        device = self._empty.device if device is None else device
        dtype = self._empty.dtype if dtype is None else dtype
        data = factories.empty(shape, device=device, dtype=dtype)
        del self._empty
        self.__class__ = self.cls_to_become
        self.raw, self._backend = data.raw, data._backend  # type: ignore[misc]

    def share_memory_(self) -> NoReturn:
        """Raise: there is no memory yet."""
        raise ModuleError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the "
            "parameters "
            "before calling `module.share_memory()`."
        )

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating point."""
        return bool(self._empty.is_floating_point())

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return bool(self._empty.is_complex())

    def detach(self) -> Self:
        """Return itself: there is no graph to detach from."""
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


_U = TypeVar("_U", bound=UninitializedTensorMixin)


def _uninitialized(cls: type[_U], requires_grad: bool, device: DeviceLike, dtype: DType | None) -> _U:
    """Return an instance of ``cls`` that knows its dtype and device from an empty tensor."""
    empty = factories.empty(0, device=device, dtype=dtype)
    tensor: Any = object.__new__(cls)  # sets the slots of Value, some of which the mixin hides
    _RAW.__set__(tensor, empty.raw)
    tensor._backend, tensor._node, tensor._index = empty._backend, None, 0
    tensor._version_counter = tensor._view = None
    tensor._track = bool(requires_grad)
    tensor._empty = empty
    return tensor


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape is not known yet."""

    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: DeviceLike = None, dtype: DType | None = None
    ) -> Self:
        """Create a parameter of this dtype on this device."""
        return _uninitialized(cls, requires_grad, device, dtype)

    def __deepcopy__(self, memo: Memo) -> Self:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self._track, self.device, self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (type(self), (self._track, self.device, self.dtype))


class UninitializedBuffer(UninitializedTensorMixin, Buffer):  # type: ignore[misc]
    """A buffer whose shape is not known yet."""

    cls_to_become = Buffer

    def __new__(
        cls,
        requires_grad: bool = False,
        device: DeviceLike = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> Self:
        """Create a buffer of this dtype on this device."""
        buffer = _uninitialized(cls, requires_grad, device, dtype)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo: Memo) -> Self:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self._track, self.device, self.dtype, self.persistent)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (type(self), (self._track, self.device, self.dtype, self.persistent))


def is_lazy(param: object) -> TypeGuard[UninitializedTensorMixin]:
    """Whether ``param`` is an uninitialized parameter or buffer."""
    return isinstance(param, UninitializedTensorMixin)
