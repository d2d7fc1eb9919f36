"""``Family``: the base of the classes that Tensor's methods are written in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    #: ``self`` of a family's methods is a Tensor to type checkers, with the methods of all families.
    from tenon.tensors.tensor import Tensor as Family
else:
    Family = object

__all__ = ["Family"]
