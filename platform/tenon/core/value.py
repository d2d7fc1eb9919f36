"""The bare tensor: what dispatch and the tape touch. ``tensor.py`` adds the public face.

Slots hold what every op reads or writes; everything rarer (``grad``, hooks, names, user attributes)
lives in the lazily made ``__dict__`` behind class-level defaults.

A view remembers ``(base, parent, op, attrs)`` and the version at which its history was made. An
in-place change of the base moves the version on; ``_refresh`` then replays the view on the base's
new history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tenon.core.grad_mode import MODE



class Value:
    """Slots of a tensor, and the few methods that dispatch needs."""

    __slots__ = (
        "__dict__", "__weakref__", "_backend", "_index", "_node", "_track", "_version_counter", "_view", "raw",
    )  # fmt: skip

    #: Makes a plain tensor of an array; set by ``tensor.py``.
    make: ClassVar[Callable[[Any, Any], Any]]

    raw: Any
    _backend: Any
    _node: Any
    _index: int
    #: A gradient flows here: a leaf that requires grad, or an output of a taped op.
    _track: bool
    #: One-element list shared by all views of the same memory; None until the first view or in-place op.
    _version_counter: list[int] | None
    #: ``[base, parent, op, attrs, version]`` of a view.
    _view: list[Any] | None

    def _counter(self) -> list[int]:
        counter = self._version_counter
        if counter is None:
            counter = self._version_counter = [0]
        return counter

    def _refresh(self) -> None:
        """Renew a view's history if its memory was modified in place since it was made."""
        view = self._view
        assert view is not None
        counter = self._version_counter
        if counter is None or counter[0] == view[4]:
            return
        parent = view[1]
        if parent._view is not None:
            parent._refresh()
        if parent._track:
            previous, MODE.enabled = MODE.enabled, True
            try:
                fresh = view[2](parent, **view[3])
            finally:
                MODE.enabled = previous
            self._node, self._index, self._track = fresh._node, fresh._index, fresh._track
        else:
            self._node, self._index, self._track = None, 0, False
        view[4] = counter[0]

    def _stale(self) -> bool:
        """Whether an untracked view may have come to need a gradient through its base."""
        view = self._view
        return view is not None and view[0]._track


