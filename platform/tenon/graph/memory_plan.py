"""Where every value of a graph lies: memory given from outside, a view of another value, or an arena.

A *block* is memory that one value owns and its views share. It lives from the step that makes it to the last
step that reads any of them. Blocks whose lives do not overlap may share bytes of the arena; an elementwise
result may take the place of an operand that dies with it; the new value of a parameter is made in the
parameter itself where nobody reads the old one afterwards; gradients are made where ranks sum them up. All of
it is decided once, for given arrays of the inputs: a replay allocates nothing.

Next: ``program.py`` turns calls into steps over these arrays. ``arena.py`` assigns offsets.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind
from tenon.graph.arena import ALIGNMENT, Life, aligned, arrange, lower_bound
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.virtual_memory import VirtualMemory, address
from tenon.ops.movement import Reshape

Array = Any
_FOREVER = 1 << 60


class Block(Life):
    """Memory of one value and its views."""

    __slots__ = ("into", "maker", "root", "start")

    def __init__(self, start: int, nbytes: int, maker: Node | None) -> None:
        super().__init__(nbytes, _FOREVER, -1)
        #: Address while planning; meaningless afterwards.
        self.start = start
        #: The call that makes it, None for memory from outside.
        self.maker = maker
        #: The block whose memory it uses instead of its own.
        self.into: Block | None = None
        #: Its bytes, once allocated.
        self.root: Any = None

    def final(self) -> Block:
        """The block that owns the memory, after following in-place reuse."""
        block = self
        while block.into is not None:
            block = block.into
        return block


def same_layout(a: Array, b: Array) -> bool:
    """Whether two arrays have the same shape, dtype and strides."""
    return bool(a.shape == b.shape and a.dtype == b.dtype and (a.strides == b.strides or a.size < 2))


def replaceable(node: Node) -> Sequence[int]:
    """Positions of the arguments whose place an output may take, if they die: each element of the outputs
    depends on the same element of these only, or the kernel begins by copying them."""
    if "cluster" in node.attrs:
        return node.op.replaceable(**node.attrs)
    if len(node.avals) != 1 or node.op.view:
        return ()
    reused: tuple[int, ...] | None = node.op.reuses
    if reused is not None:
        return reused
    return range(len(node.args)) if node.op.kind is Kind.ELEMENTWISE else ()


def may_fail(node: Node) -> bool:
    """Whether values can make it raise: indices out of range, integer division by zero, the host's doing."""
    if node.effect or node.op.crosses:
        return True
    if node.op.kind is Kind.ELEMENTWISE:
        return node.op.checks_integers and node.avals[0].dtype.kind in "iu"
    return any(r.aval.dtype.kind in "iu" for r in node.refs)


