"""``MemoryPlan``: the array of every value of a graph, in external memory, as a view, or in one arena.

A *block* is memory that one value owns and its views share. It is alive from the step that computes it to the
last step that reads any of them. Blocks whose lifetimes do not overlap may share bytes of the arena. An
elementwise result may overwrite an operand that is not read later. The new value of a parameter is computed
in the parameter itself if the old one is not read afterwards, gradients in the buffers in which ranks sum
them. The plan is made once, for given arrays of the inputs: a run allocates nothing.

Next: ``arena.py`` assigns offsets, ``emit.py`` generates code over these arrays.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import ArrayNamespace
from tenon.graph.arena import ALIGNMENT, Lifetime, aligned, arrange, lower_bound
from tenon.graph.fused import Fused
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.virtual_memory import VirtualMemory, address
from tenon.ops.movement import Reshape

_FOREVER = 1 << 60


class Block(Lifetime):
    """The memory of one value and its views."""

    __slots__ = ("into", "maker", "root", "start")

    def __init__(self, start: int, nbytes: int, maker: Node | None) -> None:
        super().__init__(nbytes, _FOREVER, -1)
        #: Address while planning; meaningless afterwards.
        self.start = start
        #: The call that computes it; None for external memory.
        self.maker = maker
        #: The block whose memory it uses, if not its own.
        self.into: Block | None = None
        #: Its bytes; None before the allocation.
        self.root: np.ndarray | None = None

    def final(self) -> Block:
        """Return the block that owns the memory, following ``into``."""
        block = self
        while block.into is not None:
            block = block.into
        return block


def same_layout(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have the same shape, dtype and strides."""
    return bool(a.shape == b.shape and a.dtype == b.dtype and (a.strides == b.strides or a.size < 2))


def replaceable(node: Node, output: int = 0) -> Sequence[int]:
    """Return the positions of arguments that an output may overwrite if they are not read later.

    Each element of the outputs depends only on the same element of these, or the kernel begins by copying
    them.
    """
    if isinstance(node.op, Fused):
        return node.op.replaceable(output, **node.attrs)
    if len(node.avals) != 1 or node.op.view:
        return ()
    reused: tuple[int, ...] | None = node.op.reuses
    if reused is not None:
        return reused
    return range(len(node.args)) if node.op.kind is Kind.ELEMENTWISE else ()


def may_fail(node: Node) -> bool:
    """Whether a call can raise, depending on values: an index out of range, division by zero, host code."""
    if node.effect or node.op.crosses:
        return True
    if node.op.kind is Kind.ELEMENTWISE:
        return node.op.checks_integers and node.avals[0].dtype.kind in "iu"
    return any(r.aval.dtype.kind in "iu" for r in node.refs)


