"""torch's ``torch.overrides``: what is said of types that take over functions. None do here.

``__torch_function__`` is not called: subclasses of Tensor and classes that only look like one are not asked
before a function runs, so ``has_torch_function`` is False of everything, and code that forwards to such a
class goes its ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tenon.core.tensor import Tensor
from tenon.errors import UnsupportedError

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """False: no type takes over a function."""
    return False


def has_torch_function_unary(argument: Any) -> bool:
    """False, as ``has_torch_function``."""
    return False


def has_torch_function_variadic(*arguments: Any) -> bool:
    """False, as ``has_torch_function``."""
    return False


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Refused: there is nothing that could take ``public_api`` over."""
    raise UnsupportedError(
        f"handle_torch_function({getattr(public_api, '__name__', public_api)}): __torch_function__ is not"
        " called here. Ask has_torch_function first, which is False."
    )


def is_tensor_like(inp: Any) -> bool:
    """Whether ``inp`` is a tensor, or says that it is one by a ``__torch_function__``."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether ``func`` is one of Tensor's methods, or the getter of one of its properties."""
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(Tensor, name, None) is func


class TorchFunctionMode:
    """A mode that would see every function; entering it is refused, as functions do not ask modes."""

    def __enter__(self) -> Any:
        raise UnsupportedError(
            f"{type(self).__name__}: functions do not call modes here. To see every op, use tenon.profiler,"
            " or an interceptor of tenon.extend."
        )

    def __exit__(self, *exc: object) -> None:
        """Nothing was entered."""


BaseTorchFunctionMode = TorchFunctionMode
