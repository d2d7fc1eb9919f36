"""The registry of ops by name, with callbacks for every op that is registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tenon.errors import ArgumentError

if TYPE_CHECKING:
    from tenon.engine.op import Op


class OpTable:
    """All ops as attributes: ``table.add``. ``table[name]`` finds one by its string."""

    def __init__(self) -> None:
        self.by_name: dict[str, Op] = {}
        self._visitors: list[Callable[[Op], None]] = []
        #: Called with a name that no op has, before that is an error: it may define the op.
        self.define: Callable[[str], None] = _define_nothing

    def register(self, op: Op) -> None:
        """Add ``op`` under its name; a second op of that name is an error."""
        if op.name in self.by_name:
            raise ArgumentError(
                f"op {op.name!r} is defined twice: by {type(self.by_name[op.name]).__module__} "
                f"and {type(op).__module__}. Rename one."
            )
        self.by_name[op.name] = op
        setattr(self, op.name, op)
        for visit in self._visitors:
            visit(op)

    def for_each(self, visit: Callable[[Op], None]) -> None:
        """Call ``visit`` with every op: those registered now, and later ones when they are registered."""
        self._visitors.append(visit)
        for op in list(self.by_name.values()):
            visit(op)

    def __getitem__(self, name: str) -> Op:
        op = self.by_name.get(name)
        if op is None:
            self.define(name)
            op = self.by_name[name]
        return op

    def __iter__(self) -> Iterator[Op]:
        return iter(self.by_name.values())

    def __getattr__(self, name: str) -> Any:  # an Op; callers know the class
        if not name.startswith("_"):
            self.define(name)
            if name in self.by_name:
                return self.by_name[name]
        raise AttributeError(f"no op named {name!r}; see tenon.ops for the list.")


def _define_nothing(name: str) -> None:
    """Define nothing: the default of ``OpTable.define``."""


table = OpTable()
