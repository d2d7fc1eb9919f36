"""``RemovableHandle``: what every ``register_*hook`` returns."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import MutableMapping
from typing import Any, TypeAlias

#: Hooks, or settings of them, by the ``id`` of their handle. A handle removes items of whatever type, and
#: mutable mappings are invariant in the type of theirs.
Registry: TypeAlias = MutableMapping[int, Any]
#: The pickled state of a handle: its dictionaries (None for one that was collected) and its ``id``.
State: TypeAlias = tuple[Registry | None, int, tuple[Registry | None, ...]]


class RemovableHandle:
    """Removes one hook: by ``remove()``, or at the end of a ``with`` block.

    ``id`` is the hook's key in ``hooks_dict`` and in those of ``extra_dict``, one dictionary or a list of
    them. They are referenced weakly, so that a handle does not keep a module alive.
    """

    id: int
    next_id: int = 0

    # ``extra_dict`` is a Registry, or a list of them; lists are invariant in the type of their items.
    def __init__(self, hooks_dict: Registry, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref: weakref.ref[Registry] = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extra = [] if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self.extra_dict_ref: tuple[weakref.ref[Registry], ...] = tuple(weakref.ref(each) for each in extra)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = reference()
            if hooks is not None and self.id in hooks:
                del hooks[self.id]

    def __getstate__(self) -> State:
        return (self.hooks_dict_ref(), self.id, tuple(reference() for reference in self.extra_dict_ref))

    def __setstate__(self, state: State) -> None:
        hooks = OrderedDict() if state[0] is None else state[0]
        self.hooks_dict_ref = weakref.ref(hooks)
        self.id = state[1]
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)
        extra = state[2] if len(state) > 2 and state[2] is not None else ()
        self.extra_dict_ref = tuple(weakref.ref(each) for each in extra if each is not None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, type: object, value: object, tb: object) -> None:
        self.remove()
