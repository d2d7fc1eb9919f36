"""The older order of arguments of ``addcmul`` and ``addcdiv``: ``x.addcmul(value, a, b)``."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from tenon.engine.value import Value
from tenon.tensors.alerts import warn_once

Method = TypeVar("Method", bound=Any)


def with_value_first(method: Method) -> Method:
    """``method``, which takes ``value`` by name, and with a warning as a number before both tensors."""
    name = method.__name__

    @functools.wraps(method)
    def either(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 3 or isinstance(args[0], Value) or "value" in kwargs:
            return method(self, *args, **kwargs)
        warn_once(
            f"This overload of {name} is deprecated: {name}(input, value, tensor1, tensor2). Write"
            f" {name}(input, tensor1, tensor2, value=value)."
        )
        return method(self, *args[1:], value=args[0])

    return either  # type: ignore[return-value]
