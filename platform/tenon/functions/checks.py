"""PyTorch's assertions and ``sym_*`` functions; numbers are never symbolic here."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable
from typing import Any

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

Message = Callable[[], Any] | None


def _assert(condition: Any, message: Any) -> None:
    """An ``assert`` statement as a function."""
    if not condition:
        raise AssertionError(message)


def _assert_async(condition: Tensor, assert_msg: str | None = None) -> None:
    """RuntimeError unless the one value of ``condition`` is true; on a GPU it is waited for."""
    if not condition:
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _check_with(error_type: type[Exception], cond: bool, message: Message) -> None:
    """``error_type(message())`` unless ``cond``."""
    if not isinstance(cond, builtins.bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False. Say why in the argument message.")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _check(cond: bool, message: Message = None) -> None:
    """RuntimeError unless ``cond``."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: bool, message: Message = None) -> None:
    """IndexError unless ``cond``."""
    _check_with(IndexError, cond, message)


def _check_value(cond: bool, message: Message = None) -> None:
    """ValueError unless ``cond``."""
    _check_with(ValueError, cond, message)


def _check_type(cond: bool, message: Message = None) -> None:
    """TypeError unless ``cond``."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: bool, message: Message = None) -> None:
    """NotImplementedError unless ``cond``."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """RuntimeError unless ``0 <= i``, and ``i <= max`` if given."""
    _check(i >= 0, message)
    _check(max is None or i <= max, message)


def _check_tensor_all_with(error_type: type[Exception], cond: Tensor, message: Message = None) -> None:
    """``error_type(message())`` unless all of ``cond``, a tensor of bool, is true."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if str(cond.dtype) != "torch.bool":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, builtins.bool(cond.all()), message)


def _check_tensor_all(cond: Tensor, message: Message = None) -> None:
    """RuntimeError unless all of ``cond`` is true."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes of ``input`` as a tensor of int64."""
    made: Tensor = tensor(list(input.shape))
    return made


def sym_int(a: Any) -> int:
    """``int(a)``."""
    return int(a)


def sym_float(a: Any) -> float:
    """``float(a)``."""
    return float(a)


def sym_not(a: Any) -> bool:
    """``not a``."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger one, of the wider of the two types."""
    return builtins.float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller one, of the wider of the two types."""
    return builtins.float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """``t`` if ``b`` else ``f``."""
    return t if b else f


def sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


def sym_sum(args: Iterable[Any]) -> Any:
    """The sum."""
    return sum(args)
