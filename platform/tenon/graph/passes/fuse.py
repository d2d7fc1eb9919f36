"""Fuse elementwise ops and reductions into clusters, so that intermediate values need no memory.

The algorithm is greedy: each call, in order, joins the groups of its operands, largest operand first, if the
backend can fuse the result (``Compiler.fuse``) and no cycle arises. Groups that read the same large value
join too. A reduction whose result is used inside the cluster must run over the last axes, so that a kernel
processes one row at a time. The parts of one call (``decompose.py``) start as one group.
"""

from __future__ import annotations

import numpy as np

from tenon.engine.op import Composite, Kind
from tenon.engine.types import Operand
from tenon.errors import NotFusableError
from tenon.graph.cluster import MOVES, Builder, Cluster, Value
from tenon.graph.fused import fused
from tenon.graph.graph import Graph, Node, NodeArgument, Ref, sources_of
from tenon.graph.passes.cluster_limits import ARRAYS, STEPS, is_one_kernel
from tenon.graph.passes.groups import Groups
from tenon.graph.passes.layout import special_values
from tenon.graph.reorder import reorder
from tenon.graph.topological_sort import sort_topologically
from tenon.kernels.backend import Backend
from tenon.kernels.compiler import Layout

#: Number of elements below which a single op is left to NumPy, which needs no compilation.
ALONE = 1 << 13
_KINDS = frozenset({Kind.ELEMENTWISE, Kind.REDUCE})


def fuse(graph: Graph, backend: Backend) -> None:
    """Replace groups of calls by ``fused`` calls."""
    _Fuser(graph, backend).run()


class FusedGroup:
    """A group as a cluster, and the values of the graph that it reads and computes."""

    __slots__ = ("cluster", "ins", "outs")

    def __init__(self, cluster: Cluster, ins: list[Ref], outs: list[Ref]) -> None:
        self.cluster, self.ins, self.outs = cluster, ins, outs


class _Fuser:
    def __init__(self, graph: Graph, backend: Backend) -> None:
        self.graph, self.backend = graph, backend
        self.groups = Groups(graph)
        self.fused: dict[int, FusedGroup] = {}
        self.users: dict[Ref, list[Node]] = graph.users()
        self.roots = set(graph.roots())
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.special = special_values(graph)
        self._possible: dict[Cluster, bool] = {}

    def run(self) -> None:
        """Form the groups and rewrite the graph."""
        for group, members in list(self.groups.members.items()):
            if members[0].part_of is not None or self._fusable(members[0]):
                cluster = self._cluster(members)
                if cluster is not None:
                    self.fused[group] = cluster
                    self._join_operands(members)
        self._join_readers()
        self._rewrite()

    # --- grouping ---

    def _fusable(self, node: Node) -> bool:
        """Whether a single call can be a step of a cluster."""
        op = node.op
        if node.kind != "call" or (isinstance(op, Composite) and op.expression is None):
            return False
        moves = isinstance(op, MOVES)
        if node.effect or op.crosses or not (op.kind in _KINDS or op.expression is not None or moves):
            return False
        if "layouts" in node.attrs or op is reorder:
            return False
        if op.view and not (moves or op.joined_by):
            return False
        return all(a.size for a in node.avals) and all(a.dtype.kind in "fiubV" for a in node.avals)

    def _join_operands(self, members: list[Node]) -> None:
        """Join a group with those of its operands, the largest operand first."""
        own = members[0]
        refs = dict.fromkeys(r for n in members for r in n.refs if r.node not in members)
        for ref in sorted(refs, key=lambda r: -r.aval.size):
            producer = self.groups.of[ref.node]
            if producer in self.fused and producer != self.groups.of[own]:
                self._try(producer, self.groups.of[own])

    def _join_readers(self) -> None:
        """Join groups that read the same value, the largest value first."""
        refs = sorted((r for r in self.users if len(self.users[r]) > 1), key=lambda r: -r.aval.size)
        for ref in refs:
            if ref.scalar or ref.aval.size < ALONE:
                break
            readers = sorted({self.groups.of[n] for n in self.users[ref]} & self.fused.keys())
            for index, a in enumerate(readers):
                for b in readers[index + 1 :]:
                    if a in self.fused and b in self.fused:
                        self._try(a, b)

    def _try(self, a: int, b: int) -> bool:
        """Join two groups if the backend can fuse them; return whether it can."""
        if self._layout(a) != self._layout(b) or not self.groups.can_join(a, b):
            return False
        one, other = self.fused[a].cluster, self.fused[b].cluster
        if len(one.steps) + len(other.steps) > STEPS or not _alike(one, other):
            return False
        members = sorted(self.groups.members[a] + self.groups.members[b], key=self.place.__getitem__)
        cluster = self._cluster(members)
        if cluster is None:
            return False
        del self.fused[b]
        self.groups.join(a, b)
        self.fused[a] = cluster
        return True

    def _layout(self, group: int) -> Layout | None:
        """Return the layout of the group's values, None for plain; in others all ops are elementwise."""
        return self.special.get(self.groups.members[group][0].out())

    # --- clusters ---

    def _cluster(self, members: list[Node]) -> FusedGroup | None:
        """Return the group of ``members`` as a cluster; None if the backend cannot fuse it."""
        inside = set(members)
        ins = list(dict.fromkeys(r for n in members for r in n.refs if r.node not in inside))
        seen = [
            n.out(i) for n in members for i in range(len(n.avals)) if self._is_read_outside(n.out(i), inside)
        ]
        outs = list(dict.fromkeys(_viewed(r, inside) for r in seen))
        if not outs or len(ins) + len(outs) > ARRAYS:
            return None
        try:
            cluster = self._build(members, ins, outs)
        except NotFusableError:
            return None
        return FusedGroup(cluster, ins, outs) if self._is_one_kernel(cluster) else None

    def _is_read_outside(self, ref: Ref, inside: set[Node]) -> bool:
        return ref in self.roots or any(user not in inside for user in self.users.get(ref, ()))

    def _build(self, members: list[Node], ins: list[Ref], outs: list[Ref]) -> Cluster:
        builder = Builder()
        values: dict[Ref, Operand] = {}
        for ref in ins:
            literal = _literal(ref)
            if literal is not None and all(_takes_number(n) for n in members if ref in n.refs):
                values[ref] = literal
        for ref in ins:
            if ref not in values:
                values[ref] = (
                    builder.number() if ref.scalar else builder.input(ref.aval.shape, ref.aval.dtype)
                )
        for node in members:
            args = tuple(values[a] if a.__class__ is Ref else _number(a) for a in node.args)
            value = builder.apply(node.op, args, dict(node.attrs))
            if not isinstance(value, Value) or (value.aval,) != node.avals:
                raise NotFusableError(f"{node.op.name} returns {value!r} in a cluster.")
            values[node.out()] = value
        ins[:] = [r for r in ins if isinstance(values[r], Value)]
        return builder.build([values[r] for r in outs])

    def _is_one_kernel(self, cluster: Cluster) -> bool:
        """Whether the backend can fuse ``cluster``; cached."""
        possible = self._possible.get(cluster)
        if possible is None:
            possible = self._possible[cluster] = is_one_kernel(self.backend, cluster)
        return possible

    # --- the new graph ---

    def _rewrite(self) -> None:
        changes: dict[Ref, Ref] = {}
        removed: set[Node] = set()
        after: dict[Node, Node] = {}
        for group, cluster in self.fused.items():
            members = sorted(self.groups.members[group], key=self.place.__getitem__)
            if not _profitable(members, cluster):
                continue
            node = Node("call", fused, tuple(cluster.ins))
            node.attrs = {"cluster": cluster.cluster}
            node.avals = tuple(r.aval for r in cluster.outs)
            node.label = "+".join(dict.fromkeys((n.part_of or n).op.name for n in members))
            node.module = _common([n.module for n in members])
            node.where, node.phase = members[-1].where, members[-1].phase
            node.sources = sources_of(*members)
            for index, ref in enumerate(cluster.outs):
                changes[ref] = node.out(index)
            inside = set(members)
            for member in members:
                if not isinstance(member.op, MOVES) or not self._is_read_outside(member.out(), inside):
                    removed.add(member)  # others stay, as views of the kernel's outputs
            after[members[-1]] = node
        nodes: list[Node] = []
        for node in self.graph.nodes:
            if node not in removed:
                nodes.append(node)
            if node in after:
                nodes.append(after[node])
        self.graph.nodes = nodes
        self.graph.replace(changes)
        sort_topologically(self.graph)


