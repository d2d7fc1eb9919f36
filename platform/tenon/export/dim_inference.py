"""From the axes that ``dynamic_shapes`` names to a graph with symbols.

``Dim.AUTO`` says that a size may change if the program allows it. That is determined by captures: first with
all such sizes free, then with equal ones tied, then one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tenon.errors import CaptureError
from tenon.export.captured import CapturedGraph
from tenon.export.dim import Axis, Dim
from tenon.export.sizes import affine

#: Captures with these symbols: argument -> axis -> name.
Capture: TypeAlias = Callable[[Mapping[str, Mapping[int, str]]], CapturedGraph]
#: Axes of one size.
Group: TypeAlias = Sequence[Axis]


def program_graph(capture: Capture, axes: Sequence[Axis]) -> CapturedGraph:
    """Capture with the sizes at ``axes`` free; CaptureError if the program needs a fixed one."""
    named: dict[str, list[Axis]] = {}
    for axis in axes:
        if isinstance(axis.dim, Dim):
            named.setdefault(axis.dim.__name__, []).append(axis)
    free = [axis for axis in axes if not isinstance(axis.dim, Dim)]
    graph = _named_graph(capture, named)
    if free:
        graph = _inferred(capture, list(named.values()), free, graph)
    for group in named.values():
        dim = group[0].dim
        assert isinstance(dim, Dim)
        root = dim.root
        if root.__name__ in graph.symbols:
            symbol = graph.symbols[root.__name__]
            graph.symbols[root.__name__] = symbol.bounded(max(root.min, symbol.least), root.max)
    return graph


def _dynamic(groups: Sequence[Group]) -> dict[str, dict[int, str]]:
    dynamic: dict[str, dict[int, str]] = {}
    for group in groups:
        for axis in group:
            dynamic.setdefault(axis.argument, {})[axis.axis] = group[0].symbol
    return dynamic


def _tried(capture: Capture, groups: Sequence[Group]) -> CapturedGraph | None:
    """Capture with one symbol for each group; None if the program needs fixed sizes, or equal ones."""
    try:
        return capture(_dynamic(groups))
    except CaptureError:
        return None


def _named_graph(capture: Capture, named: Mapping[str, Group]) -> CapturedGraph:
    """Capture with the sizes that have a name; CaptureError says which of them cannot change."""
    groups = list(named.values())
    try:
        return capture(_dynamic(groups))
    except CaptureError as error:
        if not groups:
            raise
        capture({})  # an error that has nothing to do with sizes
        bad = [group for group in groups if _tried(capture, [group]) is None]
        shown = ", ".join(group[0].symbol for group in bad or groups)
        raise CaptureError(
            f"Constraints violated ({shown})! {error}\nSuggested fixes:\n  "
            + "\n  ".join(_fixes(capture, bad or groups))
        ) from error


def _fixes(capture: Capture, groups: Sequence[Group]) -> list[str]:
    """Return what to write instead of sizes that cannot change as they please."""
    equal: dict[str, str] = {}
    roots: set[str] = set()
    plain = [g for g in groups if not (isinstance(g[0].dim, Dim) and g[0].dim.root is not g[0].dim)]
    for number, group in enumerate(plain):
        for other in plain[:number]:
            if other[0].symbol in equal:
                continue
            form = next((f for f in _forms(other, group) if _related(capture, other, group, f)), None)
            if form is not None:
                equal[group[0].symbol] = form
                roots.add(other[0].symbol)
                break
    fixed = {g[0].symbol: g[0].size for g in groups if g[0].symbol not in {*equal, *roots}}
    return [f"{name} = {value}" for name, value in {**equal, **fixed}.items()]


def _forms(root: Group, group: Group) -> Iterator[str]:
    """Yield the forms in which the size of ``group`` may follow from that of ``root``, simplest first."""
    name, base, size = root[0].symbol, root[0].size, group[0].size
    if base == size:
        yield name
        return
    if base and size % base == 0 and size > base:
        yield str(affine(name, size // base, 0))
    yield str(affine(name, 1, size - base))


def _related(capture: Capture, root: Group, group: Group, form: str) -> bool:
    """Whether a capture works in which the size of ``group`` is ``form``, and that of ``root`` changes."""
    dynamic = _dynamic([root])
    for axis in group:
        dynamic.setdefault(axis.argument, {})[axis.axis] = form
    try:
        capture(dynamic)
    except CaptureError:
        return False
    return True


def _inferred(
    capture: Capture, named: Sequence[Group], free: Sequence[Axis], graph: CapturedGraph
) -> CapturedGraph:
    """Capture with as many of the ``free`` axes as the program allows; ``graph`` has none of them."""
    alone: list[Group] = [[axis] for axis in free]
    tied = _by_size(free)
    for groups in (alone, tied):
        found = _tried(capture, [*named, *groups])
        if found is not None:
            return found
    able: list[Group] = [group for group in alone if _tried(capture, [*named, group]) is not None]
    rest = [axis for axis in free if [axis] not in able]
    able += [g for g in _by_size(rest) if len(g) > 1 and _tried(capture, [*named, g]) is not None]
    while able:
        found = _tried(capture, [*named, *able])
        if found is not None:
            graph = found
            break
        able.pop()
    kept = {id(axis) for group in able for axis in group}
    for axis in free:
        if axis.dim is Dim.DYNAMIC and id(axis) not in kept:
            raise CaptureError(
                f"Constraints violated ({axis})! You marked {axis} as dynamic but your code specialized it "
                f"to be a constant ({axis.size}). Replace it with either Dim.STATIC or Dim.AUTO."
            )
    return graph


def _by_size(axes: Sequence[Axis]) -> list[Group]:
    groups: dict[int, list[Axis]] = {}
    for axis in axes:
        groups.setdefault(axis.size, []).append(axis)
    return list(groups.values())
