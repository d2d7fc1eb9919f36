"""Where a model is split: ``pipe_split()`` in its code, or ``SplitPoint`` at its modules."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from enum import Enum

from tenon.errors import ArgumentError
from tenon.nn.containers import ModuleList, Sequential
from tenon.nn.module import Module

#: Called by ``pipe_split`` while a model is split.
_listener: contextvars.ContextVar[Callable[[], None] | None] = contextvars.ContextVar(
    "listener of pipe_split", default=None
)


class SplitPoint(Enum):
    """Whether a stage begins before a module is called (``BEGINNING``) or after it (``END``).

    Source: torch.distributed.pipelining.SplitPoint.
    """

    BEGINNING = 1
    END = 2


def pipe_split() -> None:
    """Begin the next stage here: call it in ``forward``; it does nothing but while ``pipeline`` splits a
    model.

    Source: torch.distributed.pipelining.pipe_split.
    """
    listener = _listener.get()
    if listener is not None:
        listener()


@contextlib.contextmanager
def listening(listener: Callable[[], None]) -> Iterator[None]:
    """Call ``listener`` in each ``pipe_split()`` of the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def check_spec(module: Module, spec: dict[str, SplitPoint]) -> None:
    """Raise ``ArgumentError`` unless ``spec`` has split points at modules in ``module``."""
    paths = dict(module.named_modules())
    for path, point in spec.items():
        if path not in paths or not path:
            raise ArgumentError(
                f"split_spec: Specified target {path!r} referenced nonexistent module of"
                f" {type(module).__name__}. Pass a name of named_modules(), such as"
                f" {next((name for name in paths if name), None)!r}."
            )
        if not isinstance(point, SplitPoint):
            raise ArgumentError(
                f"split_spec[{path!r}] is {point!r}: Unknown split point type. Pass SplitPoint.BEGINNING or"
                " SplitPoint.END."
            )


def even_split(module: Module, num_stages: int) -> dict[str, SplitPoint]:
    """Split points that divide ``module`` into ``num_stages`` parts of similar numbers of parameters.

    Stages begin at members of the module's lists, ``Sequential`` and ``ModuleList``; what is called before
    the first one belongs to the first stage, what comes after the last to the last. ArgumentError if there
    are fewer members than stages.
    """
    members = list(members_of_lists(module))
    if not 1 <= num_stages <= max(1, len(members)):
        raise ArgumentError(
            f"pipeline(num_stages={num_stages}): {type(module).__name__} has {len(members)} members of"
            " Sequential or ModuleList at which stages could begin. Pass a number from 1 to that, or"
            " split_spec."
        )
    sizes = [sum(p.numel() for p in member.parameters()) for _, member in members]
    rest = sum(p.numel() for p in module.parameters()) - sum(sizes)
    if sizes:
        sizes[0] += max(0, rest // 2)
        sizes[-1] += max(0, rest - rest // 2)
    starts = _smallest_largest(sizes, num_stages)
    return {members[start][0]: SplitPoint.BEGINNING for start in starts[1:]}


def members_of_lists(module: Module, prefix: str = "") -> Iterator[tuple[str, Module]]:
    """The members of the outermost lists in ``module``, ``Sequential`` or ``ModuleList``, and their paths."""
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if isinstance(module, Sequential | ModuleList):
            yield path, child
        else:
            yield from members_of_lists(child, f"{path}.")


def _smallest_largest(sizes: list[int], parts: int) -> list[int]:
    """Where ``parts`` consecutive parts of ``sizes`` begin, whose largest sum is as small as possible."""
    best: dict[tuple[int, int], tuple[int, list[int]]] = {(0, 0): (0, [])}
    for part in range(1, parts + 1):
        for end in range(part, len(sizes) + 1):
            choices = [
                (max(best[part - 1, start][0], sum(sizes[start:end])), [*best[part - 1, start][1], start])
                for start in range(part - 1, end)
                if (part - 1, start) in best
            ]
            best[part, end] = min(choices, key=lambda choice: choice[0])
    return best[parts, len(sizes)][1] if sizes else [0]
