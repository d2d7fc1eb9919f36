"""In-place methods ``name_`` made of methods ``name``: the result is written into the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenon.tensors.inplace import inplace
from tenon.tensors.wrong_arguments import FAILURES, refuse_wrong

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def through_method(name: str) -> Callable[..., Tensor]:
    """Make the method ``name_``, which writes the result of the method ``name`` into ``self``."""

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        out_of_place = getattr(type(self), name)
        try:
            return inplace(out_of_place, self, *args, **kwargs)
        except FAILURES:
            refuse_wrong(out_of_place, (self, *args), kwargs, f"{name}_", first=0)
            raise

    return as_inplace_form(method, name)


def as_inplace_form(method: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """Name ``method`` as the in-place form ``name_`` and return it."""
    method.__name__, method.__qualname__ = f"{name}_", f"Tensor.{name}_"
    method.__doc__ = f"In-place form of ``{name}``."
    return method
