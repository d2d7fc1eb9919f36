"""PyTorch's module ``torch.utils._python_dispatch``: modes that handle every op, and wrapper tensors."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Self

from tenon.compat.torch_dispatch import Called, is_wrapper
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, Op
from tenon.engine.types import Attrs, Operand, OpResult
from tenon.engine.value import Value

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """Base of modes that handle every op, also those of backward passes, within a ``with`` block.

    A subclass defines ``__torch_dispatch__(self, func, types, args=(), kwargs=None)``, which returns the
    result of the op; ``func(*args, **kwargs)`` computes it. The mode is disabled inside of the handler.

    The arguments are those of tenon's op: tensors by position, everything else by keyword. ``func`` has
    PyTorch's name and equals PyTorch's operator, ``func == torch.ops.aten.mul.Tensor``. The handler runs
    before ops are recorded for autograd, so what it computes has its own history.

    >>> import tenon
    >>> class Names(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> with Names():
    ...     y = tenon.ones(2) * 3
    aten.mul.default
    """

    def __init__(self, _dispatch_key: object = None) -> None:
        self._inside = threading.local()

    def __torch_dispatch__(
        self,
        func: Called,
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:  # what ``func`` returns
        """Return the result of one op."""
        raise NotImplementedError(f"{type(self).__name__} must define __torch_dispatch__.")

    def run(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> OpResult:
        """Pass an op to the handler, or on if it comes from the handler itself."""
        inside = self.__dict__.setdefault(
            "_inside", threading.local()
        )  # derived classes may not call __init__
        if getattr(inside, "handler", False):
            return SLOT.below(self)(op, args, attrs)
        if isinstance(op, Composite) and not op.differentiable:
            return SLOT.parts(op, args, attrs)
        types = tuple(dict.fromkeys(type(a) for a in args if isinstance(a, Value) and is_wrapper(a)))
        inside.handler = True
        try:
            return self.__torch_dispatch__(Called(op, args, attrs), types, args, dict(attrs))
        finally:
            inside.handler = False

    def __enter__(self) -> Self:
        SLOT.push(self)
        return self

    def __exit__(self, *exc: object) -> None:
        SLOT.pop(self)


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether ``t`` is a wrapper tensor whose class defines ``__tensor_flatten__`` and
    ``__tensor_unflatten__``."""
    return bool(
        is_wrapper(t) and hasattr(type(t), "__tensor_flatten__") and hasattr(type(t), "__tensor_unflatten__")
    )
