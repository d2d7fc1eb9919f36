"""Storages that a file has by themselves, not in tensors, become ``TypedStorage``.

The reader of pickles passes ``LoadedStorage``s to the functions that build tensors. What reaches the user is
converted when it is put into a container, also in tuples, which may contain each other many times.
"""

from __future__ import annotations

from tenon.serialize.layout import LoadedStorage


class Converter:
    """Returns values with converted storages; visits each tuple once, however often it occurs."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[object, object]] = {}  # id -> the tuple, which keeps it alive, and result

    def __call__(self, value: object) -> object:
        """Return ``value``, or what takes its place if it is a storage, or a tuple that contains one."""
        if type(value) is tuple:
            return self._tuple(value)
        return value.alone() if isinstance(value, LoadedStorage) else value

    def _tuple(self, value: tuple[object, ...]) -> object:
        done, pending = self._done, [value]
        while pending:
            top = pending[-1]
            inner = [] if id(top) in done else [v for v in top if type(v) is tuple and id(v) not in done]
            if inner:
                pending += inner
                continue
            pending.pop()
            if id(top) not in done:
                items = [done[id(v)][1] if type(v) is tuple else self(v) for v in top]
                same = all(a is b for a, b in zip(items, top, strict=True))
                done[id(top)] = (top, top if same else tuple(items))
        return done[id(value)][1]
