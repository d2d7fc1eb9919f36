"""``EXTENSIONS``: callbacks that higher layers register for Tensor's methods when they are imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Extensions:
    """One field per callback."""

    __slots__ = ("array_stand_in", "intercept_class", "tangent_of")

    #: ``tangent_of(tensor)``: a dual tensor's tangent, else None; ``autograd.forward_ad`` sets it.
    tangent_of: Callable[[Any], Any]
    #: ``intercept_class(cls)``: the ``__torch_dispatch__`` of ``cls`` is to be called from now on.
    intercept_class: Callable[[type], None]
    #: The class of what lies in place of an array in tensors that stand for others; None before any do.
    array_stand_in: type | None

    def __init__(self) -> None:
        self.array_stand_in = None
        self.tangent_of = lambda tensor: None


EXTENSIONS = Extensions()
