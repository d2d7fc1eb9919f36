"""PyTorch's path ``utils._python_dispatch``: modes under the ops, which are refused, and wrappers of tensors,
which there are none of."""

from __future__ import annotations

from typing import Any

from tenon.errors import UnsupportedError

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass"]


class TorchDispatchMode:
    """A mode that would see every op; entering it is refused, as ops do not call ``__torch_dispatch__``."""

    def __init__(self, _dispatch_key: Any = None) -> None:
        """Nothing to keep."""

    def __enter__(self) -> Any:
        raise UnsupportedError(
            f"{type(self).__name__}: ops do not call __torch_dispatch__ here. To see every op, use"
            " tenon.profiler, or an interceptor of tenon.extend."
        )

    def __exit__(self, *exc: object) -> None:
        """Nothing was entered."""


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """False: no subclass of Tensor wraps others."""
    return False
