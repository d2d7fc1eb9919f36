"""``torch._foreach_*``: an elementwise operation for every tensor of a list.

Each function calls one method of every tensor, so dtypes, devices, errors and gradients are the method's own.
There are no kernels for whole lists here: optimizers have fused updates of their own. ``Op.foreach`` states
for an op that PyTorch has the function; the methods listed here are not ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.engine.op import table
from tenon.errors import ArgumentError, ShapeError
from tenon.functions.linalg import vector_norm
from tenon.tensors.creation.create import tensor
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.dtypes import DTypeLike
    from tenon.tensors.memory_formats import memory_format
    from tenon.tensors.types import Number

#: A list or tuple of tensors.
Tensors: TypeAlias = Sequence[Tensor]
#: A number, or a tensor of one.
Scalar: TypeAlias = "Tensor | Number"
#: A method of Tensor, or a function of tensors.
Method: TypeAlias = Callable[..., Tensor]
#: A function of lists of tensors; the in-place form returns its first argument.
Function: TypeAlias = Callable[..., Tensors]

_OPS = [op for op in table if op.foreach]
#: Functions of each tensor alone.
_UNARY = [op.name for op in _OPS if len(op.inputs) == 1] + ["frac"]
#: Functions of each tensor and a number, or the tensor or number at the same index of a second list.
_BINARY = [op.name for op in _OPS if len(op.inputs) == 2] + ["clamp_max", "clamp_min"]
#: PyTorch's names of the second argument, by what it is.
_SECOND = ("other", "scalar", "scalars", "tensor", "exponent")

__all__: list[str] = []


def _tensors(name: str, argument: object, like: Tensors | None = None) -> Tensors:
    """Return ``argument``; an error unless it is a list of tensors, as many as in ``like``."""
    if not isinstance(argument, (list, tuple)):
        raise TypeError(f"{name}(): argument must be tuple of Tensors, not {type(argument).__name__}")
    if not argument:
        raise ArgumentError(f"{name}: Tensor list must have at least one tensor.")
    for index, each in enumerate(argument):
        if not isinstance(each, Tensor):
            raise TypeError(f"{name}: expected Tensor as element {index}, but got {type(each).__name__}")
    if like is not None and len(argument) != len(like):
        raise ArgumentError(
            f"{name}: Tensor lists must have the same number of tensors, got {len(like)} and {len(argument)}"
        )
    return argument


def _for_each(name: str, argument: Scalar | Sequence[Scalar] | None, like: Tensors) -> Sequence[Scalar]:
    """Return one operand for each tensor: the elements of a list, or a number or 0-d tensor for all."""
    if isinstance(argument, (list, tuple)):
        if argument and isinstance(argument[0], Tensor):
            return _tensors(name, argument, like)
        if len(argument) != len(like):
            raise ArgumentError(
                f"{name}: Tensor list must have same number of elements as scalar list, got {len(like)} and "
                f"{len(argument)}."
            )
        return argument
    if isinstance(argument, Tensor) and argument.dim() > 0:
        raise ShapeError(
            f"{name}: scalar tensor expected to be 0 dim but it has {argument.dim()} dimensions and "
            f"{argument.numel()} elements. Pass a list of tensors for elementwise operands."
        )
    return [argument] * len(like)  # type: ignore[list-item]  # neither list nor tuple here


def _scalars(name: str, argument: Scalar | Sequence[Number], like: Tensors) -> Sequence[Scalar]:
    """Return the factor for each tensor in ``addcmul`` and ``addcdiv``, from a number, a list or a vector."""
    if not isinstance(argument, Tensor):
        return _for_each(name, argument, like)
    if argument.dim() != 1:
        raise ShapeError(
            f"{name}: Expected packed scalar Tensor to be of dimension 1. Got {argument.dim()} instead."
        )
    if argument.numel() != len(like):
        raise ShapeError(
            f"{name}: Expected length of scalars to match input of length {len(like)} but got"
            f" {argument.numel()} instead."
        )
    numbers: list[Number] = argument.tolist()
    return numbers


def _unary(name: str, method: Method, inplace: bool) -> Function:
    def function(self: Tensors) -> Tensors:
        results = tuple(method(x) for x in _tensors(name, self))
        return self if inplace else results

    return function


def _binary(name: str, method: Method, inplace: bool) -> Function:
    def function(self: Any, *second: Any, **options: Any) -> Tensors:  # as the names in ``_SECOND`` say
        operands = [*second, *(options.pop(key) for key in _SECOND if key in options)]
        unknown = set(options) - ({"alpha"} if name.startswith(("_foreach_add", "_foreach_sub")) else set())
        if len(operands) != 1 or unknown:
            raise TypeError(
                f"{name}() takes a list of tensors and one operand"
                + (f", not {', '.join(sorted(unknown))}" if unknown else f", not {len(operands)}")
            )
        if name == "_foreach_pow" and not isinstance(self, (list, tuple)):
            return tuple(x.__rpow__(self) for x in _tensors(name, operands[0]))
        pairs = zip(self, _for_each(name, operands[0], _tensors(name, self)), strict=True)
        results = tuple(method(x, y, **options) for x, y in pairs)
        return self if inplace else results

    return function


def _pointwise(name: str, method: Method, inplace: bool) -> Function:
    def function(
        self: Tensors,
        tensor1: Tensors,
        tensor2: Tensors,
        value: Number = 1,
        *,
        scalars: Scalar | Sequence[Number] | None = None,
    ) -> Tensors:
        _tensors(name, self)
        rows = zip(
            self,
            _tensors(name, tensor1, self),
            _tensors(name, tensor2, self),
            _scalars(name, value if scalars is None else scalars, self),
            strict=True,
        )
        results = tuple(method(x, first, second, value=factor) for x, first, second, factor in rows)
        return self if inplace else results

    return function


def _lerp(name: str, method: Method, inplace: bool) -> Function:
    def function(
        self: Tensors,
        tensors1: Tensors,
        weight: Scalar | Sequence[Scalar] | None = None,
        *,
        weights: Scalar | Sequence[Scalar] | None = None,
    ) -> Tensors:
        ends = _tensors(name, tensors1, _tensors(name, self))
        factors = _for_each(name, weight if weights is None else weights, self)
        results = tuple(method(x, end, factor) for x, end, factor in zip(self, ends, factors, strict=True))
        return self if inplace else results

    return function


def _foreach_norm(self: Tensors, ord: float = 2, dtype: DTypeLike | None = None) -> tuple[Tensor, ...]:
    """Return the norm of order ``ord`` of each tensor, as a tuple."""
    return tuple(vector_norm(x, ord, dtype=dtype) for x in _tensors("_foreach_norm", self))


def _foreach_max(self: Tensors) -> tuple[Tensor, ...]:
    """Return the largest element of each tensor, as a tuple."""
    return tuple(x.max() for x in _tensors("_foreach_max", self))


def _foreach_clone(self: Tensors, *, memory_format: memory_format | None = None) -> tuple[Tensor, ...]:
    """Return a copy of each tensor, as a tuple."""
    options = {} if memory_format is None else {"memory_format": memory_format}
    return tuple(x.clone(**options) for x in _tensors("_foreach_clone", self))


def _foreach_mm(self: Tensors, mat2: Tensors) -> tuple[Tensor, ...]:
    """Return the product of each matrix and the matrix of ``mat2`` at the same index, as a tuple."""
    pairs = zip(_tensors("_foreach_mm", self), _tensors("_foreach_mm", mat2, self), strict=True)
    return tuple(x.mm(y) for x, y in pairs)


def _foreach_copy_(self: Tensors, src: Tensors, non_blocking: bool = False) -> Tensors:
    """Copy the tensors of ``src`` into those at the same index, and return the list."""
    for x, y in zip(_tensors("_foreach_copy_", self), _tensors("_foreach_copy_", src, self), strict=True):
        x.copy_(y)
    return self


def _foreach_zero_(self: Tensors) -> Tensors:
    """Set each tensor to zero, and return the list."""
    for x in _tensors("_foreach_zero_", self):
        x.zero_()
    return self


def _accepting_numbers(method: Method) -> Method:
    """Make ``maximum`` or ``minimum`` accept a number; the gradient of equal elements is halved."""

    def extreme(x: Tensor, y: Scalar) -> Tensor:
        return method(x, y if isinstance(y, Tensor) else tensor(y, device=x.device))

    return extreme


def _add(
    make: Callable[[str, Method, bool], Function], method_name: str, method: Method, inplace_method: Method
) -> None:
    """Define ``_foreach_<method_name>`` and its in-place form in this module."""
    forms = ((f"_foreach_{method_name}", method, False), (f"_foreach_{method_name}_", inplace_method, True))
    for name, each, inplace in forms:
        function = globals()[name] = make(name, each, inplace)
        function.__name__ = function.__qualname__ = name
        function.__module__ = "tenon"
        function.__doc__ = f"``{name.removeprefix('_foreach_')}`` of every tensor of a list" + (
            "; the list itself." if inplace else ", as a tuple."
        )
        __all__.append(name)


for _names, _make in (
    (_UNARY, _unary), (_BINARY, _binary), (["addcmul", "addcdiv"], _pointwise), (["lerp"], _lerp),
):  # fmt: skip
    for _name in _names:
        _add(_make, _name, getattr(Tensor, _name), getattr(Tensor, f"{_name}_"))
_METHODS: Any = Tensor  # to type checkers a method looked up on the class is none of its own attributes
_add(_binary, "maximum", _accepting_numbers(_METHODS.maximum), _METHODS.clamp_min_)
_add(_binary, "minimum", _accepting_numbers(_METHODS.minimum), _METHODS.clamp_max_)
__all__ += [f"_foreach_{name}" for name in ("norm", "max", "clone", "mm", "copy_", "zero_")]
