"""The arguments of ``fully_shard``: checks, defaults, and the parameters that a call takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.distributed.communication import world
from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh
from tenon.distributed.fsdp.sharded_parameter import SHARDED_AS, Owner
from tenon.distributed.fsdp.state import STATE, states_of
from tenon.distributed.tensor.placement_types import Shard
from tenon.errors import ArgumentError, ModuleError, OptionError
from tenon.nn.containers import ModuleDict, ModuleList
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter, is_lazy

#: Says which axis of a parameter is split; None for the first.
PlacementFunction = Callable[[Parameter], Shard | None]


def check_module(module: object) -> None:
    """Raise unless ``module`` can be sharded."""
    if not isinstance(module, Module):
        raise ArgumentError(f"fully_shard: {type(module).__name__} is not a Module.")
    if STATE in module.__dict__:
        raise OptionError(
            "Each distinct composable distributed API can only be applied to a module once: fully_shard has"
            f" already been applied to this {type(module).__name__}. Apply it to inner modules first."
        )
    if isinstance(module, ModuleList | ModuleDict) and type(module).forward is Module.forward:
        raise ArgumentError(
            f"fully_shard does not support containers that do not implement forward: {type(module).__name__}."
            " Apply it to the modules in it, or to the module that calls them."
        )


def checked_mesh(mesh: DeviceMesh | None, modules: Sequence[Module]) -> DeviceMesh:
    """``mesh``, by default one of all ranks on the device of the parameters."""
    if mesh is None:
        parameter = next((p for m in modules for p in m.parameters()), None)
        kind = "cpu" if parameter is None or parameter.device.type == "meta" else parameter.device.type
        return init_device_mesh(kind, (world.get_communicator().size,))
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentError(f"fully_shard: mesh is a {type(mesh).__name__}, not a DeviceMesh.")
    if mesh.ndim not in (1, 2):
        raise ArgumentError(
            f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh!r}. A mesh of two dimensions replicates"
            ' over the first and shards over the second; select them by name, mesh["data", "shard"].'
        )
    return mesh


def check_reshard(value: object, mesh: DeviceMesh) -> None:
    """Raise unless ``value`` is a ``reshard_after_forward`` for ``mesh``."""
    if value is None or isinstance(value, bool):
        return
    size = mesh.size(mesh.ndim - 1)
    if not isinstance(value, int) or value < 1 or size % value:
        raise ArgumentError(
            f"If reshard_after_forward is an int, it should be a factor of {size}, the number of ranks that"
            f" parameters are sharded over, not {value!r}."
        )


def owners_of(modules: Sequence[Module], ignored: set[int]) -> list[tuple[str, Parameter, list[Owner]]]:
    """The parameters that no inner ``fully_shard`` module has, with their names and all their owners."""
    found: dict[int, tuple[str, Parameter, list[Owner]]] = {}
    for module in modules:
        for path, submodule in module.named_modules():
            for name, parameter in submodule._parameters.items():
                if parameter is None or id(parameter) in ignored:
                    continue
                full = f"{path}.{name}" if path else name
                if is_lazy(parameter):
                    raise ModuleError(
                        f"fully_shard: parameter {full!r} has no shape yet. Run a forward pass of the lazy"
                        " module first."
                    )
                earlier = parameter.__dict__.get(SHARDED_AS)
                if earlier is not None:
                    raise ArgumentError(
                        f"fully_shard: parameter {full!r} is shared with {earlier!r}, and already managed by"
                        " another fully_shard module. Shard modules that share parameters by one call: on a"
                        " module that contains them, or on a list of them."
                    )
                found.setdefault(id(parameter), (full, parameter, []))[2].append((submodule, name))
    inner = {
        id(p) for m in modules for s in states_of(m) for q in s.group.parameters for p in (q.sharded, q.whole)
    }
    return [entry for key, entry in found.items() if key not in inner]


def placement_of(function: PlacementFunction | None, parameter: Parameter, name: str) -> Shard:
    """The placement that ``function`` gives to ``parameter``; by default the first axis is split."""
    placement = None if function is None else function(parameter)
    if placement is None:
        return Shard(0)
    if not isinstance(placement, Shard):
        raise ArgumentError(
            f"fully_shard: shard_placement_fn returned {placement!r} for {name!r} of {list(parameter.shape)};"
            " it has to return Shard(axis), or None."
        )
    if not -parameter.ndim <= placement.dim < parameter.ndim:
        raise OptionError(
            f"Shard dim {placement.dim} is invalid for {parameter.ndim}D tensor: shard_placement_fn returned"
            f" {placement!r} for {name!r} of {list(parameter.shape)}."
        )
    return placement
