"""Slice the parameters and buffers of a model to what is kept, and set the sizes of its layers."""

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
    """Return all parameters and buffers."""
    return [*model.parameters(), *model.buffers()]


def slice_parameters(model: Module, analysis: DependencyAnalysis, removal: Removal) -> None:
    """Slice the parameters in place and set the sizes of layers of known classes."""
    changed = set()
    for node, parameter in analysis.tensors.items():
        data, kept = parameter.detach(), removal.kept[node]
        if node in removal.gains:
            data = data + from_numpy(np.asarray(removal.gains[node])).to(device=data.device, dtype=data.dtype)
        if node in removal.columns:
            changed.add(id(parameter))
            parameter.data = _slice_groups(data, kept[0], removal.columns[node])
            _set_groups(model, analysis, node, removal)
            continue
        for axis, positions in enumerate(kept):
            if not positions.all():
                changed.add(id(parameter))
                data = _select(data, axis, np.flatnonzero(positions))
        parameter.data = data
    structure = structure_of(model)
    for path, module in model.named_modules():
        if any(id(t) in changed for t in tensors_of(module)):
            numbers = sizes_of(module)
            if numbers is not None:
                structure[path] = numbers
    apply_structure(model, structure)
    note_structure(model, structure)


def _select(data: Tensor, axis: int, positions: np.ndarray) -> Tensor:
    return data.index_select(axis, tensor(positions.tolist(), device=data.device, dtype=int64))


def _slice_groups(weight: Tensor, rows: np.ndarray, columns: np.ndarray) -> Tensor:
    """Return the kept rows of a grouped convolution's weight, each with the kept columns of its group."""
    size = len(rows) // len(columns)
    parts = []
    for group, kept in enumerate(columns):
        group_rows = np.flatnonzero(rows[group * size : (group + 1) * size]) + group * size
        if group_rows.size:
            parts.append(_select(_select(weight, 0, group_rows), 1, np.flatnonzero(kept)))
    return ops.cat(*parts, axis=0)


def _set_groups(model: Module, analysis: DependencyAnalysis, node: Node, removal: Removal) -> None:
    """Set the numbers of groups and channels of the convolution whose weight is ``node``."""
    groups = analysis.groups[node]
    inputs, outputs = (~removal.is_removed[channels] for channels in (groups.inner, groups.outer))
    for module in model.modules():
        if isinstance(module, _ConvNd) and module._parameters.get("weight") is analysis.tensors[node]:
            module.groups = int(outputs.any(1).sum())
            module.in_channels, module.out_channels = int(inputs.sum()), int(outputs.sum())
