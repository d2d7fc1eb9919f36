"""Write composites (softmax, layer norm, GELU, losses, ...) as the primitives that they are made of.

Three answers, and the backend gives them. Where all parts are one cluster that it takes (``Compiler.fuse``),
they become calls that know what they are parts of (``Node.part_of``): ``fuse`` keeps them together, and adds
what is around them. Else a composite stays whole if the backend has a kernel of its name, or if it is a
product, whose bias and sums belong to the product's kernel. Otherwise its parts become independent calls.

What has an expression of its own (``silu``) counts as a primitive, as far as no slope is kept beside it.
"""

from __future__ import annotations

from typing import Any

from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind, Op
from tenon.errors import NotFusableError
from tenon.graph.cluster import Builder, Namespace, Value
from tenon.graph.cluster import Ref as Place
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.passes.cluster_limits import is_one_kernel
from tenon.graph.passes.common_subexpr import frozen
from tenon.kernels.backend import Backend
from tenon.kernels.meta import META

_EFFECTS = frozenset({Kind.RANDOM, Kind.COLLECTIVE})


def decompose(graph: Graph, backend: Backend) -> None:
    """Replace composites by their parts where ``backend`` gains by it."""
    known: dict[Any, bool] = {}
    nodes: list[Node] = []
    changes: dict[Ref, Ref] = {}
    for node in graph.nodes:
        found = None
        if node.kind == "call" and isinstance(node.op, Composite) and "layouts" not in node.attrs:
            together = not _elementary(node) and _fuses(node, backend, known)
            if together or _dissolves(node, backend):
                found = parts(node)
        if found is None:
            nodes.append(node)
            continue
        made, values = found
        for part in made:
            part.part_of = node if together else None
        nodes += made
        changes.update((node.out(i), ref) for i, ref in enumerate(values) if ref != node.out(i))
    graph.nodes = nodes
    graph.replace(changes)


def parts(node: Node) -> tuple[list[Node], list[Ref]] | None:
    """The calls that compute what the composite ``node`` does, and its values among theirs; None where it
    is no graph of calls."""
    calls = _Calls(node)
    try:
        made = _outputs(node, Namespace(calls), [calls.given(a) for a in node.args])
    except NotFusableError:
        return None
    if tuple(m.aval for m in made) != node.avals:
        return None
    return calls.nodes, [calls.ref(m) for m in made]


def _elementary(node: Node) -> bool:
    return node.op.expression is not None and len(node.avals) == 1


def _outputs(node: Node, f: Any, args: list[Any]) -> tuple[Value, ...]:
    """All outputs of ``node``, residuals included where it has them, as written with ``f``."""
    op = node.op
    hidden = op.residuals and len(node.avals) > op.outputs
    made = (op.raw_forward if hidden else op.decompose)(f, *args, **node.attrs)
    several = made if isinstance(made, tuple) else (made,)
    if len(several) != len(node.avals) or not all(isinstance(m, Value) for m in several):
        raise NotFusableError(f"{op.name} does not make all its outputs of its parts.")
    return several


def _fuses(node: Node, backend: Backend, known: dict[Any, bool]) -> bool:
    """Whether all parts of ``node`` are one cluster that ``backend`` takes."""
    places = {ref: i for i, ref in enumerate(dict.fromkeys(node.refs))}
    given = ((places[a], a.scalar, a.aval) if a.__class__ is Ref else frozen(a) for a in node.args)
    key = (node.op, frozen(node.attrs), node.avals, *given)
    found = known.get(key)
    if found is None:
        found = known[key] = _one_cluster(node, backend)
    return found


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
        made = _outputs(node, Namespace(builder), args)
        return tuple(m.aval for m in made) == node.avals and is_one_kernel(backend, builder.build(made))
    except NotFusableError:
        return False


def _dissolves(node: Node, backend: Backend) -> bool:
    """Whether to replace ``node`` by independent calls: there is no better kernel, and no precision is lost.

    Floats of 16 bits would be rounded after every part.
    """
    if _elementary(node) or node.op.kind is Kind.CONTRACT or backend.has_kernel(node.op):
        return False
    return all(a.dtype.itemsize > 2 or a.dtype.kind not in "fV" for a in node.avals)


class _Calls(Builder):
    """A builder whose steps are calls of a graph."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.nodes: list[Node] = []
        #: The graph's values by place.
        self.refs: list[Ref] = []

    def given(self, value: Any) -> Any:
        """An argument of the composite."""
        return self._valued(value) if value.__class__ is Ref else value

    def ref(self, value: Value) -> Ref:
        """The graph's value that ``value`` stands for."""
        return self.refs[value.ref.index]

    def _valued(self, ref: Ref) -> Value:
        self.refs.append(ref)
        return Value(self, Place(len(self.refs) - 1), ref.aval, weak=ref.scalar)

    def apply(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Append a call of ``op``, or those of its parts; its value."""
        if isinstance(op, Composite) and op.expression is None:
            return op.decompose(Namespace(self), *args, **attrs)
        if op.kind in _EFFECTS or op.outputs != 1:
            raise NotFusableError(f"{self.node.op.name} draws, sends or splits: it stays one call.")
        values = [a for a in args if isinstance(a, Value)]
        if values and all(v.weak for v in values):
            raise NotFusableError(f"{op.name} of numbers that change is no call.")
        given = ((1.0 if a.weak else a.aval) if isinstance(a, Value) else a for a in args)
        found = getattr(META.raw, op.name)(*given, **attrs)
        if not isinstance(found, Aval):
            return found  # of numbers only
        made = Node("call", op, tuple(self.ref(a) if isinstance(a, Value) else a for a in args))
        made.attrs, made.avals, made.module, made.where = attrs, (found,), self.node.module, self.node.where
        made.phase = self.node.phase
        self.nodes.append(made)
        return self._valued(made.out())