def _viewed(ref: Ref, inside: set[Node]) -> Ref:
    """Return the value in the group that ``ref`` is a view of, or ``ref``."""
    while isinstance(ref.node.op, MOVES) and ref.node.args[0].node in inside:
        ref = ref.node.args[0]
    return ref


def _literal(ref: Ref) -> float | int | bool | None:
    """Return the value of a floating-point constant of one element; None for other values."""
    node = ref.node
    if node.kind != "constant" or node.avals[0].size != 1 or node.avals[0].dtype.kind not in "fV":
        return None
    return float(np.asarray(node.value).reshape(-1)[0])


def _number(value: NodeArgument) -> NodeArgument:
    """Return a bfloat16 scalar, which NumPy does not treat as a number, as a float; other arguments
    unchanged."""
    return float(value) if isinstance(value, np.generic) and value.dtype.kind == "V" else value


def _takes_number(node: Node) -> bool:
    """Whether an operand may be a number, as another one is an array that defines shape and dtype."""
    return node.op.expression is not None and any(not r.scalar and _literal(r) is None for r in node.refs)


def _largest(cluster: Cluster) -> int:
    """Return the number of elements of the largest value."""
    return max([1, *(a.size for a in cluster.inputs), *(s.aval.size for s in cluster.steps)])


def _alike(one: Cluster, other: Cluster) -> bool:
    """Whether both have the same number of elements, as a kernel has one set of loops."""
    return _largest(one) == _largest(other)


def _profitable(members: list[Node], group: FusedGroup) -> bool:
    """Whether a compiled kernel is faster than NumPy: several ops, or one on at least ``ALONE`` elements."""
    if all(isinstance(n.op, MOVES) for n in members):
        return False
    if len(members) > 1:
        return True
    return _largest(group.cluster) >= ALONE


def _common(paths: list[str]) -> str:
    """Return the longest common module path, or the first path if there is none."""
    parts = [p.split(".") for p in paths if p]
    if not parts:
        return ""
    shared = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared) or ".".join(parts[0])
