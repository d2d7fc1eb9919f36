"""Copying variants of view functions: ``permute_copy(x, dims)`` is a copy of ``x.permute(dims)``.

``Op.copying_form`` states for an op that PyTorch has one; the methods listed here are not ops.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from tenon.engine.op import table
from tenon.engine.operands import wrong_type
from tenon.engine.value import Value
from tenon.functions.creation import view_as_complex, view_as_real
from tenon.functions.derived import write_into
from tenon.kernels.shapes import normalize_axis
from tenon.tensors.tensor import Tensor

#: A function or method that returns a view of its first argument, or a tuple of views.
View: TypeAlias = Callable[..., Any]


def _alias(input: Tensor) -> Tensor:
    return input.view_as(input)


def _slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    return input[(slice(None),) * normalize_axis(dim, input.ndim) + (slice(start, end, step),)]


def _copied(view: Tensor, x: Tensor) -> Tensor:
    """Copy ``x``, which has the elements of ``view``, with PyTorch's name of the gradient node."""
    result = x.clone()
    if result._node is not None and view._node is not None:
        result._node.title = f"{view._node.name()}_copy"
    return result


def _copying(name: str, view: View) -> View:
    """Make the function ``<name>_copy`` of ``view``."""

    def function(input: Tensor, *args: object, out: Any = None, **kwargs: object) -> Any:  # as ``view``
        if not isinstance(input, Value):
            raise wrong_type(f"{name}_copy", "input", 1, input)
        result = view(input, *args, **kwargs)
        if out is not None:
            return write_into(out, result)
        if isinstance(result, tuple):
            return tuple(_copied(part, part.contiguous()) for part in result)
        return _copied(result, result.contiguous() if 0 in result.stride() else result)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__module__ = "tenon"
    function.__doc__ = f"Return a copy of the result of ``{name}``: {inspect.getdoc(view) or ''}"
    return function


#: Views that are functions, not methods of their op's name.
_FUNCTIONS: dict[str, View] = {
    view.__name__.lstrip("_"): view for view in (_alias, _slice, view_as_complex, view_as_real)
}
#: Methods that call the ops of other views.
_METHODS = ("detach", "select", "split_with_sizes", "t", "unfold")
_NAMES = dict.fromkeys((*(op.name for op in table if op.copying_form), *_METHODS, *_FUNCTIONS))

__all__ = []
for _name in _NAMES:
    globals()[f"{_name}_copy"] = _copying(_name, _FUNCTIONS.get(_name) or getattr(Tensor, _name))
    __all__.append(f"{_name}_copy")
