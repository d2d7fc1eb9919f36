"""PyTorch's path ``torch._vmap_internals``: its first ``vmap``, which gradient checks still name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenon.errors import ArgumentError
from tenon.func.vmap import vmap as _current

__all__ = ["_vmap", "vmap"]


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """As ``func.vmap``, where nothing may be random."""
    mapped = _current(func, in_dims, out_dims)

    @functools.wraps(func)
    def called(*args: Any) -> Any:
        try:
            return mapped(*args)
        except ArgumentError as error:
            if "random operation" not in str(error):
                raise
            raise ArgumentError(
                "vmap: We do not yet support calling random operations inside of vmap. Please perform random"
                " operations outside of vmap as a workaround, or use func.vmap(randomness=...)."
            ) from error

    return called


_vmap = vmap
