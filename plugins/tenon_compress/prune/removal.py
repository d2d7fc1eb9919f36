"""Which channels are removed, and what remains of the parameters of a model.

A channel is removed if nothing keeps it and no sum loses a contribution. Where one axis of a value is viewed
as several (heads and their widths), only whole slices are removed, so that the value remains a rectangular
array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tenon.extend import Node, Ref
from tenon_compress.prune.coupled_channels import FIXED
from tenon_compress.prune.dependencies import DependencyAnalysis, Reduction, varying, without_repeats


@dataclass(frozen=True, slots=True)
class Removal:
    """The positions of parameters and buffers that are kept along each axis, and what is added to biases."""

    #: Whether a channel is removed, for each channel.
    is_removed: np.ndarray
    kept: dict[Node, list[np.ndarray]]
    #: The same for axis 1 of the weights of grouped convolutions: a row for each group.
    columns: dict[Node, np.ndarray]
    gains: dict[Node, np.ndarray]
    #: The new shapes of values whose shapes change.
    shapes: dict[Ref, tuple[int, ...]]

    @property
    def count(self) -> int:
        """How many positions of all axes are removed."""
        masks = [kept for axes in self.kept.values() for kept in axes]
        return sum(int((~kept).sum()) for kept in (*masks, *self.columns.values()))


def prunable(analysis: DependencyAnalysis) -> tuple[np.ndarray, np.ndarray]:
    """Return the representative of every channel, and whether it could be removed if it were zero.

    It can if something sums over it and nothing keeps it.
    """
    channels = analysis.channels
    representatives = np.array([channels.find(i) for i in range(len(channels.parents))])
    can = np.zeros(len(representatives), bool)
    for reduction in analysis.reductions:
        can[representatives[reduction.channels]] = True
    can[representatives[[FIXED, *channels.reasons]]] = False
    axes = np.zeros(len(representatives), np.int64)
    for axis in (axis for stored in analysis.stored.values() for axis in stored):
        axes[np.unique(representatives[axis])] += 1
    # Constants that code creates for a single layer do not shrink with it.
    for created in analysis.created_constants:
        can[representatives[created][axes[representatives[created]] < 2]] = False
    return representatives, can[representatives]


def removable(analysis: DependencyAnalysis) -> np.ndarray:
    """Return for each channel whether it can be removed."""
    representatives, is_removed = prunable(analysis)
    liveness = _Liveness(analysis, representatives)
    changed = True
    while changed:  # cheap steps first; a channel that is restored may require others
        changed = (
            liveness.restore(is_removed)
            or _keep_one_position(analysis, representatives, is_removed)
            or _restore_rectangles(analysis, representatives, is_removed)
            or equalize_groups(analysis, representatives, is_removed)
        )
    return is_removed[representatives]


def removal(analysis: DependencyAnalysis, is_removed: np.ndarray) -> Removal:
    """Return what removing the channels ``is_removed`` leaves of the parameters."""
    kept = {node: [~is_removed[axis] for axis in axes] for node, axes in analysis.stored.items()}
    columns = {node: ~is_removed[groups.columns] for node, groups in analysis.groups.items()}
    gains: dict[Node, np.ndarray] = {}
    for fold in analysis.folds:
        added = fold.gains[:, is_removed[fold.channels]].sum(1)
        gains[fold.bias] = gains.get(fold.bias, 0) + added
    shapes = {}
    for ref, abstract in analysis.abstract_values.items():
        sizes = list(abstract.shape)
        for channel_map in abstract.channel_maps:
            for axis in varying(channel_map):
                others = tuple(i for i in range(len(sizes)) if i != axis)
                sizes[axis] = int((~is_removed[channel_map].all(others)).sum())
        if tuple(sizes) != abstract.shape:
            shapes[ref] = tuple(sizes)
    return Removal(is_removed, kept, columns, gains, shapes)


def _keep_one_position(
    analysis: DependencyAnalysis, representatives: np.ndarray, is_removed: np.ndarray
) -> bool:
    """Restore the first position of axes that would lose all; return whether there were any."""
    changed = False
    for axes in analysis.stored.values():
        for axis in axes:
            if axis.size and is_removed[representatives[axis]].all():
                is_removed[representatives[axis[0]]] = False
                changed = True
    return changed


class _Liveness:
    """Which channels the remaining values need, from the outputs backwards.

    A value without elements needs nothing, and neither does a value that only such values are computed from,
    such as the queries of a head whose values are removed.
    """

    def __init__(self, analysis: DependencyAnalysis, representatives: np.ndarray) -> None:
        self.analysis, self.representatives = analysis, representatives
        self.reductions: dict[Node, list[Reduction]] = {}
        for each in analysis.reductions:
            self.reductions.setdefault(each.node, []).append(each)
        self.nodes = [node for node in reversed(analysis.graph.nodes) if node.kind == "call"]
        self.readers: dict[Node, list[Node]] = {}
        for node in self.nodes:
            for ref in node.refs:
                self.readers.setdefault(ref.node, []).append(node)
        self.channel_maps = {
            node: [
                [np.unique(representatives[a]) for a in analysis.abstract_values[node.out(i)].channel_maps]
                for i in range(len(node.avals))
            ]
            for node in self.nodes
        }
        self.outputs = {ref.node for ref in analysis.graph.outputs}

    def restore(self, is_removed: np.ndarray) -> bool:
        """Restore channels in ``is_removed`` that are needed; return whether there were any."""
        changed = False
        idle: set[Node] = set()
        for node in self.nodes:
            readers = self.readers.get(node)
            empty = all(
                any(is_removed[channel_map].all() for channel_map in channel_maps)
                for channel_maps in self.channel_maps[node]
            )
            if node not in self.outputs and (empty or (readers and idle.issuperset(readers))):
                idle.add(node)
                continue
            for each in self.reductions.get(node, ()):
                if each.into is not None and is_removed[self.representatives[each.into]].all():
                    continue
                needed = each.channels[~each.free]
                if is_removed[self.representatives[needed]].any():
                    self.analysis.channels.keep(needed, each.reason)
                    is_removed[self.representatives[needed]] = False
                    changed = True
        return changed


def equalize_groups(
    analysis: DependencyAnalysis,
    representatives: np.ndarray,
    is_removed: np.ndarray,
    scores: np.ndarray | None = None,
) -> bool:
    """Restore channels so that the groups of a convolution lose equally many inputs and outputs.

    Groups that lose all of both are left out. Channels that are in excess in other convolutions too are
    restored first, and of these the ones with the largest ``scores``. Return whether any was restored.
    """
    sides = []
    excess = np.zeros(len(is_removed), np.int64)
    for groups in analysis.groups.values():
        inner, outer = representatives[groups.inner], representatives[groups.outer]
        remaining = ~(is_removed[inner].all(1) & is_removed[outer].all(1))
        for side in (inner[remaining], outer[remaining]):
            lost = is_removed[side].sum(1)
            common = min(lost.min(initial=side.shape[1]), side.shape[1] - 1)
            sides.append((side, common))
            np.add.at(excess, side, np.broadcast_to((lost - common)[:, None], side.shape))
    changed = False
    for side, common in sides:
        for group in side:
            lost = group[is_removed[group]]
            order = np.lexsort((np.zeros(len(lost)) if scores is None else -scores[lost], -excess[lost]))
            for representative in lost[order].tolist():
                if is_removed[group].sum() > common:
                    analysis.channels.keep(
                        np.array([representative]), "all groups of a convolution lose equally many"
                    )
                    is_removed[representative] = False
                    changed = True
    return changed


def _restore_rectangles(
    analysis: DependencyAnalysis, representatives: np.ndarray, is_removed: np.ndarray
) -> bool:
    """Restore channels whose removal would leave a hole in a value; return whether there were any."""
    changed = False
    for abstract in analysis.abstract_values.values():
        for channel_map in abstract.channel_maps:
            if len(varying(channel_map)) < 2:
                continue
            channels = representatives[channel_map]
            removed = is_removed[channels]
            if not removed.any():
                continue
            partial = np.ones(channel_map.shape, bool)
            for axis in varying(channel_map):
                others = tuple(i for i in range(channel_map.ndim) if i != axis)
                partial &= ~removed.all(others, keepdims=True)
            holes = removed & partial
            if holes.any():
                is_removed[channels[holes]] = False
                changed = True
    return changed


def couple_rectangles(analysis: DependencyAnalysis) -> None:
    """Couple positions that can only be removed together because one axis is viewed as several.

    Each position along the longest of them, across all others, becomes one channel: such as in channel
    shuffles.
    """
    for abstract in analysis.abstract_values.values():
        for channel_map in abstract.channel_maps:
            channel_map = without_repeats(analysis.channels.representatives(channel_map))
            longest = max(varying(channel_map), key=lambda axis: channel_map.shape[axis], default=None)
            for axis in varying(channel_map) - {longest}:
                analysis.channels.couple(np.take(channel_map, [0], axis), channel_map)


def kept_zero_rows(analysis: DependencyAnalysis, is_removed: np.ndarray, names: dict[Node, str]) -> list[str]:
    """Return sentences about rows of weights that are zero and are kept nevertheless, and why."""
    notes: list[str] = []
    for node, axes in analysis.stored.items():
        value = analysis.abstract_values[Ref(node, 0)].value
        if len(axes) < 2 or value is None or node not in names:
            continue
        value = np.broadcast_to(value, node.avals[0].shape)
        zero = ~(value != 0).reshape(len(axes[0]), -1).any(1) & ~is_removed[axes[0]]
        reasons = dict.fromkeys(analysis.channels.reason(int(a)) for a in axes[0][zero])
        if any(reasons):
            why = ", and ".join(filter(None, reasons))
            notes.append(f"{int(zero.sum())} zero rows of {names[node]} stay: {why}")
    return notes
