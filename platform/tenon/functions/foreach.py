"""``torch._foreach_*``: an elementwise operation for every tensor of a list.

One table of methods; each entry is the method called tensor by tensor, so dtypes, devices, refusals and
gradients are the method's own. There are no kernels for whole lists here: optimizers update by rules of
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenon.errors import ArgumentError, ShapeError
from tenon.tensors.creation.create import tensor
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.dtypes import DTypeLike
    from tenon.tensors.formats import memory_format

#: Of each tensor alone, with a form in place.
_ALONE = """
    abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal
    round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc
"""
#: Of each tensor with a number, or with its number or tensor of a second list.
_WITH = "add sub mul div pow clamp_max clamp_min"
#: What torch calls the second argument, by what it is.
_SECOND = ("other", "scalar", "scalars", "tensor", "exponent")

__all__: list[str] = []


def _tensors(name: str, given: Any, like: Sequence[Any] | None = None) -> Sequence[Any]:
    """``given``, where it is a list of tensors, as many as in ``like``."""
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{name}(): argument must be tuple of Tensors, not {type(given).__name__}")
    if not given:
        raise ArgumentError(f"{name}: Tensor list must have at least one tensor.")
    for place, each in enumerate(given):
        if not isinstance(each, Tensor):
            raise TypeError(f"{name}: expected Tensor as element {place}, but got {type(each).__name__}")
    if like is not None and len(given) != len(like):
        raise ArgumentError(
            f"{name}: Tensor lists must have the same number of tensors, got {len(like)} and {len(given)}"
        )
    return given


def _for_each(name: str, given: Any, like: Sequence[Any]) -> Sequence[Any]:
    """One argument for each tensor: a list's members, or the same number or 0-d tensor for all."""
    if isinstance(given, (list, tuple)):
        if given and isinstance(given[0], Tensor):
            return _tensors(name, given, like)
        if len(given) != len(like):
            raise ArgumentError(
                f"{name}: Tensor list must have same number of elements as scalar list, got {len(like)} and "
                f"{len(given)}."
            )
        return given
    if isinstance(given, Tensor) and given.dim() > 0:
        raise ShapeError(
            f"{name}: scalar tensor expected to be 0 dim but it has {given.dim()} dimensions and "
            f"{given.numel()} elements. Pass a list of tensors for elementwise operands."
        )
    return [given] * len(like)


def _scalars(name: str, given: Any, like: Sequence[Any]) -> Sequence[Any]:
    """The factors of ``addcmul`` and ``addcdiv``: a number, a list of them, or a vector."""
    if not isinstance(given, Tensor):
        return _for_each(name, given, like)
    if given.dim() != 1:
        raise ShapeError(
            f"{name}: Expected packed scalar Tensor to be of dimension 1. Got {given.dim()} instead."
        )
    if given.numel() != len(like):
        raise ShapeError(
            f"{name}: Expected length of scalars to match input of length {len(like)} but got {given.numel()}"
            " instead."
        )
    numbers: list[Any] = given.tolist()
    return numbers


def _alone(name: str, method: Callable[..., Any], inplace: bool) -> Callable[..., Any]:
    def function(self: Any) -> Any:
        result = tuple(method(x) for x in _tensors(name, self))
        return self if inplace else result

    return function


def _with(name: str, method: Callable[..., Any], inplace: bool) -> Callable[..., Any]:
    def function(self: Any, *second: Any, **options: Any) -> Any:
        given = [*second, *(options.pop(key) for key in _SECOND if key in options)]
        unknown = set(options) - ({"alpha"} if name.startswith(("_foreach_add", "_foreach_sub")) else set())
        if len(given) != 1 or unknown:
            raise TypeError(
                f"{name}() takes a list of tensors and one operand"
                + (f", not {', '.join(sorted(unknown))}" if unknown else f", not {len(given)}")
            )
        if name == "_foreach_pow" and not isinstance(self, (list, tuple)):
            return tuple(x.__rpow__(self) for x in _tensors(name, given[0]))
        operands = _for_each(name, given[0], _tensors(name, self))
        result = tuple(method(x, y, **options) for x, y in zip(self, operands, strict=True))
        return self if inplace else result

    return function