class MemoryPlan:
    """The array of every value, for the given arrays of the inputs; see the module."""

    def __init__(self, graph: Graph, arrays: Mapping[Node, Array], xp: Any = np) -> None:
        self.graph, self.xp = graph, xp
        #: Calls that do something at run time, in order; all others are views, made here.
        self.steps: list[Node] = []
        self.arrays: dict[Ref, Array] = {}
        self.blocks: dict[Ref, Block] = {}
        #: What is copied into targets at the end: (array, value).
        self.copies: list[tuple[Array, Ref]] = []
        #: Bytes of the arena, and the most bytes that are alive at one time.
        self.peak_bytes = self.lower_bound = 0
        self._place_given(arrays)
        virtual = VirtualMemory(sum(aligned(a.nbytes) for n in graph.calls for a in n.avals))
        self._place_values(virtual)
        self._measure_lives()
        self._write_in_place()
        self._reuse_in_place()
        self._place_exchanged()
        self._allocate()

    # --- blocks and views, before any memory is shared ---

    def _place_given(self, arrays: Mapping[Node, Array]) -> None:
        """One block per group of inputs and constants that overlap."""
        given = []
        for node in self.graph.nodes:
            if node.kind == "input" or node.kind == "constant":
                array = np.asarray(arrays[node] if node.kind == "input" else node.value)
                low = address(array)
                bounds = np.lib.array_utils.byte_bounds(array) if array.size else (low, low)
                given.append((bounds, node, array))
        end, block = -1, Block(0, 0, None)
        for (low, high), node, array in sorted(given, key=lambda g: g[0]):
            if low >= end:
                block, end = Block(low, 0, None), high
            end = max(end, high)
            block.nbytes = end - block.start
            self.arrays[node.out()], self.blocks[node.out()] = array, block

    def _place_values(self, virtual: VirtualMemory) -> None:
        for node in self.graph.calls:
            if node.op.view and self._as_view(node):
                continue
            ins = [self.arrays[r] for r in node.refs if r in self.arrays]
            for index, aval in enumerate(node.avals):
                array = virtual.take(aval, _axis_order(node, aval, ins))
                self.arrays[node.out(index)] = array
                self.blocks[node.out(index)] = Block(address(array), array.nbytes, node)
            self.steps.append(node)

    def _as_view(self, node: Node) -> bool:
        """Make the outputs of ``node`` views of its first input, unless NumPy would copy."""
        base = node.args[0]
        if base.__class__ is not Ref or base not in self.arrays:
            return False
        source, name, made = self.arrays[base], node.op.name, None
        if isinstance(node.op, Reshape):  # whose forward may have to copy
            try:
                made = source.reshape(node.avals[0].shape, copy=False)
            except ValueError:
                return False
        elif name == "contiguous":
            if not source.flags.c_contiguous:
                return False
            made = source
        elif name in ("sum_to", "window_of") and node.avals[0].shape != source.shape:
            return False
        else:
            made = node.op.forward(self.xp, *[self.arrays[r] for r in node.refs], **node.attrs)
        several = tuple(made) if isinstance(made, tuple | list) else (made,)
        block = self.blocks[base]
        if not all(a.size == 0 or block.start <= address(a) < block.start + block.nbytes for a in several):
            return False
        for index, array in enumerate(several):
            self.arrays[node.out(index)], self.blocks[node.out(index)] = array, block
        return True

    # --- which blocks may share memory ---

    def _measure_lives(self) -> None:
        for position, node in enumerate(self.steps):
            for index in range(len(node.avals)):
                block = self.blocks[node.out(index)]
                block.first = block.last = position
            for ref in node.refs:
                if ref in self.blocks:
                    self.blocks[ref].last = position
        for ref in self.graph.roots():
            if ref in self.blocks:
                self.blocks[ref].last = _FOREVER

    def _owns(self, ref: Ref) -> bool:
        """Whether the value lies in memory of the program and is all of its block."""
        block = self.blocks.get(ref)
        if block is None or block.maker is None or block.into is not None:
            return False
        array = self.arrays[ref]
        return bool(address(array) == block.start and array.nbytes == block.nbytes)

    def _write_in_place(self) -> None:
        """Make values of writes in their targets where that is safe; note copies for the others."""
        place = {node: position for position, node in enumerate(self.steps)}
        safe_from = 1 + max((i for i, node in enumerate(self.steps) if may_fail(node)), default=-1)
        readers: dict[Block, list[int]] = {}
        for position, node in enumerate(self.steps):
            for ref in node.refs:
                if ref in self.blocks and self.blocks[ref].maker is None:
                    readers.setdefault(self.blocks[ref], []).append(position)
        for target, value in self.graph.writes:
            array, outside = self.arrays[target.out()], self.blocks[target.out()]
            whole = array.nbytes == outside.nbytes
            if whole and self._owns(value) and same_layout(self.arrays[value], array):
                block = self.blocks[value]
                assert block.maker is not None
                at = place[block.maker]
                if at >= safe_from and all(
                    i < at or (i == at and self._read_in_place(block.maker, target.out()))
                    for i in readers.get(outside, ())
                ):
                    block.into = outside
                    continue
            if value != target.out():
                self.copies.append((array, value))

    def _same_place(self, a: Ref, b: Ref) -> bool:
        one, other = self.arrays[a], self.arrays[b]
        return same_layout(one, other) and address(one) == address(other)

    def _read_in_place(self, node: Node, whole: Ref) -> bool:
        """Whether ``node`` reads the memory of ``whole`` as a whole, where an output may take its place."""
        places, end = replaceable(node), self.blocks[whole].final()
        return all(
            position in places and self._same_place(a, whole)
            for position, a in enumerate(node.args)
            if a.__class__ is Ref and a in self.blocks and self.blocks[a].final() is end
        )

    def _reuse_in_place(self) -> None:
        """Place results in the memory of operands that are last read by the same call."""
        for position, node in enumerate(self.steps):
            places = replaceable(node)
            if not places:
                continue
            taken: set[Block] = set()
            for index in range(len(node.avals)):
                out = node.out(index)
                if not self._owns(out):
                    continue
                for place in places:
                    ref = node.args[place]
                    if ref.__class__ is not Ref or ref not in self.blocks:
                        continue
                    block = self.blocks[ref].final()
                    if block not in taken and self._reusable(ref, out, node, position):
                        taken.add(block)
                        own = self.blocks[out]
                        own.into, block.last = block, own.last
                        break

    def _reusable(self, ref: Ref, out: Ref, node: Node, position: int) -> bool:
        source, made, end = self.arrays[ref], self.arrays[out], self.blocks[ref].final()
        return (
            end.maker is not None
            and end.last == position
            and address(source) == self.blocks[ref].start
            and source.nbytes == end.nbytes
            and source.itemsize == made.itemsize
            and source.shape == made.shape
            and (source.strides == made.strides or source.size < 2)
            and self._read_in_place(node, ref)
        )

    def _place_exchanged(self) -> None:
        """Place values that ranks exchange in the communication buffers, and read the results there."""
        given = sorted((b.start, b.start + b.nbytes) for b in set(self.blocks.values()) if b.maker is None)
        taken: set[int] = set()
        for position, node in enumerate(self.steps):
            find = node.attrs.get("places")
            for index, place in enumerate(find() or () if find is not None else ()):
                low = address(place)
                before = bisect.bisect_left(given, (low + place.nbytes, 0)) - 1
                if low in taken or (before >= 0 and given[before][1] > low):
                    continue
                taken.add(low)
                for ref in (node.args[index], node.out(index)):
                    block = self.blocks[ref].final() if ref in self.blocks else None
                    if (
                        block is not None
                        and block.maker is not None
                        and (block.last == position or ref.node is node)
                        and address(self.arrays[ref]) == block.start
                        and block.nbytes == place.nbytes
                        and same_layout(self.arrays[ref], place)
                    ):
                        block.root = _bytes_of(place)

    # --- memory ---

    def _allocate(self) -> None:
        """One arena; every array moves from its planned address to its place."""
        own = {b: None for b in self.blocks.values() if b.maker is not None and b.into is None}
        blocks = [block for block in own if block.root is None]
        self.peak_bytes, self.lower_bound = arrange(blocks), lower_bound(blocks)
        self.arena = arena = np.empty(self.peak_bytes + ALIGNMENT, np.uint8)
        skipped = -address(arena) % ALIGNMENT
        for block in blocks:
            block.root = arena[skipped + block.offset : skipped + block.offset + block.nbytes]
        targets = {self.blocks[t.out()]: self.arrays[t.out()] for t, _ in self.graph.writes}
        for ref, block in self.blocks.items():
            if block.maker is None:
                continue
            end, array = block.final(), self.arrays[ref]
            if not array.size:
                self.arrays[ref] = np.empty(array.shape, array.dtype)
                continue
            if end.root is None:
                end.root = _bytes_of(targets[end])
            self.arrays[ref] = np.ndarray(
                array.shape, array.dtype, end.root, address(array) - block.start, array.strides
            )


def _bytes_of(array: Array) -> Array:
    """A dense array's memory as bytes."""
    order = sorted(range(array.ndim), key=lambda a: -array.strides[a])
    return array.transpose(order).reshape(-1, copy=False).view(np.uint8)


def _axis_order(node: Node, aval: Aval, ins: list[Array]) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest: those of elementwise operands, if they agree on one."""
    if not replaceable(node) or len(aval.shape) < 2:
        return None
    found = None
    for array in ins:
        if array.shape == aval.shape:
            if array.flags.c_contiguous or 0 in array.strides:
                return None
            order = tuple(sorted(range(array.ndim), key=lambda a: -array.strides[a]))
            if not array.transpose(order).flags.c_contiguous or (found is not None and found != order):
                return None
            found = order
    return found
