"""PyTorch's ``torch.backends.mkldnn``: tensors in layouts of oneDNN, which are not supported.

The CPU backend calls oneDNN with ordinary tensors where that is faster; ``tenon doctor`` shows whether it is
available. ``flags`` does not affect this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["flags", "is_available"]

enabled: bool = True
deterministic: bool = False
allow_tf32: bool = True


def is_available() -> bool:
    """Return False: there is no ``Tensor.to_mkldnn``."""
    return False


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True) -> Iterator[None]:
    """Set the flags within a block; they have no effect."""
    settings = {"enabled": enabled, "deterministic": deterministic, "allow_tf32": allow_tf32}
    before = {name: globals()[name] for name in settings}
    globals().update(settings)
    try:
        yield
    finally:
        globals().update(before)
