"""Copying variants of view functions: ``permute_copy(x, dims)`` is a copy of ``x.permute(dims)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tenon.engine.aval import normalize_axis
from tenon.functions.derived import into
from tenon.functions.making import view_as_complex, view_as_real
from tenon.tensors.tensor import Tensor

_VIEWS = """
    as_strided detach diagonal expand permute select split split_with_sizes squeeze t transpose unbind unfold
    unsqueeze view
"""


def _alias(input: Tensor) -> Tensor:
    return input.view_as(input)


def _slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    return input[(slice(None),) * normalize_axis(dim, input.ndim) + (slice(start, end, step),)]


def _copied(view: Tensor, given: Tensor) -> Tensor:
    result = given.clone()
    if result._node is not None and view._node is not None:
        result._node.title = f"{view._node.name()}_copy"
    return result


def _copying(name: str, view: Callable[..., Any]) -> Callable[..., Any]:
    def function(input: Tensor, *args: int | Sequence[int], out: Tensor | None = None, **kwargs: Any) -> Any:
        shown = view(input, *args, **kwargs)
        if out is not None:
            return into(out, shown)
        if isinstance(shown, tuple):
            return tuple(_copied(part, part.contiguous()) for part in shown)
        return _copied(shown, shown.contiguous() if 0 in shown.stride() else shown)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__module__ = "tenon"
    function.__doc__ = f"As ``{name}``, but a copy: {inspect.getdoc(view) or ''}"
    return function


_FORMS: dict[str, Any] = {name: getattr(Tensor, name) for name in _VIEWS.split()}
_FORMS |= {"alias": _alias, "slice": _slice}
_FORMS |= {"view_as_complex": view_as_complex, "view_as_real": view_as_real}

__all__ = []
for _name, _view in _FORMS.items():
    globals()[f"{_name}_copy"] = _copying(_name, _view)
    __all__.append(f"{_name}_copy")
