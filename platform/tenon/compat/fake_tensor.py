"""PyTorch's module ``torch._subclasses.fake_tensor``: classes that only serve ``isinstance``.

A fake tensor reports a device without having memory there. Use tensors on the device ``meta`` here, which
have shape and dtype without memory.
"""

from __future__ import annotations

from typing import NoReturn

from tenon.errors import UnsupportedError
from tenon.tensors.tensor import Tensor

__all__ = ["FakeTensor", "FakeTensorConverter", "FakeTensorMode"]


def _refuse(kind: type) -> NoReturn:
    raise UnsupportedError(
        f"{kind.__name__}: fake tensors are not supported. Create tensors on the device 'meta' "
        "(`with torch.device('meta'):`), which also have shapes and no memory."
    )


class FakeTensor(Tensor):
    """No tensor is an instance."""

    def __new__(cls, *args: object, **kwargs: object) -> FakeTensor:
        """Raise UnsupportedError: use the device ``meta``."""
        _refuse(cls)


class FakeTensorMode:
    """Raises UnsupportedError: use the device ``meta``."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        _refuse(type(self))


class FakeTensorConverter:
    """Raises UnsupportedError: use the device ``meta``."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        _refuse(type(self))


def is_fake(x: object) -> bool:
    """Return False: fake tensors are not supported."""
    return False
