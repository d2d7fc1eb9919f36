"""Which value of a graph an array holds, while arrays are views of each other and change in place.

Arrays that share memory form one *storage*. The storage knows the graph value of its whole; a view knows the
chain of view ops that leads to it from there. An in-place change gives the storage a new value and moves its
version on; a view read afterwards is derived anew from the new whole.
"""

from __future__ import annotations

import weakref
from typing import Any

from tenon.engine.op import table
from tenon.errors import CaptureError
from tenon.graph.graph import Ref

Chain = tuple[tuple[Any, dict[str, Any]], ...]


class Storage:
    """The memory that an array and all its views share, with the graph value of the whole."""

    __slots__ = ("__weakref__", "node", "ref", "version", "written")

    def __init__(self, ref: Ref) -> None:
        self.ref = ref
        self.version = 0
        self.written = False
        #: The input or constant whose memory this is, if it is not an intermediate value.
        self.node = ref.node if ref.node.kind != "call" else None


class Entry:
    """The graph value of one array, and how it views its storage."""

    __slots__ = ("array", "chain", "ref", "storage", "version")

    def __init__(self, array: Any, storage: Storage, chain: Chain, ref: Ref) -> None:
        self.array = weakref.ref(array)
        self.storage = storage
        self.chain = chain
        self.ref = ref
        self.version = storage.version


class Values:
    """The arrays of a recording and what they hold."""

    def __init__(self, graph: Any, backend: Any) -> None:
        self.graph = graph
        self.backend = backend
        self.entries: dict[int, Entry] = {}
        self.storages: list[Storage] = []

    def find(self, array: Any) -> Entry | None:
        """The entry of ``array``, if it is known."""
        entry = self.entries.get(id(array))
        return entry if entry is not None and entry.array() is array else None

    def add(self, array: Any, ref: Ref) -> Entry:
        """``array`` is new memory that holds ``ref``."""
        storage = Storage(ref)
        self.storages.append(storage)
        entry = self.entries[id(array)] = Entry(array, storage, (), ref)
        return entry

    def add_view(self, array: Any, parent: Entry, op: Any, attrs: dict[str, Any], ref: Ref) -> None:
        """``array`` shows part of ``parent``'s memory and holds ``ref``."""
        chain = (*parent.chain, (op, attrs))
        self.entries[id(array)] = Entry(array, parent.storage, chain, ref)

    def same(self, array: Any, other: Any) -> None:
        """``array`` is new memory with a copy of what ``other`` holds."""
        self.add(array, self.read(other))

    def read(self, entry: Entry) -> Ref:
        """The value of an array now: derived anew if its memory changed since it was last read."""
        if entry.version != entry.storage.version:
            entry.ref = self._derive(entry)
            entry.version = entry.storage.version
        return entry.ref

    def _derive(self, entry: Entry) -> Ref:
        ref = entry.storage.ref
        for op, attrs in entry.chain:
            node = self.graph.call(op, (ref,), attrs, (op.infer(ref.aval, **attrs),))
            ref = node.out()
        return ref

    def write(self, entry: Entry, value: Ref) -> None:
        """The memory of an array has received ``value``."""
        storage = entry.storage
        whole = value
        if entry.chain:
            if value.aval.dtype != storage.ref.aval.dtype:
                raise CaptureError(f"a write of {value.aval!r} through a view of {storage.ref.aval!r}.")
            steps = tuple((op.name, tuple(attrs.items())) for op, attrs in entry.chain)
            aval = storage.ref.aval
            whole = self.graph.call(table.put_view, (storage.ref, value), {"steps": steps}, (aval,)).out()
        storage.ref = whole
        storage.version += 1
        storage.written = True
        entry.ref = value
        entry.version = storage.version
