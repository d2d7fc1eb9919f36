"""Which value of a graph an array holds, while arrays are views of each other and change in place.

Arrays that share memory have one *storage*, with the graph value of the base array; the entry of a view has
the chain of view ops that derives it from the base. An in-place change sets a new value of the storage and
increments its version; the value of a view that is read afterwards is derived again.
"""

from __future__ import annotations

import weakref
from typing import TypeAlias

from tenon.engine.op import Op, table
from tenon.engine.types import Array, Attrs
from tenon.errors import CaptureError
from tenon.graph.graph import Graph, Node, Ref
from tenon.kernels.backend import Backend

#: The view ops, with their attrs, that derive a view from the base array.
Chain: TypeAlias = tuple[tuple[Op, Attrs], ...]


class Storage:
    """The memory that an array and all its views share."""

    __slots__ = ("__weakref__", "node", "ref", "version", "written")

    def __init__(self, ref: Ref) -> None:
        #: The present value of the base array.
        self.ref = ref
        #: The number of writes so far.
        self.version = 0
        self.written = False
        #: The input or constant whose memory this is; None for an intermediate value.
        self.node: Node | None = ref.node if ref.node.kind != "call" else None


class Entry:
    """One array: its storage, the view ops that derive it from the base, and its value at ``version``."""

    __slots__ = ("array", "chain", "ref", "storage", "version")

    def __init__(self, array: Array, storage: Storage, chain: Chain, ref: Ref) -> None:
        self.array = weakref.ref(array)
        self.storage = storage
        self.chain = chain
        self.ref = ref
        self.version = storage.version


class Values:
    """The arrays of a recording, and the graph value that each holds."""

    def __init__(self, graph: Graph, backend: Backend) -> None:
        self.graph = graph
        self.backend = backend
        self.entries: dict[int, Entry] = {}
        self.storages: list[Storage] = []

    def find(self, array: Array) -> Entry | None:
        """Return the entry of ``array``, or None if it is unknown."""
        entry = self.entries.get(id(array))
        return entry if entry is not None and entry.array() is array else None

    def add(self, array: Array, ref: Ref) -> Entry:
        """Add ``array``, new memory that holds ``ref``."""
        storage = Storage(ref)
        self.storages.append(storage)
        entry = self.entries[id(array)] = Entry(array, storage, (), ref)
        return entry

    def add_view(self, array: Array, parent: Entry, op: Op, attrs: Attrs, ref: Ref) -> None:
        """Add ``array``, a view of ``parent`` by ``op`` that holds ``ref``."""
        chain = (*parent.chain, (op, attrs))
        self.entries[id(array)] = Entry(array, parent.storage, chain, ref)

    def read(self, entry: Entry) -> Ref:
        """Return the present value of an array, derived again if its memory was written since."""
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
        """Record that ``value`` was written into the memory of an array."""
        storage = entry.storage
        base = value
        if entry.chain:
            if value.aval.dtype != storage.ref.aval.dtype:
                raise CaptureError(f"a write of {value.aval!r} through a view of {storage.ref.aval!r}.")
            steps = tuple((op.name, tuple(attrs.items())) for op, attrs in entry.chain)
            aval = storage.ref.aval
            base = self.graph.call(table.put_view, (storage.ref, value), {"steps": steps}, (aval,)).out()
        storage.ref = base
        storage.version += 1
        storage.written = True
        entry.ref = value
        entry.version = storage.version
