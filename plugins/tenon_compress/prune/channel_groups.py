"""``channel_groups``: which channels of a model are on the same axes, read from its captured graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tenon import ops
from tenon.errors import ModuleTypeError, PruningError
from tenon.extend import CapturedGraph, Composite, ExportedProgram, Node, lower
from tenon_compress.prune.dependencies import KINDS, RULES, DependencyAnalysis
from tenon_compress.prune.removal import couple_rectangles, prunable

#: An axis of a weight, or the number of a grouped convolution and of the group in it.
Place = tuple[Node, int] | tuple[int, int]


@dataclass(frozen=True, slots=True)
class ChannelGroup:
    """Channels, heads or units along the same axes of the same weights; one is removed from all of them."""

    #: The names of parameters and buffers, sorted, and the axis of each along which the channels lie.
    axes: tuple[tuple[str, int], ...]
    #: How many there are. A head is one, though it has several positions along its axes.
    count: int


def channel_groups(graph: CapturedGraph | ExportedProgram) -> list[ChannelGroup]:
    """Return the groups of channels of a captured model that could be removed, in the order of its weights.

    ``graph`` is from ``tenon.export.capture`` or ``export``. These are the channels among which
    ``mask_channels`` chooses; those of outputs, and those on which an op without a rule depends, are left
    out.

    >>> import tenon
    >>> from tenon import nn
    >>> model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).eval()
    >>> for group in channel_groups(tenon.export.capture(model, tenon.ones(1, 4))):
    ...     print(group.count, *group.axes)
    6 ('0.bias', 0) ('0.weight', 0) ('2.weight', 1)
    """
    captured = graph.captured if isinstance(graph, ExportedProgram) else graph
    if not isinstance(captured, CapturedGraph):
        raise ModuleTypeError(
            f"channel_groups takes a captured graph, got {type(graph).__name__}. Capture the model:"
            " tenon.export.capture(model, example)."
        )
    if captured.writes:
        raise PruningError(
            f"channel_groups: the graph writes {captured.writes[0].target.label}, as that of a training step"
            " does. Capture the model itself, after eval()."
        )
    known = {name for name in dir(ops) if _has_rule(name) or not isinstance(getattr(ops, name), Composite)}
    lowered = lower(captured, known, strict=False)
    kinds = lowered.signature.states
    tensors = {n: n.value for n in lowered.states if kinds[n.label] in ("parameter", "buffer")}
    analysis = DependencyAnalysis(lowered, tensors, keep_scales=True)
    couple_rectangles(analysis)
    representatives, can = prunable(analysis)
    axes = axes_of_channels(analysis.stored, representatives, can)
    return [
        ChannelGroup(tuple(sorted((node.label, axis) for node, axis in axes[peers[0]])), len(peers))
        for peers in group_by_axes(analysis, representatives, axes)
    ]


def _has_rule(name: str) -> bool:
    return name in RULES or getattr(ops, name).kind.value in KINDS


def axes_of_channels(
    stored: dict[Node, list[np.ndarray]], representatives: np.ndarray, can: np.ndarray
) -> dict[int, list[tuple[Node, int]]]:
    """Return the axes of weights that each channel which ``can`` be removed is on, by its representative."""
    axes_of: dict[int, list[tuple[Node, int]]] = {}
    for node, axes in stored.items():
        for axis, channels in enumerate(axes):
            for representative in np.unique(representatives[channels[can[channels]]]).tolist():
                axes_of.setdefault(representative, []).append((node, axis))
    return axes_of


def group_by_axes(
    analysis: DependencyAnalysis, representatives: np.ndarray, axes_of: dict[int, list[tuple[Node, int]]]
) -> list[list[int]]:
    """Return lists of representatives that are on the same axes and in the same groups of convolutions."""
    memberships = _group_memberships(analysis, representatives)
    peers: dict[tuple[Place, ...], list[int]] = {}
    for representative, axes in axes_of.items():
        peers.setdefault((*axes, *memberships.get(representative, ())), []).append(representative)
    return list(peers.values())


def _group_memberships(
    analysis: DependencyAnalysis, representatives: np.ndarray
) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the groups of convolutions that a channel is in, of which each has to lose equally many."""
    memberships: dict[int, tuple[tuple[int, int], ...]] = {}
    for number, groups in enumerate(analysis.groups.values()):
        for side in (groups.inner, groups.outer):
            for group, channels in enumerate(representatives[side]):
                for representative in np.unique(channels).tolist():
                    memberships[representative] = (*memberships.get(representative, ()), (number, group))
    return memberships
