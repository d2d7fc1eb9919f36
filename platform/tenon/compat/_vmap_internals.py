"""PyTorch's module ``torch._vmap_internals``: its former ``vmap``, which gradient checks still import."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tenon.engine.types import Nested
from tenon.errors import ArgumentError
from tenon.func.vmap import vmap as _current

__all__ = ["_vmap", "vmap"]


def vmap(func: Callable[..., Nested], in_dims: Nested = 0, out_dims: Nested = 0) -> Callable[..., Nested]:
    """Call ``func.vmap``; ArgumentError for random operations inside."""
    mapped = _current(func, in_dims, out_dims)

    @functools.wraps(func)
    def wrapper(*args: Nested) -> Nested:
        try:
            return mapped(*args)
        except ArgumentError as error:
            if "random operation" not in str(error):
                raise
            raise ArgumentError(
                "vmap: We do not yet support calling random operations inside of vmap. Please perform random"
                " operations outside of vmap as a workaround, or use func.vmap(randomness=...)."
            ) from error

    return wrapper


_vmap = vmap
