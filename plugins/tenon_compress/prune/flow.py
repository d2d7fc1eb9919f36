"""What is known of the values of a graph: which atom each position belongs to, and which are constants.

``Flow.layers`` are arrays of atoms that broadcast to the value's shape, one for each set of axes that can
shrink: a weight has one for its outputs and one for its inputs. ``known`` says where a value is the same for
every input of the model, and ``value`` what it is there. ``Analysis`` walks the graph by the rules of
``rules.py`` and collects which atoms have to stay, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenon import from_numpy
from tenon.errors import PruningError
from tenon.extend import Node, Ref, Trace
from tenon_compress.prune.atoms import Atoms

Rule = Callable[..., "tuple[Flow, ...]"]
#: Rules by the name of the op, and by the value of its kind for ops that have none.
RULES: dict[str, Rule] = {}
KINDS: dict[str, Rule] = {}


@dataclass(slots=True)
class Flow:
    """What is known of one value."""

    shape: tuple[int, ...]
    layers: list[Any] = field(default_factory=list)
    known: Any = None
    value: Any = None

    @property
    def zero(self) -> Any:
        """Where it is zero for every input; broadcasts to the shape."""
        if self.known is None:
            return np.zeros((1,) * len(self.shape), bool)
        return self.known & (self.value == 0)

    def wide(self, rank: int) -> Flow:
        """The same with axes of size 1 before, up to ``rank``."""
        more = (1,) * (rank - len(self.shape))

        def widened(array: Any) -> Any:
            return None if array is None else array.reshape(more + array.shape)

        layers = [widened(layer) for layer in self.layers]
        return Flow(more + self.shape, layers, widened(self.known), widened(self.value))


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over ``atoms`` in ``node``: those that are ``free`` add nothing to it. Nobody misses it where all
    atoms of ``into``, if there are any, are gone."""

    node: Node
    atoms: Any
    free: Any
    reason: str
    into: Any = None


@dataclass(frozen=True, slots=True)
class Groups:
    """The inputs and outputs of a convolution in groups, a row for each group: see ``groups.py``."""

    inner: Any
    outer: Any
    #: Those that lie along axis 1 of the weight, other ones in every group.
    columns: Any


@dataclass(frozen=True, slots=True)
class Fold:
    """What constants give to an op: where atom number ``k`` goes, ``gains[:, k]`` is added to ``bias``."""

    bias: Node
    atoms: Any
    gains: Any


def varying(layer: Any) -> set[int]:
    """The axes along which a layer has different atoms."""
    return {axis for axis, size in enumerate(layer.shape) if size > 1}


def squeezed(array: Any) -> Any:
    """``array`` with size 1 along every axis on which nothing differs."""
    for axis, size in enumerate(array.shape):
        if size > 1:
            first = array[(slice(None),) * axis + (slice(0, 1),)]
            if (array == first).all():
                array = first
    return array


