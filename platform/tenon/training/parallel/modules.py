"""Make the parts of the model that a rank has: tensor-parallel layers, and shards of the rest."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from tenon.distributed.fsdp import fully_shard
from tenon.distributed.pipelining.split_points import members_of_lists
from tenon.distributed.replicas.logical_shards import SHARDS
from tenon.distributed.tensor.parallel import ParallelStyle, parallelize_module
from tenon.distributed.tensor.parallel.api import matches
from tenon.errors import ConfigError
from tenon.nn.module import Module
from tenon.training.config import RunConfig
from tenon.training.parallel.mesh import Mesh

#: Modules of fewer bytes of parameters are gathered with the module around them, in one message.
SMALLEST = 1 << 16


def nearest(path: str, model: Module) -> str:
    """A sentence with the path in ``model`` that ``path`` may stand for, or with some of its paths."""
    known = [name for name, _ in model.named_modules() if name]
    near = difflib.get_close_matches(path, known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"It has {', '.join(map(repr, known[:8])) or 'none'}{' ...' if len(known) > 8 else ''}."


def gathered_alone(model: Module, patterns: list[str]) -> list[Module]:
    """The modules whose parameters are gathered one module at a time.

    Those that ``patterns`` match, by default the members of the model's outermost lists (``Sequential`` and
    ``ModuleList``) that have at least 64 KiB of parameters. ConfigError for a pattern that matches nothing.
    """
    if not patterns:
        members = (member for _, member in members_of_lists(model))
        return [m for m in members if sum(p.nbytes for p in m.parameters()) >= SMALLEST and _is_called(m)]
    named = {name: module for name, module in model.named_modules() if name}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise ConfigError(
                f"parallel.modules: {pattern!r} matches no module of {type(model).__name__}."
                f" {nearest(pattern, model)}"
            )
    chosen = [module for name, module in named.items() if any(fnmatchcase(name, p) for p in patterns)]
    return list(_inner_first(chosen))


def divide(
    module: Module, alone: list[Module], mesh: Mesh, plan: Mapping[str, ParallelStyle], config: RunConfig
) -> None:
    """Make ``module``, the model or a stage of it, tensor-parallel by ``plan``, and shard it; in place.

    ``alone`` are the modules of the model that are gathered by themselves.
    """
    if mesh.sizes.tensor > 1:
        here = {path: style for path, style in plan.items() if matches(module, path)}
        parallelize_module(module, mesh.devices["tensor"], here)
    if mesh.shares == 1:
        return
    over = ("data", "shard") if mesh.sizes.data > 1 else ("shard",)
    reshard = None if config.parallel.reshard else False
    inside = {id(each) for each in module.modules()}
    for each in alone:
        if id(each) in inside and each is not module:
            fully_shard(each, mesh=mesh.devices[over], reshard_after_forward=reshard)
    fully_shard(
        module,
        mesh=mesh.devices[over],
        reshard_after_forward=reshard,
        deterministic=config.deterministic,
        shards=config.shards or SHARDS,
        threads=config.threads or 1,
    )


def _is_called(module: Module) -> bool:
    """Whether ``module`` computes something itself: lists of modules do not."""
    return type(module).forward is not Module.forward


def _inner_first(modules: list[Module]) -> Iterator[Module]:
    """``modules``, each after those that it contains."""
    ids = {id(module) for module in modules}
    depth = {id(m): sum(id(inner) in ids for inner in m.modules()) for m in modules}
    yield from sorted(modules, key=lambda module: depth[id(module)])
