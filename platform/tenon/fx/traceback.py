"""Notes that an interpreter passes on from the nodes that it runs to the nodes that are made meanwhile."""

from __future__ import annotations

import contextlib
import copy
import traceback as stacks
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tenon.fx.node import Node

__all__ = [
    "annotate",
    "annotate_fn",
    "current_meta",
    "format_stack",
    "get_current_meta",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "set_current_meta",
    "set_stack_trace",
]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])  # any function

#: The notes of the node that runs; new nodes get copies of them while they are preserved.
current_meta: dict[str, Any] = {}  # of any type
_preserved = False


def has_preserved_node_meta() -> bool:
    """Whether new nodes get the notes of the node that runs."""
    return _preserved


_should_preserve_node_meta = has_preserved_node_meta


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Give new nodes the notes of the node that an interpreter runs, within a block."""
    global _preserved
    before, notes = _preserved, current_meta.copy()
    _preserved = enable
    try:
        yield
    finally:
        _preserved = before
        current_meta.clear()
        current_meta.update(notes)


def set_stack_trace(stack: list[str]) -> None:
    """Note the stack that new nodes come from, if notes are preserved."""
    if _preserved and stack:
        current_meta["stack_trace"] = "".join(stack)


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:  # of any type
    """Add entries to ``node.meta["custom"]`` of nodes that are made within a block."""
    before = current_meta.get("custom")
    with preserve_node_meta():
        current_meta["custom"] = {**(before or {}), **annotation_dict}
        yield


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[FunctionT], FunctionT]:  # of any type
    """Have a function's nodes annotated; see ``annotate``."""

    def decorate(function: FunctionT) -> FunctionT:
        @wraps(function)
        def annotated(*args: object, **kwargs: object) -> object:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        result: Any = annotated  # of the function's own type
        return result

    return decorate


@contextlib.contextmanager
def set_current_meta(node: Node) -> Iterator[None]:
    """Make the notes of ``node`` the current ones within a block, if notes are preserved."""
    if not _preserved or not node.meta:
        yield
        return
    saved = current_meta.copy()
    current_meta.clear()
    current_meta.update(node.meta.copy())
    current_meta["from_node"] = [*current_meta.get("from_node", []), (node.name, node.target)]
    try:
        yield
    finally:
        current_meta.clear()
        current_meta.update(saved)


def get_current_meta() -> dict[str, Any]:  # of any type
    """Return the notes of the node that runs."""
    return current_meta


def format_stack() -> list[str]:
    """Return the stack of the node that runs, or else of the caller."""
    if _preserved:
        return [copy.copy(current_meta.get("stack_trace", ""))]
    return list(reversed(stacks.format_list(stacks.extract_stack())))
