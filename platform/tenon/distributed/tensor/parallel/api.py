"""``parallelize_module``: apply a plan of parallel styles to a module."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import cast

from tenon.distributed.device_mesh import DeviceMesh, current_mesh
from tenon.distributed.tensor.dtensor import DTensor
from tenon.distributed.tensor.parallel.parallel_style import ParallelStyle
from tenon.errors import ArgumentError, TenonWarning
from tenon.nn.module import Module


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Make ``module`` tensor-parallel over ``device_mesh``, in place, and return it.

    ``parallelize_plan`` is one style for the module, or a dict of styles by the paths of submodules, in which
    each part of a path may have ``*`` and ``?``; the empty path is the module itself. A path that matches
    nothing is warned of. The mesh has one dimension: select it by name from one of several, ``mesh["tp"]``.
    Parameters are those of rank ``src_data_rank`` of the mesh, or with None each rank's own. Collective:
    all ranks of the mesh pass the same. Create the optimizer, and call ``fully_shard``, afterwards.

    The whole plan is checked first: if a style does not fit its module (``UnsupportedError``), or if two
    styles shard one module (``ArgumentError``), nothing has been changed. A parameter of a sharded module
    that is shared with one that is not in the plan is warned of: it is shared again once the other has been
    made parallel by another call, or has been given the parameter.

    Source: torch.distributed.tensor.parallel.parallelize_module.

    >>> from tenon import nn
    >>> from tenon.distributed import init_device_mesh
    >>> from tenon.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    >>> model = parallelize_module(model, init_device_mesh("cpu", (1,)), plan)
    >>> model[0].weight.placements, model[2].weight.placements
    ((Shard(dim=0),), (Shard(dim=1),))
    """
    mesh = current_mesh(device_mesh, "parallelize_module")
    if mesh.ndim != 1:
        raise ArgumentError(
            f"parallelize_module takes a mesh of one dimension, but {mesh!r} has {mesh.ndim}. Select one by"
            ' name, as mesh["tp"].'
        )
    if parallelize_plan is None:
        warnings.warn(
            "No parallelize_plan is provided and auto-parallel is not supported at the moment, so this"
            " parallelize_module call will do nothing.",
            TenonWarning,
            stacklevel=2,
        )
        return module
    targets = _targets(module, parallelize_plan)
    _check(module, targets, mesh)
    for target, style, _ in targets:
        style.src_data_rank = src_data_rank
        style._apply(target, mesh)
    return module


#: A module, the style that is applied to it, and its path.
Target = tuple[Module, ParallelStyle, str]


def _targets(module: Module, plan: object) -> list[Target]:
    """The modules that a plan names; warns of paths that match none, and raises TypeError for other plans."""
    if isinstance(plan, ParallelStyle):
        return [(module, plan, "")]
    if not isinstance(plan, Mapping) or not all(isinstance(style, ParallelStyle) for style in plan.values()):
        found = plan if isinstance(plan, Mapping) else type(plan)
        raise TypeError(
            f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {found} found!"
        )
    targets = []
    for pattern, style in cast("Mapping[str, ParallelStyle]", plan).items():
        matching = matches(module, pattern)
        if not matching:
            names = ", ".join(repr(name) for name, _ in module.named_children())
            warnings.warn(
                f"Parallelize plan key '{pattern}' could not be resolved: no submodule matching it in"
                f" {type(module).__name__}, whose children are {names or 'none'}; skipping this plan entry.",
                TenonWarning,
                stacklevel=3,
            )
        targets += [(target, style, path) for path, target in matching]
    return targets


def matches(module: Module, pattern: str) -> list[tuple[str, Module]]:
    """The submodules at ``pattern``, with their paths."""
    found = [("", module)]
    for token in pattern.split(".") if pattern else []:
        found = [
            (f"{path}.{name}" if path else name, child)
            for path, parent in found
            for name, child in parent.named_children()
            if fnmatchcase(name, token)
        ]
    return found


def _check(module: Module, targets: list[Target], mesh: DeviceMesh) -> None:
    """Raise unless all styles fit their modules, and warn of parameters that are not shared any more."""
    sharded: dict[int, str] = {}
    inside: set[int] = set()
    for target, style, path in targets:
        style._check(target, path)
        if not style._shards:
            continue
        if id(target) in sharded or getattr(target, "_distribute_module_applied", False):
            raise ArgumentError(
                f"parallelize_module: {path or 'the module'} ({type(target).__name__}) is sharded already, by"
                " another entry of the plan or an earlier call. A module takes one of ColwiseParallel,"
                " RowwiseParallel, SequenceParallel and styles of your own."
            )
        _check_meshes(target, path, mesh)
        sharded[id(target)] = path
        inside.update(id(m) for m in target.modules())
    owners: dict[int, list[tuple[str, bool]]] = {}
    for path, submodule in module.named_modules():
        for name, parameter in submodule._parameters.items():
            if parameter is not None:
                place = f"{path}.{name}" if path else name, id(submodule) in inside
                owners.setdefault(id(parameter), []).append(place)
    for places in owners.values():
        if len({is_sharded for _, is_sharded in places}) > 1:
            here = next(name for name, is_sharded in places if is_sharded)
            there = next(name for name, is_sharded in places if not is_sharded)
            warnings.warn(
                f"parallelize_module: parameter {here!r} is shared with {there!r}, which the plan does not"
                " name: from now on they are two parameters, unless another call makes the other module"
                " parallel or you assign one to the other. A tied embedding and head are RowwiseParallel()"
                " and ColwiseParallel().",
                TenonWarning,
                stacklevel=3,
            )


def _check_meshes(target: Module, path: str, mesh: DeviceMesh) -> None:
    """Raise if a parameter of ``target`` is sharded over another mesh already."""
    for name, parameter in target.named_parameters():
        if isinstance(parameter, DTensor) and parameter.device_mesh != mesh:
            raise ArgumentError(
                f"parallelize_module: parameter {(f'{path}.{name}' if path else name)!r} is a DTensor on"
                f" {parameter.device_mesh!r} already. Call parallelize_module first, and fully_shard on"
                " another dimension of the mesh afterwards."
            )
