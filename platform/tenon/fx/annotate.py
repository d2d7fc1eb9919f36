"""``annotate``: set the type of a traced value."""

from __future__ import annotations

from typing import TypeVar

from tenon.fx.proxy import Proxy

T = TypeVar("T")


def annotate(val: T, type: object) -> T:
    """Set the type of a Proxy's node and return ``val``; RuntimeError if the node has a type already."""
    if isinstance(val, Proxy):
        if val.node.type:
            raise RuntimeError(
                "Tried to annotate a value that already had a type on it! Existing type is"
                f" {val.node.type} and"
                f" new type is {type}. This could happen if you tried to annotate a function parameter"
                " value (in which"
                " case you should use the type slot on the function signature) or you called annotate on"
                " the same"
                " value twice"
            )
        val.node.type = type
    return val