class MemoryPlan:
    """The array of every value of ``graph``, for given arrays of the inputs."""

    def __init__(self, graph: Graph, arrays: Mapping[Node, np.ndarray], xp: ArrayNamespace = np) -> None:
        self.graph, self.xp = graph, xp
        #: The calls that a run makes, in order; all others are views, created here.
        self.steps: list[Node] = []
        #: The array of every value, and its block.
        self.arrays: dict[Ref, np.ndarray] = {}
        self.blocks: dict[Ref, Block] = {}
        #: ``(array, value)``: copies into targets of writes at the end of a run.
        self.copies: list[tuple[np.ndarray, Ref]] = []
        #: The size of the arena, and its lower bound: the most bytes that are alive at one time.
        self.peak_bytes = self.lower_bound = 0
        self._place_inputs(arrays)
        virtual = VirtualMemory(sum(aligned(a.nbytes) for n in graph.calls for a in n.avals))
        self._place_values(virtual)
        self._measure_lives()
        self._write_in_place()
        self._reuse_in_place()
        self._place_exchanged()
        self._allocate()

    # --- create blocks and views ---

    def _place_inputs(self, arrays: Mapping[Node, np.ndarray]) -> None:
        """Create one block for each group of inputs and constants that overlap."""
        ranges = []
        for node in self.graph.nodes:
            if node.kind == "input" or node.kind == "constant":
                array = np.asarray(arrays[node] if node.kind == "input" else node.value)
                low = address(array)
                bounds = np.lib.array_utils.byte_bounds(array) if array.size else (low, low)
                ranges.append((bounds, node, array))
        end, block = -1, Block(0, 0, None)
        for (low, high), node, array in sorted(ranges, key=lambda r: r[0]):
            if low >= end:
                block, end = Block(low, 0, None), high
            end = max(end, high)
            block.nbytes = end - block.start
            self.arrays[node.out()], self.blocks[node.out()] = array, block

    def _place_values(self, virtual: VirtualMemory) -> None:
        """Create the values of view ops as views where possible, and a block for every other value."""
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
        """Make the outputs of ``node`` views of its first input; return False if NumPy would have to copy."""
        base = node.args[0]
        if base.__class__ is not Ref or base not in self.arrays:
            return False
        source, name = self.arrays[base], node.op.name
        if isinstance(node.op, Reshape):  # whose forward may have to copy
            try:
                result = source.reshape(node.avals[0].shape, copy=False)
            except ValueError:
                return False
        elif name == "contiguous":
            if not source.flags.c_contiguous:
                return False
            result = source
        elif name in ("sum_to", "window_of") and node.avals[0].shape != source.shape:
            return False
        else:
            assert isinstance(node.op, Primitive)
            result = node.op.forward(self.xp, *[self.arrays[r] for r in node.refs], **node.attrs)
        views = tuple(result) if isinstance(result, tuple | list) else (result,)
        block = self.blocks[base]
        if not all(a.size == 0 or block.start <= address(a) < block.start + block.nbytes for a in views):
            return False
        for index, array in enumerate(views):
            self.arrays[node.out(index)], self.blocks[node.out(index)] = array, block
        return True

    # --- decide which blocks share memory ---

    def _measure_lives(self) -> None:
        """Set the first and last step of every block."""
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
        """Whether the value is in the program's own memory and fills its block."""
        block = self.blocks.get(ref)
        if block is None or block.maker is None or block.into is not None:
            return False
        array = self.arrays[ref]
        return bool(address(array) == block.start and array.nbytes == block.nbytes)

    def _write_in_place(self) -> None:
        """Compute values of writes in their targets where that is safe; add copies for the others."""
        step_of = {node: position for position, node in enumerate(self.steps)}
        safe_from = 1 + max((i for i, node in enumerate(self.steps) if may_fail(node)), default=-1)
        readers: dict[Block, list[int]] = {}
        for position, node in enumerate(self.steps):
            for ref in node.refs:
                if ref in self.blocks and self.blocks[ref].maker is None:
                    readers.setdefault(self.blocks[ref], []).append(position)
        for target, value in self.graph.writes:
            array, outside = self.arrays[target.out()], self.blocks[target.out()]
            fills_block = array.nbytes == outside.nbytes
            if fills_block and self._owns(value) and same_layout(self.arrays[value], array):
                block = self.blocks[value]
                assert block.maker is not None
                at = step_of[block.maker]
                if at >= safe_from and all(
                    i < at or (i == at and self._read_in_place(block.maker, value.index, target.out()))
                    for i in readers.get(outside, ())
                ):
                    block.into = outside
                    continue
            if value != target.out():
                self.copies.append((array, value))

    def _same_place(self, a: Ref, b: Ref) -> bool:
        """Whether two values have the same address and layout."""
        one, other = self.arrays[a], self.arrays[b]
        return same_layout(one, other) and address(one) == address(other)

    def _read_in_place(self, node: Node, output: int, value: Ref) -> bool:
        """Whether ``node`` reads the memory of ``value`` only as arguments that the output may overwrite."""
        places, end = replaceable(node, output), self.blocks[value].final()
        return all(
            position in places and self._same_place(a, value)
            for position, a in enumerate(node.args)
            if a.__class__ is Ref and a in self.blocks and self.blocks[a].final() is end
        )

    def _reuse_in_place(self) -> None:
        """Let results overwrite operands that are last read by the same call."""
        for position, node in enumerate(self.steps):
            taken: set[Block] = set()
            for index in range(len(node.avals)):
                out = node.out(index)
                if not self._owns(out):
                    continue
                for place in replaceable(node, index):
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
        """Whether output ``out`` of ``node`` may overwrite its operand ``ref``."""
        source, result, end = self.arrays[ref], self.arrays[out], self.blocks[ref].final()
        return (
            end.maker is not None
            and end.last == position
            and address(source) == self.blocks[ref].start
            and source.nbytes == end.nbytes
            and source.itemsize == result.itemsize
            and source.shape == result.shape
            and (source.strides == result.strides or source.size < 2)
            and self._read_in_place(node, out.index, ref)
        )

    def _place_exchanged(self) -> None:
        """Place values that ranks exchange, and the results, in the communication buffers."""
        occupied = sorted((b.start, b.start + b.nbytes) for b in set(self.blocks.values()) if b.maker is None)
        taken: set[int] = set()
        for position, node in enumerate(self.steps):
            find = node.attrs.get("places")
            for index, place in enumerate(find() or () if find is not None else ()):
                low = address(place)
                before = bisect.bisect_left(occupied, (low + place.nbytes, 0)) - 1
                if low in taken or (before >= 0 and occupied[before][1] > low):
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
        """Allocate the arena; replace every array by one at its final address."""
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


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """Return the memory of a dense array as bytes."""
    order = sorted(range(array.ndim), key=lambda a: -array.strides[a])
    return array.transpose(order).reshape(-1, copy=False).view(np.uint8)


def _axis_order(node: Node, aval: Aval, ins: list[np.ndarray]) -> tuple[int, ...] | None:
    """Return the axes from the slowest to the fastest, as of the elementwise operands; None for C order."""
    if not replaceable(node) or len(aval.shape) < 2:
        return None
    common = None
    for array in ins:
        if array.shape == aval.shape:
            if array.flags.c_contiguous or 0 in array.strides:
                return None
            order = tuple(sorted(range(array.ndim), key=lambda a: -array.strides[a]))
            if not array.transpose(order).flags.c_contiguous or (common is not None and common != order):
                return None
            common = order
    return common
