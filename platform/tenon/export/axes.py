"""Axes of arguments whose sizes may change: each size is a symbol, or an expression of symbols, as
``2*batch``.

``Axes`` maps the name of an argument to its axes, and these to their sizes. A symbol that is not itself
the size of an axis is solved for from a linear expression: ``2*batch + 1`` = 9 means that ``batch`` is 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tenon.errors import ArgumentError, BundleError, ShapeError
from tenon.export.sizes import Expression, is_name, linear, names_in, parse

if TYPE_CHECKING:
    from tenon.export.captured import CapturedGraph

#: Name of an argument -> axis -> its size.
Axes: TypeAlias = Mapping[str, Mapping[int, Expression]]
#: Name of an argument -> its shape.
Shapes: TypeAlias = Mapping[str, Sequence[int]]


def declared_axes(dynamic: Mapping[str, Mapping[int, str]], shapes: Shapes) -> Axes:
    """Return ``dynamic=`` of ``capture`` with its strings parsed as expressions; ArgumentError unless it
    fits."""
    axes: dict[str, dict[int, Expression]] = {}
    for name, sizes in dynamic.items():
        if name not in shapes:
            raise ArgumentError(
                f"dynamic= names {name!r}; the arguments that are tensors are {', '.join(shapes)}."
            )
        for axis, text in sizes.items():
            if not isinstance(axis, int) or not 0 <= axis < len(shapes[name]):
                raise ArgumentError(
                    f"dynamic= names axis {axis!r} of {name!r}, whose shape is {list(shapes[name])}."
                )
            axes.setdefault(name, {})[axis] = _read(text, f"axis {axis} of {name!r}")
    known = known_symbols(axes)
    unknown = [name for name in symbol_names(axes) if name not in known]
    if unknown:
        raise ArgumentError(
            f"dynamic= has no axis from which {unknown[0]!r} follows: name one {unknown[0]!r}, or a multiple "
            f"of it and a number, such as '2*{unknown[0]} + 1'."
        )
    return axes


def _read(text: str, place: str) -> Expression:
    problem = "give a name, or an expression of names such as '2*batch' or 'batch + 1'"
    if isinstance(text, str):
        try:
            if is_name(text):
                return Expression("symbol", (text,))
            size = parse(text, names_in(text))
            if isinstance(size, Expression) and size.symbols:
                return size
        except (SyntaxError, BundleError, ValueError, RecursionError, MemoryError) as error:
            problem = str(error)
    raise ArgumentError(f"dynamic= names {place} {text!r}, which is not a name: {problem}.")


def symbol_names(axes: Axes) -> list[str]:
    """Return the names of the symbols in ``axes``, in order."""
    return list(dict.fromkeys(name for _, _, size in _each(axes) for name in sorted(size.symbols)))


def known_symbols(axes: Axes) -> set[str]:
    """Return the symbols whose size some axis determines."""
    return {form[0] for _, _, size in _each(axes) if (form := linear(size)) is not None}


def lone_symbols(axes: Axes) -> set[str]:
    """Return the symbols that are not themselves the size of an axis."""
    return {*symbol_names(axes)} - {str(size) for _, _, size in _each(axes) if size.function == "symbol"}


def axes_of(graph: CapturedGraph) -> Axes:
    """Return the axes of the arguments of ``graph`` whose sizes may change."""
    axes: dict[str, dict[int, Expression]] = {}
    for node in graph.arguments if graph.symbols else ():
        for path, size in graph.symbolic.get(node, {}).items():
            axes.setdefault(node.label, {})[path[2]] = size
    return axes


def named_axes(axes: Axes) -> dict[str, dict[int, str]]:
    """Return the axes whose size is a symbol itself, by its name."""
    named: dict[str, dict[int, str]] = {}
    for argument, axis, size in _each(axes):
        if size.function == "symbol":
            named.setdefault(argument, {})[axis] = str(size)
    return named


def _each(axes: Axes) -> Iterator[tuple[str, int, Expression]]:
    for argument, sizes in axes.items():
        for axis, size in sizes.items():
            yield argument, axis, size


def symbol_sizes(axes: Axes, shapes: Shapes) -> tuple[dict[str, int], dict[str, str]]:
    """Return the sizes of the symbols for arguments of these shapes, and the place where each was read, by
    name.

    ShapeError if the sizes of two axes contradict each other.
    """
    sizes: dict[str, int] = {}
    places: dict[str, str] = {}
    known = sorted(_each(axes), key=lambda each: each[2].function != "symbol")
    for argument, axis, size in known:
        form = linear(size)
        if form is None or form[0] in sizes:
            continue
        name, factor, shift = form
        given, place = shapes[argument][axis], f"dimension {axis} of argument {argument!r}"
        sizes[name], rest = divmod(given - shift, factor)
        if rest or sizes[name] < 0:
            raise ShapeError(f"{place} is {given}, which no value of {name} gives for {size}.")
        places[name] = place
    for argument, axis, size in known:
        given, expected = shapes[argument][axis], size.at(sizes)
        if given == expected:
            continue
        place = f"dimension {axis} of argument {argument!r}"
        if size.function == "symbol":
            raise ShapeError(
                f"{place} is {given}, but {size} = {expected} in {places[str(size)]}. Both have to be the "
                "same."
            )
        read = " and ".join(f"{name} = {sizes[name]} in {places[name]}" for name in sorted(size.symbols))
        raise ShapeError(f"{place} is {given}; it has to be {size} = {expected}, as {read}.")
    return sizes, places
