"""``lower``: rewrite a graph to the ops that a target supports.

Composites that the target lacks are replaced by their parts, recursively, and rules may replace other ops.
All ops without a replacement are collected, so that one error lists them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping

from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Op, table
from tenon.engine.types import Attrs, Operand
from tenon.errors import CaptureError, LoweringError, NotFusableError
from tenon.export.captured import CapturedGraph
from tenon.export.dynamic import transformed
from tenon.export.lowering_rules import RULES, SIZED_RULES, Rule
from tenon.export.simplify import drop_unread, simplify
from tenon.export.spelled_numbers import SPELLED_BY
from tenon.graph.cluster import Namespace, Value
from tenon.graph.graph import Node, Ref
from tenon.graph.passes.decompose import Calls
from tenon.kernels.meta import META


def lower(
    graph: CapturedGraph,
    ops: Collection[str],
    rules: Mapping[str, Rule] | None = None,
    *,
    strict: bool = True,
    rejected: Callable[[CapturedGraph], Iterable[Node]] | None = None,
) -> CapturedGraph:
    """Return a copy of ``graph`` whose calls are of ``ops`` (names) only.

    ``rules`` has a function for each op that is not a composite but replaced, or by other ops than its
    parts. LoweringError lists every op without a replacement, with the modules that call it; without
    ``strict``, such calls stay unchanged.

    ``rejected(lowered)`` returns the calls that the target cannot write though it has the op, for dtypes
    or attrs. Composites among them are replaced by their parts as well, by all calls of the op, and it is
    called again; it may simplify its argument, which is returned in the end.

    >>> import tenon
    >>> graph = tenon.export.capture(lambda x: tenon.softmax(x, 1), tenon.ones(2, 3))
    >>> [node.name for node in lower(graph, {"sub", "amax", "exp", "sum", "div"}).calls]
    ['amax', 'sub', 'exp', 'sum', 'div']
    """
    names, sized = frozenset(ops), SIZED_RULES if graph.symbols or graph.symbolic else {}
    replacing = {**RULES, **sized, **(rules or {})}
    while True:
        one = functools.partial(_lowered, names=names, rules=replacing, strict=strict)
        try:
            result = transformed(graph, one, spell=names >= SPELLED_BY)
        except CaptureError as error:
            raise LoweringError(f"in the ops of the target, {error}") from error
        simplify(result)
        failing = () if rejected is None else rejected(result)
        composites = {node.name for node in failing if isinstance(node.op, Composite)} & names
        if not composites:
            return result
        names -= composites


def _lowered(
    graph: CapturedGraph, names: frozenset[str], rules: Mapping[str, Rule], strict: bool
) -> CapturedGraph:
    result = graph.copy()
    missing: dict[str, list[Node]] = {}
    lacking: dict[str, set[str]] = {}
    nodes: list[Node] = []
    changes: dict[Ref, Ref] = {}
    read = {ref for node in result.nodes for ref in node.refs} | set(result.roots())
    for node in result.nodes:
        if node.kind != "call" or node.name in names:
            nodes.append(node)
            continue
        replacement = _replacement(node, names, rules, read)
        if isinstance(replacement, set):
            missing.setdefault(node.name, []).append(node)
            lacking.setdefault(node.name, set()).update(replacement - {node.name})
            nodes.append(node)
            continue
        calls, values = replacement
        nodes += calls
        changes.update((node.out(i), ref) for i, ref in values.items() if ref != node.out(i))
    if missing and strict:
        raise LoweringError(f"the target does not support {_listed(missing, lacking)}.")
    result.nodes = nodes
    result.replace(changes)
    drop_unread(result)
    return result


def _listed(missing: Mapping[str, Iterable[Node]], lacking: Mapping[str, Iterable[str]]) -> str:
    """Return the missing ops with the places that need them, and the ops of which they could be made."""
    parts = []
    for name, nodes in sorted(missing.items()):
        places = dict.fromkeys(
            f"{node.module or 'the function'}{f' at {node.where}' if node.where else ''}" for node in nodes
        )
        examples = ", ".join(list(places)[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        needed = ", ".join(sorted(lacking[name]))
        parts.append(f"{name} ({examples}{f'; its decomposition needs {needed}' if needed else ''})")
    return "; ".join(parts)


def _replacement(
    node: Node, names: frozenset[str], rules: Mapping[str, Rule], read: Collection[Ref]
) -> tuple[list[Node], dict[int, Ref]] | set[str]:
    """Return calls that compute ``node``, and its outputs among theirs; or the names of ops that it needs."""
    parts = _Parts(node, names, rules)
    try:
        args = [parts.operand(a) for a in node.args]
        hidden = any(node.out(i) in read for i in range(node.op.outputs or 0, len(node.avals)))
        outputs = parts.computed(node.op, tuple(args), node.attrs, hidden)
    except NotFusableError:
        return {node.name}
    if parts.missing:
        return parts.missing
    values: dict[int, Ref] = {}
    for index, output in enumerate(outputs):
        own = node.avals[index]
        if not isinstance(output, Value) or output.aval.shape != own.shape:
            return {node.name}
        if output.aval.dtype != own.dtype:
            output = parts.apply(table["cast"], (output,), {"dtype": own.dtype})
        values[index] = parts.ref(output)
    return parts.nodes, values


class _Parts(Calls):
    """Appends the calls that compute one node, of ops that the target has."""

    def __init__(self, node: Node, names: frozenset[str], rules: Mapping[str, Rule]) -> None:
        super().__init__(node)
        self._names, self._rules = names, rules
        #: The names of ops that the target lacks and that have no replacement.
        self.missing: set[str] = set()

    def computed(self, op: Op, args: tuple[Operand, ...], attrs: Attrs, hidden: bool) -> tuple[Operand, ...]:
        """Return the outputs of ``op``, with its residuals if ``hidden``."""
        rule = self._rules.get(op.name)
        if rule is not None:
            result = rule(Namespace(self), *args, **attrs)
        elif not isinstance(op, Composite):
            raise NotFusableError(f"{op.name} has no decomposition.")
        else:
            compute = op.raw_forward if hidden else op.decompose
            result = compute(Namespace(self), *args, **attrs)
        return result if isinstance(result, tuple) else (result,)

    def apply(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operand:
        """Append a call of ``op``, or the calls of its parts; return its value."""
        if op.name not in self._names:
            if op.name in self._rules or isinstance(op, Composite):
                outputs = self.computed(op, args, attrs, False)
                return outputs[0] if op.outputs == 1 else outputs
            self.missing.add(op.name)
        args = self._promoted(op, args)
        if op.outputs == 1:
            return self.append(op, args, attrs)
        inputs = ((1.0 if a.weak else a.aval) if isinstance(a, Value) else a for a in args)
        avals = getattr(META.raw, op.name)(*inputs, **attrs)
        call = Node("call", op, tuple(self.ref(a) if isinstance(a, Value) else a for a in args))
        call.attrs, call.avals = attrs, tuple(avals)
        call.module, call.where, call.phase = (self.node.module, self.node.where, self.node.phase)
        self.nodes.append(call)
        return tuple(self.valued(call.out(i)) for i in range(len(call.avals)))

    def _promoted(self, op: Op, args: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """Cast operands of different dtypes to their common one, as eager execution does."""
        operands = [a for a in args[op.promoted_from :] if isinstance(a, Value) and not a.weak]
        if op.promotion is None or len({a.aval.dtype for a in operands}) < 2:
            return args
        inputs = ((1.0 if a.weak else a.aval) if isinstance(a, Value) else a for a in args)
        common = META.raw.add(*inputs) if op.boolean else getattr(META.raw, op.name)(*inputs)
        assert isinstance(common, Aval)
        return tuple(
            self.apply(table["cast"], (a,), {"dtype": common.dtype})
            if isinstance(a, Value) and not a.weak and i >= op.promoted_from and a.aval.dtype != common.dtype
            else a
            for i, a in enumerate(args)
        )
