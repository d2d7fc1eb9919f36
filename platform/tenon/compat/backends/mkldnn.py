"""torch's ``torch.backends.mkldnn``: tensors in a layout of oneDNN's own, which are not to be had here.

The CPU backend calls oneDNN with ordinary tensors where that is quicker; ``tenon doctor`` says whether it was
found. That is no matter of results, and ``flags`` does not change it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["flags", "is_available"]

enabled: bool = True
deterministic: bool = False
allow_tf32: bool = True


def is_available() -> bool:
    """False: there is no ``Tensor.to_mkldnn``."""
    return False


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True) -> Iterator[None]:
    """Set what scripts ask for inside the block; kept, and without effect."""
    given = {"enabled": enabled, "deterministic": deterministic, "allow_tf32": allow_tf32}
    before = {name: globals()[name] for name in given}
    globals().update(given)
    try:
        yield
    finally:
        globals().update(before)
