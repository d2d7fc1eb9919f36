"""Replace composites (softmax, layer norm, GELU, losses, ...) by the primitives that they consist of.

There are three cases, which depend on the backend. If all parts fit one cluster that it can fuse
(``Compiler.fuse``), they become calls with ``Node.part_of``, which ``fuse`` keeps together and extends.
Else a composite stays one call if the backend has a kernel for it, or if it is a product, whose kernel adds
the bias. Otherwise its parts become independent calls.

A composite with an ``expression`` (``silu``) counts as a primitive, unless it has a residual output.
"""

from __future__ import annotations

from collections.abc import Hashable

from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind, Op
from tenon.engine.types import Attrs, Operand, OpNamespace
from tenon.errors import NotFusableError
from tenon.graph.cluster import Builder, Namespace, Value
from tenon.graph.cluster import Ref as BuilderRef
from tenon.graph.graph import Graph, Node, NodeArgument, Ref
from tenon.graph.passes.cluster_limits import is_one_kernel
from tenon.graph.passes.common_subexpr import frozen
from tenon.kernels.backend import Backend
from tenon.kernels.meta import META

_EFFECTS = frozenset({Kind.RANDOM, Kind.COLLECTIVE})


def decompose(graph: Graph, backend: Backend) -> None:
    """Replace composites by their parts where that is faster on ``backend``."""
    known: dict[Hashable, bool] = {}
    nodes: list[Node] = []
    changes: dict[Ref, Ref] = {}
    for node in graph.nodes:
        replacement = None
        if node.kind == "call" and isinstance(node.op, Composite) and "layouts" not in node.attrs:
            together = not _elementary(node) and _fuses(node, backend, known)
            if together or _should_decompose(node, backend):
                replacement = parts(node)
        if replacement is None:
            nodes.append(node)
            continue
        calls, values = replacement
        for part in calls:
            part.part_of = node if together else None
        nodes += calls
        changes.update((node.out(i), ref) for i, ref in enumerate(values) if ref != node.out(i))
    graph.nodes = nodes
    graph.replace(changes)


def parts(node: Node) -> tuple[list[Node], list[Ref]] | None:
    """Return calls that compute the composite ``node``, and its outputs among theirs.

    None if it cannot be written as calls.
    """
    calls = Calls(node)
    try:
        outputs = _outputs(node, Namespace(calls), [calls.operand(a) for a in node.args])
    except NotFusableError:
        return None
    if tuple(o.aval for o in outputs) != node.avals:
        return None
    return calls.nodes, [calls.ref(o) for o in outputs]


def _elementary(node: Node) -> bool:
    return node.op.expression is not None and len(node.avals) == 1


def _outputs(node: Node, f: OpNamespace, args: list[Operand]) -> tuple[Value, ...]:
    """Compute all outputs of ``node`` with ``f``, including residuals if it has them."""
    op = node.op
    assert isinstance(op, Composite)
    hidden = op.residuals and len(node.avals) > op.outputs
    result = (op.raw_forward if hidden else op.decompose)(f, *args, **node.attrs)
    outputs = result if isinstance(result, tuple) else (result,)
    if len(outputs) != len(node.avals) or not all(isinstance(o, Value) for o in outputs):
        raise NotFusableError(f"the parts of {op.name} do not compute all of its outputs.")
    return outputs


def _fuses(node: Node, backend: Backend, known: dict[Hashable, bool]) -> bool:
    """Whether all parts of ``node`` are one cluster that ``backend`` can fuse; cached in ``known``."""
    positions = {ref: i for i, ref in enumerate(dict.fromkeys(node.refs))}
    args = ((positions[a], a.scalar, a.aval) if a.__class__ is Ref else frozen(a) for a in node.args)
    key = (node.op, frozen(node.attrs), node.avals, *args)
    fuses = known.get(key)
    if fuses is None:
        fuses = known[key] = _one_cluster(node, backend)
    return fuses


def _one_cluster(node: Node, backend: Backend) -> bool:
    if any(not a.size or a.dtype.kind not in "fiubV" for a in node.avals):
        return False
    builder = Builder()
    values = {
        ref: builder.number() if ref.scalar else builder.input(ref.aval.shape, ref.aval.dtype)
        for ref in dict.fromkeys(node.refs)
    }
    args = [values[a] if a.__class__ is Ref else a for a in node.args]
    try:
        outputs = _outputs(node, Namespace(builder), args)
        avals = tuple(o.aval for o in outputs)
        return avals == node.avals and is_one_kernel(backend, builder.build(outputs))
    except NotFusableError:
        return False


def _should_decompose(node: Node, backend: Backend) -> bool:
    """Whether to replace ``node`` by independent calls: there is no better kernel, and no precision is lost.

    Floats of 16 bits would be rounded after every part.
    """
    if _elementary(node) or node.op.kind is Kind.CONTRACT or backend.has_kernel(node.op):
        return False
    return all(a.dtype.itemsize > 2 or a.dtype.kind not in "fV" for a in node.avals)


class Calls(Builder):
    """A builder that appends calls of a graph, the parts of the composite ``node``."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.nodes: list[Node] = []
        #: The graph's values, by the index of the builder's values.
        self.refs: list[Ref] = []

    def operand(self, value: NodeArgument) -> Operand:
        """Return an argument of the composite as a value of the builder."""
        return self.valued(value) if value.__class__ is Ref else value

    def ref(self, value: Value) -> Ref:
        """Return the graph's value of a value of the builder."""
        return self.refs[value.ref.index]

    def valued(self, ref: Ref) -> Value:
        """Return a value of the graph as one of the builder."""
        self.refs.append(ref)
        return Value(self, BuilderRef(len(self.refs) - 1), ref.aval, weak=ref.scalar)

    def apply(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operand:
        """Append a call of ``op``, or calls of its parts; return its value."""
        if isinstance(op, Composite) and op.expression is None:
            return op.decompose(Namespace(self), *args, **attrs)
        if op.kind in _EFFECTS or op.outputs != 1:
            raise NotFusableError(
                f"{self.node.op.name} draws random numbers, communicates or returns several values: it is not"
                " decomposed."
            )
        return self.append(op, args, attrs)

    def append(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operand:
        """Append a call of ``op``, which has one output; return its value."""
        values = [a for a in args if isinstance(a, Value)]
        if values and all(v.weak for v in values):
            raise NotFusableError(
                f"{op.name} has only numbers as operands, so it is not a call of the graph."
            )
        inputs = ((1.0 if a.weak else a.aval) if isinstance(a, Value) else a for a in args)
        aval = getattr(META.raw, op.name)(*inputs, **attrs)
        if not isinstance(aval, Aval):
            return aval  # computed from numbers only
        call = Node("call", op, tuple(self.ref(a) if isinstance(a, Value) else a for a in args))
        call.attrs, call.avals, call.module, call.where = attrs, (aval,), self.node.module, self.node.where
        call.phase = self.node.phase
        self.nodes.append(call)
        return self.valued(call.out())