class Analysis:
    """The flows of all values of a trace, and what follows from them.

    With ``scaled``, what two computed values are multiplied and summed over stays (see ``products.py``), and
    what is written into a value that may have been made with a size of its own.
    """

    def __init__(self, trace: Trace, *, scaled: bool = False) -> None:
        self.trace, self.scaled = trace, scaled
        #: Nodes that depend on what the model is given, and whether two of them are multiplied somewhere.
        self.computed: set[Node] = set()
        self.entering: Node
        self.scales = False
        #: Whether channels are written into another value.
        self.writes = False
        self.atoms = Atoms()
        self.flows: dict[Ref, Flow] = {}
        #: Of every parameter and buffer the atoms of each of its axes.
        self.stored: dict[Node, list[Any]] = {}
        #: The atoms of constants other than zero that code creates.
        self.made: list[Any] = []
        self.sums: list[Sum] = []
        self.folds: list[Fold] = []
        #: By the weights of convolutions in groups.
        self.groups: dict[Node, Groups] = {}
        self.readers: dict[Ref, int] = {}
        for node in trace.graph.nodes:
            for ref in node.refs:
                self.readers[ref] = self.readers.get(ref, 0) + 1
        for node in trace.graph.nodes:
            self._enter(node)
        for ref in trace.outputs:
            for layer in self.flows[ref].layers:
                self.atoms.keep(layer, "they are outputs of the model")

    def _enter(self, node: Node) -> None:
        if node.kind == "scalar":
            return
        self.entering = node
        given = node.kind not in ("call", "constant") and node not in self.trace.stored
        if given or any(ref.node in self.computed for ref in node.refs):
            self.computed.add(node)
        if node.kind != "call":
            made: tuple[Flow, ...] = (self._beginning(node),)
        elif all(0 in aval.shape for aval in node.avals):  # what is left of a head that is gone
            made = tuple(Flow(aval.shape) for aval in node.avals)
        else:
            rule = RULES.get(node.name) or KINDS.get(node.op.kind.value, unknown)
            args = [self.flow(a) if isinstance(a, Ref) or _number(a) else a for a in node.args]
            made = rule(self, node, *args)
        for index, flow in enumerate(made):
            self.flows[node.out(index)] = self.tidy(flow)

    def _beginning(self, node: Node) -> Flow:
        (aval,) = node.avals
        if node in self.trace.stored:
            value = self.trace.stored[node].detach().cpu().numpy()
        elif node.kind == "constant":
            value = np.asarray(node.value)
        else:
            return Flow(aval.shape)
        sizes = aval.shape
        axes = [self.atoms.fresh(n) for n in sizes]
        if node in self.trace.stored:
            self.stored[node] = axes
        elif value.any():
            self.made += axes
        shaped = [a.reshape((1,) * i + (-1,) + (1,) * (len(sizes) - i - 1)) for i, a in enumerate(axes)]
        return Flow(sizes, [a for a in shaped if a.size > 1], np.ones((1,) * len(sizes), bool), value)

    # --- what rules use ---

    def flow(self, arg: Any) -> Flow:
        """The flow of an argument; a number is a constant without axes."""
        if isinstance(arg, Ref):
            return Flow(()) if arg.scalar else self.flows[arg]
        return Flow((), [], np.ones((), bool), np.asarray(arg))

    def tidy(self, flow: Flow) -> Flow:
        """``flow`` with as few elements as say the same; what has become one atom with all others stays."""
        layers = []
        for layer in flow.layers:
            small = squeezed(self.atoms.roots(layer))
            if small.size > 1:
                layers.append(small)
            else:
                self.atoms.keep(small, "nothing else would be left there")
        known, value = flow.known, flow.value
        if known is not None:
            known = squeezed(known)
            if not known.any():
                known = value = None
            else:
                value = squeezed(np.where(known, value, value.dtype.type(0)))
        return Flow(flow.shape, layers, known, value)

    def keep(self, flow: Flow, reason: str, axes: Iterable[int] | None = None) -> list[Any]:
        """Keep the atoms of all layers that vary on ``axes`` (on any, without); the other layers."""
        wanted = set(range(len(flow.shape))) if axes is None else set(axes)
        for layer in flow.layers:
            if varying(layer) & wanted:
                self.atoms.keep(layer, reason)
        return [layer for layer in flow.layers if not varying(layer) & wanted]

    def flatten(self, flow: Flow, reason: str, axes: Iterable[int]) -> list[Any]:
        """Layers that vary on none of ``axes``: atoms that do become one along them, or stay if they vary on
        no other axis."""
        made = []
        for layer in flow.layers:
            within = varying(layer) & set(axes)
            if within and varying(layer) == within:
                self.atoms.keep(layer, reason)
                continue
            for axis in within:
                first = np.take(layer, [0], axis)
                self.atoms.unite(first, layer)
                layer = first
            made.append(layer)
        return made

    def join(self, flows: Sequence[Flow], reason: str, but: int | None = None) -> list[Any]:
        """Unite the layers of operands that broadcast, all of one rank; axis ``but`` is nobody's here."""
        made: list[Any] = []
        for flow in flows:
            for layer in flow.layers:
                if but in varying(layer):
                    continue
                same = [m for m in made if varying(m) & varying(layer)]
                for other in same:
                    self.atoms.unite(other, layer)
                wide = np.broadcast_arrays(layer, *same)[0]
                made = [m for m in made if not varying(m) & varying(layer)] + [
                    squeezed(self.atoms.roots(wide))
                ]
        for layer in made:
            for flow in flows:
                covered = set().union(*(varying(own) for own in flow.layers))
                if any(flow.shape[axis] > 1 and axis not in covered for axis in varying(layer)):
                    self.atoms.keep(layer, reason)
        return made

    def vector(self, flow: Flow, axis: int) -> Any:
        """The atoms along ``axis`` alone, or None; atoms that vary elsewhere too become one along it."""
        found = None
        for i, layer in enumerate(flow.layers):
            if varying(layer) == {axis}:
                found = layer.reshape(-1)
            elif axis in varying(layer):
                flow.layers[i] = self.flatten(Flow(flow.shape, [layer]), "", (axis,))[0]
        return found

    def meet(self, one: Any, other: Any, reason: str) -> Any:
        """Unite the atoms of two axes that are summed over together; the atoms, or None where they stay."""
        if one is not None and other is not None:
            self.atoms.unite(one, other)
            return one
        for atoms in (one, other):
            if atoms is not None:
                self.atoms.keep(atoms, reason)
        return None

    def consume(self, atoms: Any, free: Any, reason: str, fold: Fold | None = None, into: Any = None) -> None:
        """A sum over ``atoms`` ends them: those may go that add nothing, or a constant for ``fold``, and all
        of them with ``into``."""
        if atoms is None:
            return
        self.sums.append(Sum(self.entering, atoms, self.folded(atoms, free, fold), reason, into))

    def folded(self, atoms: Any, free: Any, fold: Fold | None) -> Any:
        """Which of ``atoms`` add nothing to a sum, or a constant for ``fold``, which is done if they go."""
        if fold is None:
            return free
        can = ~np.isnan(fold.gains).any(0) & ~free
        if can.any():
            self.folds.append(Fold(fold.bias, atoms[can], fold.gains[:, can]))
        return free | can

    def compute(self, node: Node, flows: Sequence[Flow]) -> tuple[Any, Any]:
        """Known and value of an element-wise op, by running it where all operands are known."""
        if any(flow.known is None for flow in flows):
            return None, None
        known = np.logical_and.reduce(np.broadcast_arrays(*(flow.known for flow in flows)))
        values = [np.ascontiguousarray(flow.value) if flow.value.ndim else flow.value for flow in flows]
        given = [from_numpy(value) if value.ndim else value.item() for value in values]
        with np.errstate(all="ignore"):
            value = node.op(*given, **node.attrs).numpy()
        return np.broadcast_to(known, np.broadcast_shapes(known.shape, value.shape)), value


def _number(arg: Any) -> bool:
    return isinstance(arg, (bool, int, float, complex))


def place(node: Node) -> str:
    """Where an op ran, for people: the module path, or the line of source."""
    return f"'{node.module}'" if node.module else node.where or "the model"


def unknown(analysis: Analysis, node: Node, *args: Any) -> tuple[Flow, ...]:
    """An op without a rule: what goes in stays; PruningError if it is zero and could have gone."""
    owned = np.concatenate([np.zeros(0, np.int64), *(a for axes in analysis.stored.values() for a in axes)])
    for flow in args:
        if not isinstance(flow, Flow):
            continue
        for layer in flow.layers:
            zero = np.broadcast_to(flow.zero, flow.shape).all(
                tuple(i for i in range(len(flow.shape)) if i not in varying(layer)), keepdims=True
            )
            if (zero & np.isin(layer, analysis.atoms.roots(owned))).any():
                raise PruningError(
                    f"zero channels reach the op '{node.name}' in {place(node)} ({node.where}), and what"
                    " depends on them there is not known. Remove the masks before it, or compute it by other"
                    " ops."
                )
        analysis.keep(flow, f"'{node.name}' in {place(node)} reads them")
    return tuple(Flow(aval.shape) for aval in node.avals)
