"""PyTorch's assertions and ``sym_*`` functions; numbers are never symbolic here."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable
from typing import SupportsFloat, SupportsInt, TypeAlias, TypeVar

from tenon.compat.overriding import handle_torch_function, has_torch_function
from tenon.tensors.creation.create import tensor
from tenon.tensors.tensor import Tensor

__all__ = [
    "_assert",
    "_assert_async",
    "_check",
    "_check_index",
    "_check_is_size",
    "_check_not_implemented",
    "_check_tensor_all",
    "_check_tensor_all_with",
    "_check_type",
    "_check_value",
    "_check_with",
    "_shape_as_tensor",
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sqrt",
    "sym_sum",
]

T = TypeVar("T")
#: Returns the message of the error, when it is raised; None for a general one.
Message: TypeAlias = Callable[[], object] | None


def _assert(condition: object, message: object) -> None:
    """Raise AssertionError unless ``condition``."""
    if has_torch_function((condition,)):
        handle_torch_function(_assert, (condition,), condition, message)
    elif not condition:
        raise AssertionError(message)


def _assert_async(condition: Tensor, assert_msg: str | None = None) -> None:
    """Raise RuntimeError unless the one value of ``condition`` is true; waits for a GPU."""
    if not condition:
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _check_with(error_type: type[Exception], cond: bool, message: Message) -> None:
    """Raise ``error_type(message())`` unless ``cond``."""
    if not isinstance(cond, builtins.bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False. Pass message= to state the reason.")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _check(cond: bool, message: Message = None) -> None:
    """Raise RuntimeError unless ``cond``."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: bool, message: Message = None) -> None:
    """Raise IndexError unless ``cond``."""
    _check_with(IndexError, cond, message)


def _check_value(cond: bool, message: Message = None) -> None:
    """Raise ValueError unless ``cond``."""
    _check_with(ValueError, cond, message)


def _check_type(cond: bool, message: Message = None) -> None:
    """Raise TypeError unless ``cond``."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: bool, message: Message = None) -> None:
    """Raise NotImplementedError unless ``cond``."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """Raise RuntimeError unless ``0 <= i``, and ``i <= max`` if given."""
    _check(i >= 0, message)
    _check(max is None or i <= max, message)


def _check_tensor_all_with(error_type: type[Exception], cond: Tensor, message: Message = None) -> None:
    """Raise ``error_type(message())`` unless all elements of ``cond``, a tensor of bool, are true."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if str(cond.dtype) != "torch.bool":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, builtins.bool(cond.all()), message)


def _check_tensor_all(cond: Tensor, message: Message = None) -> None:
    """Raise RuntimeError unless all elements of ``cond`` are true."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _shape_as_tensor(input: Tensor) -> Tensor:
    """Return the sizes of ``input`` as a vector of int64."""
    return tensor(list(input.shape))


def sym_int(a: SupportsInt) -> int:
    """Return ``int(a)`` (torch.sym_int)."""
    return int(a)


def sym_float(a: SupportsFloat) -> float:
    """Return ``float(a)`` (torch.sym_float)."""
    return float(a)


def sym_not(a: object) -> bool:
    """Return ``not a`` (torch.sym_not)."""
    return not a


def sym_max(a: float, b: float) -> float:
    """Return the larger number, as a float if one of both is a float (torch.sym_max)."""
    return builtins.float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a: float, b: float) -> float:
    """Return the smaller number, as a float if one of both is a float (torch.sym_min)."""
    return builtins.float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_ite(b: bool, t: T, f: T) -> T:
    """Return ``t`` if ``b`` is true, else ``f`` (torch.sym_ite)."""
    return t if b else f


def sym_sqrt(a: float) -> float:
    """Return the square root of a number (torch.sym_sqrt)."""
    return math.sqrt(a)


def sym_sum(args: Iterable[float]) -> float:
    """Return the sum of the numbers (torch.sym_sum)."""
    return sum(args)
