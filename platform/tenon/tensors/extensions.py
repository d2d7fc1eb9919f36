"""``EXTENSIONS``: callbacks that higher layers register for Tensor's methods when they are imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


class Extensions:
    """One field per callback."""

    __slots__ = ("array_stand_in", "intercept_class", "tangent_of")

    #: ``tangent_of(tensor)``: a dual tensor's tangent, else None; ``autograd.forward_ad`` sets it.
    tangent_of: Callable[[Tensor], Tensor | None]
    #: ``intercept_class(cls)``: call the ``__torch_dispatch__`` of ``cls`` from now on.
    intercept_class: Callable[[type], None]
    #: The class of ``raw`` in tensors without an array of their own (lazy tensors); None if there are none.
    array_stand_in: type | None

    def __init__(self) -> None:
        self.array_stand_in = None
        self.tangent_of = lambda tensor: None


EXTENSIONS = Extensions()
