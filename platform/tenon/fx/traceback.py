"""Metadata that an interpreter copies from the node that it runs to nodes created meanwhile."""

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

#: The metadata of the running node; new nodes get copies while it is preserved.
current_meta: dict[str, Any] = {}  # of any type
_preserved = False


def has_preserved_node_meta() -> bool:
    """Whether new nodes get the metadata of the running node."""
    return _preserved


_should_preserve_node_meta = has_preserved_node_meta


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Copy the metadata of the running node to new nodes within a block."""
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
    """Set the stack trace of new nodes, if metadata is preserved."""
    if _preserved and stack:
        current_meta["stack_trace"] = "".join(stack)


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:  # of any type
    """Add entries to ``node.meta["custom"]`` of nodes created within a block."""
    before = current_meta.get("custom")
    with preserve_node_meta():
        current_meta["custom"] = {**(before or {}), **annotation_dict}
        yield


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[FunctionT], FunctionT]:  # of any type
    """Decorate a function: its nodes are annotated as by ``annotate``."""

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
    """Make the metadata of ``node`` current within a block, if metadata is preserved."""
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
    """Return the metadata of the running node."""
    return current_meta


def format_stack() -> list[str]:
    """Return the stack of the running node, or of the caller if there is none."""
    if _preserved:
        return [copy.copy(current_meta.get("stack_trace", ""))]
    return list(reversed(stacks.format_list(stacks.extract_stack())))
