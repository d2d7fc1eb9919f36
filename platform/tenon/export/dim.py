"""PyTorch's ``torch.export.Dim``, and ``dynamic_shapes`` as sizes of ``capture``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from tenon.engine.types import Nested
from tenon.errors import ArgumentError
from tenon.export.naming import argument_names
from tenon.tensors.pytree import tree_flatten
from tenon.tensors.tensor import Tensor

#: The axes of one argument whose size may change: by axis, or one entry for each.
Axes: TypeAlias = Mapping[int, Any] | Sequence[Any]  # of Dim, int, None, or a hint


class _Hint:
    """``Dim.AUTO``, ``Dim.DYNAMIC`` or ``Dim.STATIC``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Dim.{self.name}"


class Dim:
    """A size that may change, from ``min`` to ``max``; the same name means the same size.

    >>> Dim("batch", max=64)
    Dim('batch', max=64)
    """

    AUTO: ClassVar[_Hint] = _Hint("AUTO")
    DYNAMIC: ClassVar[_Hint] = _Hint("DYNAMIC")
    STATIC: ClassVar[_Hint] = _Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier():
            raise ArgumentError(f"the name of a Dim, {name!r}, is no identifier.")
        self.__name__, self.min, self.max = name, 0 if min is None else min, max
        if max is not None and max < self.min:
            raise ArgumentError(f"Dim({name!r}): min = {min} is more than max = {max}.")

    def __repr__(self) -> str:
        parts = [repr(self.__name__)]
        parts += [f"min={self.min}"] if self.min else []
        parts += [f"max={self.max}"] if self.max is not None else []
        return f"Dim({', '.join(parts)})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Return a ``Dim`` for each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


def dynamic_sizes(
    function: Callable[..., Nested], args: tuple[Nested, ...], kwargs: dict[str, Nested], shapes: Nested
) -> tuple[dict[str, dict[int, str]], dict[str, tuple[int, int | None]]]:
    """Return ``dynamic_shapes`` as ``dynamic=`` of ``capture``, and the ranges of the symbols by name.

    ``shapes`` has the structure of the arguments, or is a dict by the names of the parameters.
    """
    dynamic: dict[str, dict[int, str]] = {}
    ranges: dict[str, tuple[int, int | None]] = {}
    if shapes is None:
        return dynamic, ranges
    names = argument_names(function, args, kwargs)
    leaves, _ = tree_flatten((args, kwargs))
    found = dict(_axes(shapes, args, kwargs, names))
    unknown = set(found) - set(names)
    if unknown:
        raise ArgumentError(f"dynamic_shapes names {min(unknown)!r}; the arguments are {', '.join(names)}.")
    for name, leaf in zip(names, leaves, strict=True):
        axes = found.get(name)
        if axes is None:
            continue
        if not isinstance(leaf, Tensor):
            raise ArgumentError(f"dynamic_shapes gives sizes of {name!r}, which is no tensor.")
        pairs = axes.items() if isinstance(axes, Mapping) else enumerate(axes)
        for axis, dim in pairs:
            if dim is None or dim is Dim.STATIC or isinstance(dim, int):
                continue
            axis %= max(leaf.ndim, 1)
            if isinstance(dim, _Hint):
                dim = Dim(f"{name.replace('.', '_')}_{axis}")
            dynamic.setdefault(name, {})[axis] = dim.__name__
            ranges[dim.__name__] = (dim.min, dim.max)
    return dynamic, ranges


def _axes(
    shapes: Nested, args: tuple[Nested, ...], kwargs: dict[str, Nested], names: Sequence[str]
) -> list[tuple[str, Axes]]:
    """Return the axes of each argument that has any, by its label."""
    first = [name.partition(".")[0] for name in names]
    bases = list(dict.fromkeys(first))
    pairs = shapes.items() if isinstance(shapes, Mapping) else zip(bases, shapes, strict=False)
    result: list[tuple[str, Axes]] = []
    for base, nested in pairs:
        result += _inside(str(base), nested)
    return result


def _inside(path: str, shapes: Nested) -> list[tuple[str, Axes]]:
    if shapes is None:
        return []
    if isinstance(shapes, Mapping):
        if all(isinstance(key, int) for key in shapes):
            return [(path, shapes)]
        return [each for key, value in shapes.items() for each in _inside(f"{path}.{key}", value)]
    if all(s is None or isinstance(s, Dim | _Hint | int) for s in shapes):
        return [(path, shapes)]
    return [each for i, value in enumerate(shapes) for each in _inside(f"{path}.{i}", value)]
