"""The emitters of ops by name: ``@emits("conv")`` registers a function that adds the steps of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tenon.extend import Node
from tenon_target_c.program import Program

Emitter: TypeAlias = Callable[[Program, Node], None]

#: The emitter of each op that has one; ops with an expression need none.
EMITTERS: dict[str, Emitter] = {}
#: A predicate for ops of which only some calls can be emitted.
CONDITIONS: dict[str, Callable[[Node], bool]] = {}


def emits(*names: str, when: Callable[[Node], bool] | None = None) -> Callable[[Emitter], Emitter]:
    """Register the decorated function as the emitter of the ops ``names``, for calls with ``when``."""

    def register(emitter: Emitter) -> Emitter:
        for name in names:
            EMITTERS[name] = emitter
            if when is not None:
                CONDITIONS[name] = when
        return emitter

    return register


def emittable(node: Node) -> bool:
    """Whether the call has an emitter."""
    return node.name in EMITTERS and CONDITIONS.get(node.name, _always)(node)


def _always(node: Node) -> bool:
    return True
