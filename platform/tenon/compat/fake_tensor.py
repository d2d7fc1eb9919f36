"""PyTorch's path ``torch._subclasses.fake_tensor``: names for ``isinstance``; none can be made.

A fake tensor says it lies on a device and has no memory there. What has shapes and no memory here says so
itself: tensors on the device ``meta``.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tenon.errors import UnsupportedError
from tenon.tensors.tensor import Tensor

__all__ = ["FakeTensor", "FakeTensorConverter", "FakeTensorMode"]


def _refuse(kind: type) -> NoReturn:
    raise UnsupportedError(
        f"{kind.__name__}: there are no fake tensors. Make tensors on the device 'meta' "
        "(`with torch.device('meta'):`), which have shapes and no memory too."
    )


class FakeTensor(Tensor):
    """No tensor is one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> FakeTensor:
        """Refused: make tensors on the device ``meta``."""
        _refuse(cls)


class FakeTensorMode:
    """Refused: use the device ``meta``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self))


class FakeTensorConverter:
    """Refused: use the device ``meta``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self))


def is_fake(x: object) -> bool:
    """False: nothing is."""
    return False
