"""What Tensor's methods call but may not import, because it is built on Tensor: filled in when those modules
load.

An import statement inside a method costs 0.5 us a call; reading a slot costs 0.02.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Late:
    """One slot a function."""

    __slots__ = ("ask_of_ops", "backward", "inplace", "shell", "tangent_of")

    backward: Callable[..., None]
    inplace: Callable[..., Any]
    #: A dual tensor's tangent, else None: there is none before ``autograd.forward_ad`` is loaded.
    tangent_of: Callable[[Any], Any]
    #: Told of a class whose ``__torch_dispatch__`` is to be called from now on.
    ask_of_ops: Callable[[type], None]
    #: What lies where tensors have an array that only stand for others; None before there is such a tensor.
    shell: type | None

    def __init__(self) -> None:
        self.shell = None
        self.tangent_of = lambda tensor: None


LATE = Late()
