"""The dependency analysis of a model: which channels have to be removed together, and which must be kept.

It is an abstract interpretation of a captured graph. It computes an ``AbstractValue`` of every value:
which channel each position belongs to, and where the value is the same number for every input of the model.
Rules by op (``op_rules.py``) couple the channels of operands and results, and keep channels for a stated
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tenon import Tensor, from_numpy
from tenon.errors import PruningError
from tenon.extend import CapturedGraph, Node, Ref
from tenon_compress.prune.coupled_channels import CoupledChannels

#: Booleans, one for each channel; a single one where NumPy reduces an array to no axes.
Mask: TypeAlias = np.ndarray | np.bool_
Rule = Callable[..., "tuple[AbstractValue, ...]"]
#: Rules by the name of the op, and by the value of its kind for ops that have none.
RULES: dict[str, Rule] = {}
KINDS: dict[str, Rule] = {}


#: An array or None: a rule that looks at one of ``known`` and ``value`` knows whether the other is None.
KnownArray: TypeAlias = Any


@dataclass(slots=True)
class AbstractValue:
    """Facts about one value: its shape, the channels of its positions, and its constants."""

    shape: tuple[int, ...]
    #: Arrays of channels that broadcast to the shape, one for each set of axes that can shrink: a weight has
    #: one for its outputs and one for its inputs.
    channel_maps: list[np.ndarray] = field(default_factory=list)
    #: Where the value is the same for every input of the model, and what it is there; arrays that broadcast
    #: to the shape, or both None.
    known: KnownArray = None
    value: KnownArray = None

    @property
    def zero(self) -> np.ndarray:
        """Where the value is zero for every input of the model; broadcasts to the shape."""
        if self.known is None:
            return np.zeros((1,) * len(self.shape), bool)
        return self.known & (self.value == 0)

    def with_rank(self, rank: int) -> AbstractValue:
        """Return the value with leading axes of size 1 up to ``rank``."""
        leading = (1,) * (rank - len(self.shape))

        def widened(array: KnownArray) -> KnownArray:
            return None if array is None else array.reshape(leading + array.shape)

        channel_maps = [widened(channel_map) for channel_map in self.channel_maps]
        return AbstractValue(leading + self.shape, channel_maps, widened(self.known), widened(self.value))


@dataclass(frozen=True, slots=True)
class Reduction:
    """A sum over ``channels`` in ``node``, to which those that are ``free`` contribute nothing.

    The sum itself is not needed if ``into`` is given and all of its channels are removed.
    """

    node: Node
    channels: np.ndarray
    free: Mask
    reason: str
    into: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class ConvolutionGroups:
    """The channels of inputs and outputs of a grouped convolution, a row for each of its groups."""

    inner: np.ndarray
    outer: np.ndarray
    #: The channels along axis 1 of the weight, different ones in each group.
    columns: np.ndarray


@dataclass(frozen=True, slots=True)
class BiasFold:
    """What constant channels contribute to an op: removing channel ``k`` adds ``gains[:, k]`` to ``bias``."""

    bias: Node
    channels: np.ndarray
    gains: np.ndarray


def varying(channel_map: np.ndarray) -> set[int]:
    """Return the axes along which a channel map has more than one position."""
    return {axis for axis, size in enumerate(channel_map.shape) if size > 1}


def without_repeats(array: np.ndarray) -> np.ndarray:
    """Reduce ``array`` to size 1 along every axis along which it is constant."""
    for axis, size in enumerate(array.shape):
        if size > 1:
            first = array[(slice(None),) * axis + (slice(0, 1),)]
            if (array == first).all():
                array = first
    return array


class DependencyAnalysis:
    """The abstract values of a captured graph, and what follows from them for its channels.

    ``tensors`` are the inputs that are parameters or buffers of the model, with their tensors.
    ``keep_scales`` keeps channels over which products of two computed values are summed, as code may divide
    by their number (see ``product_rules.py``), and channels that are written into a value whose size the code
    may have chosen by itself.
    """

    def __init__(
        self, graph: CapturedGraph, tensors: Mapping[Node, Tensor], *, keep_scales: bool = False
    ) -> None:
        self.graph, self.tensors, self.keep_scales = graph, tensors, keep_scales
        #: Nodes that depend on the model's inputs.
        self.computed: set[Node] = set()
        #: The node whose rule is running.
        self.node: Node
        #: Whether two computed values are multiplied somewhere, and whether channels are written in place.
        self.multiplies_computed = self.writes_channels = False
        self.channels = CoupledChannels()
        self.abstract_values: dict[Ref, AbstractValue] = {}
        #: The channels of each axis of every parameter and buffer.
        self.stored: dict[Node, list[np.ndarray]] = {}
        #: The channels of constants other than zero that code creates.
        self.created_constants: list[np.ndarray] = []
        self.reductions: list[Reduction] = []
        self.folds: list[BiasFold] = []
        #: The groups of convolutions, by the nodes of their weights.
        self.groups: dict[Node, ConvolutionGroups] = {}
        self.readers: dict[Ref, int] = {}
        for node in graph.nodes:
            for ref in node.refs:
                self.readers[ref] = self.readers.get(ref, 0) + 1
        for node in graph.nodes:
            self._enter(node)
        for ref in graph.outputs:
            for channel_map in self.abstract_values[ref].channel_maps:
                self.channels.keep(channel_map, "they are outputs of the model")

    def _enter(self, node: Node) -> None:
        if node.kind == "scalar":
            return
        self.node = node
        is_input = node.kind not in ("call", "constant") and node not in self.tensors
        if is_input or any(ref.node in self.computed for ref in node.refs):
            self.computed.add(node)
        if node.kind != "call":
            results: tuple[AbstractValue, ...] = (self._initial_value(node),)
        elif all(0 in aval.shape for aval in node.avals):  # such as those of a removed head
            results = tuple(AbstractValue(aval.shape) for aval in node.avals)
        else:
            rule = RULES.get(node.name) or KINDS.get(node.op.kind.value, unknown)
            args = [self.abstract_value(a) if isinstance(a, Ref) or _number(a) else a for a in node.args]
            results = rule(self, node, *args)
        for index, abstract in enumerate(results):
            self.abstract_values[node.out(index)] = self.simplified(abstract)

    def _initial_value(self, node: Node) -> AbstractValue:
        (aval,) = node.avals
        if node in self.tensors:
            value = self.tensors[node].detach().cpu().numpy()
        elif node.kind == "constant":
            value = np.asarray(node.value)
        else:
            return AbstractValue(aval.shape)
        sizes = aval.shape
        axes = [self.channels.create(n) for n in sizes]
        if node in self.tensors:
            self.stored[node] = axes
        elif value.any():
            self.created_constants += axes
        shaped = [a.reshape((1,) * i + (-1,) + (1,) * (len(sizes) - i - 1)) for i, a in enumerate(axes)]
        return AbstractValue(
            sizes, [a for a in shaped if a.size > 1], np.ones((1,) * len(sizes), bool), value
        )

    # --- the interface of rules ---

    def abstract_value(self, arg: object) -> AbstractValue:
        """Return the abstract value of an argument; a number is a constant without axes."""
        if isinstance(arg, Ref):
            return AbstractValue(()) if arg.scalar else self.abstract_values[arg]
        return AbstractValue((), [], np.ones((), bool), np.asarray(arg))

    def simplified(self, abstract: AbstractValue) -> AbstractValue:
        """Return ``abstract`` in its smallest form; channels that cover an axis alone are kept."""
        channel_maps = []
        for channel_map in abstract.channel_maps:
            small = without_repeats(self.channels.representatives(channel_map))
            if small.size > 1:
                channel_maps.append(small)
            else:
                self.channels.keep(small, "no other channels would remain there")
        known, value = abstract.known, abstract.value
        if known is not None:
            known = without_repeats(known)
            if not known.any():
                known = value = None
            else:
                value = without_repeats(np.where(known, value, value.dtype.type(0)))
        return AbstractValue(abstract.shape, channel_maps, known, value)

    def keep(
        self, abstract: AbstractValue, reason: str, axes: Iterable[int] | None = None
    ) -> list[np.ndarray]:
        """Keep all channels that vary along ``axes`` (None: any axis); return the other channel maps."""
        selected = set(range(len(abstract.shape))) if axes is None else set(axes)
        for channel_map in abstract.channel_maps:
            if varying(channel_map) & selected:
                self.channels.keep(channel_map, reason)
        return [channel_map for channel_map in abstract.channel_maps if not varying(channel_map) & selected]

    def couple_along(self, abstract: AbstractValue, reason: str, axes: Iterable[int]) -> list[np.ndarray]:
        """Couple channels along ``axes``, or keep them if they vary along no other axis.

        Return the channel maps that are left, which vary along none of ``axes``.
        """
        coupled = []
        for channel_map in abstract.channel_maps:
            within = varying(channel_map) & set(axes)
            if within and varying(channel_map) == within:
                self.channels.keep(channel_map, reason)
                continue
            for axis in within:
                first = np.take(channel_map, [0], axis)
                self.channels.couple(first, channel_map)
                channel_map = first
            coupled.append(channel_map)
        return coupled

    def couple_broadcast(
        self, operands: Sequence[AbstractValue], reason: str, but: int | None = None
    ) -> list[np.ndarray]:
        """Couple the channels of operands of one rank that broadcast; return the channel maps of the result.

        Channel maps that vary along axis ``but`` are left out.
        """
        coupled: list[np.ndarray] = []
        for abstract in operands:
            for channel_map in abstract.channel_maps:
                if but in varying(channel_map):
                    continue
                overlapping = [m for m in coupled if varying(m) & varying(channel_map)]
                for other in overlapping:
                    self.channels.couple(other, channel_map)
                wide = np.broadcast_arrays(channel_map, *overlapping)[0]
                coupled = [m for m in coupled if not varying(m) & varying(channel_map)] + [
                    without_repeats(self.channels.representatives(wide))
                ]
        for channel_map in coupled:
            for abstract in operands:
                covered = set().union(*(varying(m) for m in abstract.channel_maps))
                if any(abstract.shape[axis] > 1 and axis not in covered for axis in varying(channel_map)):
                    self.channels.keep(channel_map, reason)
        return coupled

    def channels_along(self, abstract: AbstractValue, axis: int) -> np.ndarray | None:
        """Return the channels that vary along ``axis`` alone, or None; couple others along ``axis``."""
        channels = None
        for i, channel_map in enumerate(abstract.channel_maps):
            if varying(channel_map) == {axis}:
                channels = channel_map.reshape(-1)
            elif axis in varying(channel_map):
                abstract.channel_maps[i] = self.couple_along(
                    AbstractValue(abstract.shape, [channel_map]), "", (axis,)
                )[0]
        return channels

    def couple_reduced(
        self, one: np.ndarray | None, other: np.ndarray | None, reason: str
    ) -> np.ndarray | None:
        """Couple two axes that are summed over together; return their channels, None if they are kept."""
        if one is not None and other is not None:
            self.channels.couple(one, other)
            return one
        for channels in (one, other):
            if channels is not None:
                self.channels.keep(channels, reason)
        return None

    def reduce(
        self,
        channels: np.ndarray | None,
        free: Mask,
        reason: str,
        fold: BiasFold | None = None,
        into: np.ndarray | None = None,
    ) -> None:
        """Record a sum over ``channels``, of which some can be removed.

        Those are the ``free`` ones, which contribute nothing, those whose constant contribution ``fold`` adds
        to a bias, and all of them together with all of ``into``.
        """
        if channels is None:
            return
        self.reductions.append(
            Reduction(self.node, channels, self.removable_in(channels, free, fold), reason, into)
        )

    def removable_in(self, channels: np.ndarray, free: Mask, fold: BiasFold | None) -> Mask:
        """Return which channels contribute nothing to a sum, or a constant that ``fold`` adds to a bias."""
        if fold is None:
            return free
        foldable = ~np.isnan(fold.gains).any(0) & ~free
        if foldable.any():
            self.folds.append(BiasFold(fold.bias, channels[foldable], fold.gains[:, foldable]))
        return free | foldable

    def constant_result(
        self, node: Node, operands: Sequence[AbstractValue]
    ) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
        """Return where an elementwise op has a constant result, and that result; or None twice."""
        constant = [abstract.known for abstract in operands if abstract.known is not None]
        if len(constant) < len(operands):
            return None, None
        known = np.logical_and.reduce(np.broadcast_arrays(*constant))
        values = [
            np.ascontiguousarray(abstract.value) if abstract.value.ndim else abstract.value
            for abstract in operands
        ]
        tensors = [from_numpy(value) if value.ndim else value.item() for value in values]
        with np.errstate(all="ignore"):
            value = node.op(*tensors, **node.attrs).numpy()
        return np.broadcast_to(known, np.broadcast_shapes(known.shape, value.shape)), value


def _number(arg: object) -> bool:
    return isinstance(arg, (bool, int, float, complex))


def location(node: Node) -> str:
    """Return where an op ran, for messages: the module's path, or the source line."""
    return f"'{node.module}'" if node.module else node.where or "the model"


def unknown(analysis: DependencyAnalysis, node: Node, *args: object) -> tuple[AbstractValue, ...]:
    """The rule of all other ops: keep their operands' channels; PruningError if some of them are zero."""
    stored = np.concatenate([np.zeros(0, np.int64), *(a for axes in analysis.stored.values() for a in axes)])
    for abstract in args:
        if not isinstance(abstract, AbstractValue):
            continue
        for channel_map in abstract.channel_maps:
            zero = np.broadcast_to(abstract.zero, abstract.shape).all(
                tuple(i for i in range(len(abstract.shape)) if i not in varying(channel_map)), keepdims=True
            )
            if (zero & np.isin(channel_map, analysis.channels.representatives(stored))).any():
                raise PruningError(
                    f"zero channels reach the op '{node.name}' in {location(node)} ({node.where}), and what"
                    " depends on them there is not known. Remove the masks before it, or compute it by other"
                    " ops."
                )
        analysis.keep(abstract, f"'{node.name}' in {location(node)} reads them")
    return tuple(AbstractValue(aval.shape) for aval in node.avals)
