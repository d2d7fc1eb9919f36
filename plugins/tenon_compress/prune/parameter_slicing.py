"""Cut the parameters and buffers of a model to what stays of them, and tell the layers their numbers."""

from __future__ import annotations

import numpy as np

from tenon import Tensor, from_numpy, int64, ops, tensor
from tenon.extend import Node
from tenon.nn.layers.conv import _ConvNd
from tenon.nn.module import Module
from tenon_compress.prune.dependencies import DependencyAnalysis
from tenon_compress.prune.removal import Removal
from tenon_compress.prune.structure import apply_structure, note_structure, sizes_of, structure_of


def tensors_of(model: Module) -> list[Tensor]:
    """All parameters and buffers."""
    return [*model.parameters(), *model.buffers()]


def slice_parameters(model: Module, analysis: DependencyAnalysis, found: Removal) -> None:
    """Cut the parameters and set the numbers of the layers whose class is known."""
    changed = set()
    for node, held in analysis.trace.stored.items():
        data, kept = held.detach(), found.kept[node]
        if node in found.gains:
            data = data + from_numpy(np.asarray(found.gains[node])).to(device=data.device, dtype=data.dtype)
        if node in found.columns:
            changed.add(id(held))
            held.data = _of_groups(data, kept[0], found.columns[node])
            _set_groups(model, analysis, node, found)
            continue
        for axis, places in enumerate(kept):
            if not places.all():
                changed.add(id(held))
                data = _chosen(data, axis, np.flatnonzero(places))
        held.data = data
    structure = structure_of(model)
    for path, module in model.named_modules():
        if any(id(t) in changed for t in tensors_of(module)):
            numbers = sizes_of(module)
            if numbers is not None:
                structure[path] = numbers
    apply_structure(model, structure)
    note_structure(model, structure)


def _chosen(data: Tensor, axis: int, places: np.ndarray) -> Tensor:
    return data.index_select(axis, tensor(places.tolist(), device=data.device, dtype=int64))


def _of_groups(weight: Tensor, rows: np.ndarray, columns: np.ndarray) -> Tensor:
    """The rows that stay of the weight of a convolution, each with the columns of its group."""
    size = len(rows) // len(columns)
    parts = []
    for group, kept in enumerate(columns):
        own = np.flatnonzero(rows[group * size : (group + 1) * size]) + group * size
        if own.size:
            parts.append(_chosen(_chosen(weight, 0, own), 1, np.flatnonzero(kept)))
    return ops.cat(*parts, axis=0)


def _set_groups(model: Module, analysis: DependencyAnalysis, node: Node, found: Removal) -> None:
    """How many groups a layer has cannot be told from its weight."""
    groups = analysis.groups[node]
    inputs, outputs = (~found.gone[channels] for channels in (groups.inner, groups.outer))
    for module in model.modules():
        if isinstance(module, _ConvNd) and module._parameters.get("weight") is analysis.trace.stored[node]:
            module.groups = int(outputs.any(1).sum())
            module.in_channels, module.out_channels = int(inputs.sum()), int(outputs.sum())
