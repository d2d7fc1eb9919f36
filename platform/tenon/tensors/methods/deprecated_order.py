"""The deprecated argument order of ``addcmul`` and ``addcdiv``: ``x.addcmul(value, a, b)``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tenon.engine.value import Value
from tenon.tensors.alerts import warn_once

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

Method = TypeVar("Method", bound=Callable[..., "Tensor"])


def with_value_first(method: Method) -> Method:
    """Decorate ``method`` to also accept ``value`` as a first positional argument, with a warning."""
    name = method.__name__

    @functools.wraps(method)
    def either(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # as ``method`` takes them
        if len(args) != 3 or isinstance(args[0], Value) or "value" in kwargs:
            return method(self, *args, **kwargs)
        warn_once(
            f"This overload of {name} is deprecated: {name}(input, value, tensor1, tensor2). Write"
            f" {name}(input, tensor1, tensor2, value=value)."
        )
        return method(self, *args[1:], value=args[0])

    return either  # type: ignore[return-value]