def _pointwise(name: str, method: Callable[..., Any], inplace: bool) -> Callable[..., Any]:
    def function(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> Any:
        _tensors(name, self)
        rows = zip(
            self,
            _tensors(name, tensor1, self),
            _tensors(name, tensor2, self),
            _scalars(name, value if scalars is None else scalars, self),
            strict=True,
        )
        result = tuple(method(x, first, second, value=factor) for x, first, second, factor in rows)
        return self if inplace else result

    return function


def _lerp(name: str, method: Callable[..., Any], inplace: bool) -> Callable[..., Any]:
    def function(self: Any, tensors1: Any, weight: Any = None, *, weights: Any = None) -> Any:
        ends = _tensors(name, tensors1, _tensors(name, self))
        shares = _for_each(name, weight if weights is None else weights, self)
        result = tuple(method(x, end, share) for x, end, share in zip(self, ends, shares, strict=True))
        return self if inplace else result

    return function


def _foreach_norm(self: Any, ord: Any = 2, dtype: DTypeLike | None = None) -> tuple[Any, ...]:
    """The norm of each tensor, of order ``ord``."""
    from tenon.linalg import vector_norm

    return tuple(vector_norm(x, ord, dtype=dtype) for x in _tensors("_foreach_norm", self))


def _foreach_max(self: Any) -> tuple[Any, ...]:
    """The greatest element of each tensor."""
    return tuple(x.max() for x in _tensors("_foreach_max", self))


def _foreach_clone(self: Any, *, memory_format: memory_format | None = None) -> tuple[Any, ...]:
    """A copy of each tensor."""
    options = {} if memory_format is None else {"memory_format": memory_format}
    return tuple(x.clone(**options) for x in _tensors("_foreach_clone", self))


def _foreach_mm(self: Any, mat2: Any) -> tuple[Any, ...]:
    """The product of each matrix with the one at its place in ``mat2``."""
    pairs = zip(_tensors("_foreach_mm", self), _tensors("_foreach_mm", mat2, self), strict=True)
    return tuple(x.mm(y) for x, y in pairs)


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Each tensor set to the one at its place in ``src``."""
    for x, y in zip(_tensors("_foreach_copy_", self), _tensors("_foreach_copy_", src, self), strict=True):
        x.copy_(y)
    return self


def _foreach_zero_(self: Any) -> Any:
    """Each tensor set to zero."""
    for x in _tensors("_foreach_zero_", self):
        x.zero_()
    return self


def _extreme(method: Callable[..., Any]) -> Callable[..., Any]:
    """``maximum`` or ``minimum`` of a tensor with a number too; the gradient of equals goes half to each."""

    def of(x: Any, y: Any) -> Any:
        return method(x, y if isinstance(y, Tensor) else tensor(y, device=x.device))

    return of


def _offer(
    kind: Callable[..., Any], short: str, plain: Callable[..., Any], written: Callable[..., Any]
) -> None:
    for name, method, inplace in ((f"_foreach_{short}", plain, False), (f"_foreach_{short}_", written, True)):
        result = globals()[name] = kind(name, method, inplace)
        result.__name__ = result.__qualname__ = name
        result.__module__ = "tenon"
        result.__doc__ = f"``{name.removeprefix('_foreach_')}`` of every tensor of a list" + (
            "; the list itself." if inplace else ", as a tuple."
        )
        __all__.append(name)


_METHODS: Any = Tensor  # its methods are derived from ops, which type checkers do not see
for _names, _kind in ((_ALONE, _alone), (_WITH, _with), ("addcmul addcdiv", _pointwise), ("lerp", _lerp)):
    for _short in _names.split():
        _offer(_kind, _short, getattr(Tensor, _short), getattr(Tensor, f"{_short}_"))
_offer(_with, "maximum", _extreme(_METHODS.maximum), _METHODS.clamp_min_)
_offer(_with, "minimum", _extreme(_METHODS.minimum), _METHODS.clamp_max_)
__all__ += [f"_foreach_{short}" for short in ("norm", "max", "clone", "mm", "copy_", "zero_")]
