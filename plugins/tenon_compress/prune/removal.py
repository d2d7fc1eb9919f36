"""Which atoms go, and what that makes of the parameters of a model.

An atom goes if nothing keeps it and every sum that ends it loses nothing. Where one axis of a value is seen
as several (heads and their widths), only whole rows of them go: the value stays a rectangle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.extend import Node, Ref
from tenon_compress.prune.atoms import FIXED
from tenon_compress.prune.flow import Analysis, Sum, squeezed, varying


@dataclass(frozen=True, slots=True)
class Removal:
    """For every parameter and buffer the positions that stay along each axis, and what is added to biases."""

    #: One boolean for each atom.
    gone: Any
    kept: dict[Node, list[Any]]
    #: The same for axis 1 of the weights of convolutions in groups: a row for each group.
    columns: dict[Node, Any]
    gains: dict[Node, Any]
    #: The new shapes of values that have another one now.
    shapes: dict[Ref, tuple[int, ...]]

    @property
    def count(self) -> int:
        """How many positions of all axes go."""
        several = [kept for axes in self.kept.values() for kept in axes]
        return sum(int((~kept).sum()) for kept in (*several, *self.columns.values()))


def prunable(analysis: Analysis) -> tuple[Any, Any]:
    """The root of every atom, and whether it could go if it were zero: something sums over it, and nothing
    keeps it."""
    atoms = analysis.atoms
    roots = np.array([atoms.find(i) for i in range(len(atoms.parents))])
    can = np.zeros(len(roots), bool)
    for each in analysis.sums:
        can[roots[each.atoms]] = True
    can[roots[[FIXED, *atoms.reasons]]] = False
    axes = np.zeros(len(roots), np.int64)
    for each in (axis for held in analysis.stored.values() for axis in held):
        axes[np.unique(roots[each])] += 1
    for made in analysis.made:  # constants that code creates for one layer alone are not what that removes
        can[roots[made][axes[roots[made]] < 2]] = False
    return roots, can[roots]


def removable(analysis: Analysis) -> Any:
    """One boolean for each atom: whether it goes."""
    roots, gone = prunable(analysis)
    demand = _Demand(analysis, roots)
    changed = True
    while changed:  # cheap and sure things first: what is put back may put back more
        changed = (
            demand.feed(gone)
            or _leave_something(analysis, roots, gone)
            or _make_rectangles(analysis, roots, gone)
            or level_groups(analysis, roots, gone)
        )
    return gone[roots]


def removal(analysis: Analysis, gone: Any) -> Removal:
    """What ``gone``, one boolean for each atom, makes of the parameters."""
    kept = {node: [~gone[axis] for axis in axes] for node, axes in analysis.stored.items()}
    columns = {node: ~gone[groups.columns] for node, groups in analysis.groups.items()}
    gains: dict[Node, Any] = {}
    for fold in analysis.folds:
        added = fold.gains[:, gone[fold.atoms]].sum(1)
        gains[fold.bias] = gains.get(fold.bias, 0) + added
    shapes = {}
    for ref, flow in analysis.flows.items():
        sizes = list(flow.shape)
        for layer in flow.layers:
            for axis in varying(layer):
                others = tuple(i for i in range(len(sizes)) if i != axis)
                sizes[axis] = int((~gone[layer].all(others)).sum())
        if tuple(sizes) != flow.shape:
            shapes[ref] = tuple(sizes)
    return Removal(gone, kept, columns, gains, shapes)


def _leave_something(analysis: Analysis, roots: Any, gone: Any) -> bool:
    """Where every position of an axis would go, the first stays."""
    changed = False
    for axes in analysis.stored.values():
        for axis in axes:
            if axis.size and gone[roots[axis]].all():
                gone[roots[axis[0]]] = False
                changed = True
    return changed


class _Demand:
    """What is needed by what is left, from the outputs on. A value without elements asks for nothing, nor
    does what only such values are computed from: the queries of a head whose values are gone."""

    def __init__(self, analysis: Analysis, roots: Any) -> None:
        self.analysis, self.roots = analysis, roots
        self.sums: dict[Node, list[Sum]] = {}
        for each in analysis.sums:
            self.sums.setdefault(each.node, []).append(each)
        self.nodes = [node for node in reversed(analysis.trace.graph.nodes) if node.kind == "call"]
        self.readers: dict[Node, list[Node]] = {}
        for node in self.nodes:
            for ref in node.refs:
                self.readers.setdefault(ref.node, []).append(node)
        self.layers = {
            node: [
                [np.unique(roots[a]) for a in analysis.flows[node.out(i)].layers]
                for i in range(len(node.avals))
            ]
            for node in self.nodes
        }
        self.last = {ref.node for ref in analysis.trace.outputs}

    def feed(self, gone: Any) -> bool:
        """Put back what is needed and ``gone``."""
        changed = False
        idle: set[Node] = set()
        for node in self.nodes:
            readers = self.readers.get(node)
            empty = all(any(gone[layer].all() for layer in layers) for layers in self.layers[node])
            if node not in self.last and (empty or (readers and idle.issuperset(readers))):
                idle.add(node)
                continue
            for each in self.sums.get(node, ()):
                if each.into is not None and gone[self.roots[each.into]].all():
                    continue
                needed = each.atoms[~each.free]
                if gone[self.roots[needed]].any():
                    self.analysis.atoms.keep(needed, each.reason)
                    gone[self.roots[needed]] = False
                    changed = True
        return changed


def level_groups(analysis: Analysis, roots: Any, gone: Any, worth: Any = None) -> bool:
    """Let each group of a convolution lose as many inputs as the others and as many outputs, if not all of
    both: those stay that are too many elsewhere too, and of these those of the most ``worth``."""
    sides = []
    crowd = np.zeros(len(gone), np.int64)
    for groups in analysis.groups.values():
        inner, outer = roots[groups.inner], roots[groups.outer]
        stay = ~(gone[inner].all(1) & gone[outer].all(1))
        for side in (inner[stay], outer[stay]):
            lost = gone[side].sum(1)
            least = min(lost.min(initial=side.shape[1]), side.shape[1] - 1)
            sides.append((side, least))
            np.add.at(crowd, side, np.broadcast_to((lost - least)[:, None], side.shape))
    changed = False
    for side, least in sides:
        for group in side:
            lost = group[gone[group]]
            order = np.lexsort((np.zeros(len(lost)) if worth is None else -worth[lost], -crowd[lost]))
            for root in lost[order].tolist():
                if gone[group].sum() > least:
                    analysis.atoms.keep(np.array([root]), "all groups of a convolution lose equally many")
                    gone[root] = False
                    changed = True
    return changed


def _make_rectangles(analysis: Analysis, roots: Any, gone: Any) -> bool:
    """Let nothing go that would leave a hole in a value."""
    changed = False
    for flow in analysis.flows.values():
        for layer in flow.layers:
            if len(varying(layer)) < 2:
                continue
            atoms = roots[layer]
            going = gone[atoms]
            if not going.any():
                continue
            inside = np.ones(layer.shape, bool)
            for axis in varying(layer):
                others = tuple(i for i in range(layer.ndim) if i != axis)
                inside &= ~going.all(others, keepdims=True)
            holes = going & inside
            if holes.any():
                gone[atoms[holes]] = False
                changed = True
    return changed


def unite_rectangles(analysis: Analysis) -> None:
    """Let those positions be one atom that go together only: where one axis is seen as several (the halves of
    a shuffle), a place along the longest in all of the others."""
    for flow in analysis.flows.values():
        for layer in flow.layers:
            layer = squeezed(analysis.atoms.roots(layer))
            longest = max(varying(layer), key=lambda axis: layer.shape[axis], default=None)
            for axis in varying(layer) - {longest}:
                analysis.atoms.unite(np.take(layer, [0], axis), layer)


def stays(analysis: Analysis, gone: Any, names: dict[Node, str]) -> list[str]:
    """Sentences about rows of weights that are zero and stay all the same, and why."""
    said: list[str] = []
    for node, axes in analysis.stored.items():
        value = analysis.flows[Ref(node, 0)].value
        if len(axes) < 2 or value is None or node not in names:
            continue
        value = np.broadcast_to(value, node.avals[0].shape)
        zero = ~(value != 0).reshape(len(axes[0]), -1).any(1) & ~gone[axes[0]]
        reasons = dict.fromkeys(analysis.atoms.reason(int(a)) for a in axes[0][zero])
        if any(reasons):
            why = ", and ".join(filter(None, reasons))
            said.append(f"{int(zero.sum())} zero rows of {names[node]} stay: {why}")
    return said
