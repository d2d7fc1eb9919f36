"""What ``[data_parallel]`` asks for: batch norm over all ranks, hooks on messages, sharded optimizers."""

from __future__ import annotations

import difflib
from typing import Any

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.replicas import comm_hooks
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.distributed.zero import ZeroRedundancyOptimizer
from tenon.errors import ConfigError, PluginNotFoundError, TenonError
from tenon.nn.layers.sync_batch_norm import SyncBatchNorm
from tenon.nn.module import Module
from tenon.plugins import registry
from tenon.training.config import RunConfig
from tenon.training.recipe import check_options, find_optimizer

HOOK = "data_parallel.comm_hook"


def prepare_model(config: RunConfig, model: Module) -> Module:
    """``model`` with batch norm over all ranks, where the configuration asks for it."""
    if config.data_parallel.sync_batch_norm:
        return SyncBatchNorm.convert_sync_batchnorm(model)
    return model


def shard(config: RunConfig, model: Module, communicator: Communicator) -> ZeroRedundancyOptimizer:
    """The configured optimizer, whose state is spread over the ranks."""
    cls, named, options = find_optimizer(config, model)
    try:
        return ZeroRedundancyOptimizer(named, cls, communicator, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer = {{name = {config.optimizer.name!r}, {options}}}: {error}") from error


def make_synchronizer(config: RunConfig, model: Module, communicator: Communicator) -> GradientSynchronizer:
    """What averages the model's gradients, by the hook of the configuration if it names one."""
    synchronizer = GradientSynchronizer(
        model.named_parameters(),
        communicator,
        bucket_cap_mb=config.data_parallel.bucket_cap_mb,
        module=model,
    )
    found = find_hook(config)
    if found is not None:
        synchronizer.reduce = comm_hooks.reduction(synchronizer, *found)
    return synchronizer


def find_hook(config: RunConfig) -> tuple[Any, comm_hooks.Hook] | None:
    """State and hook, or None; ``ConfigError`` by path for a name or an option that does not exist.

    The options make the state of a hook that has ``make_state``; another one gets them as they are, or None
    for none.
    """
    name, options = config.data_parallel.comm_hook, config.data_parallel.comm_hook_options
    if name is None:
        return None
    try:
        hook = comm_hooks.find(name)
    except PluginNotFoundError as error:
        near = difflib.get_close_matches(name, [*comm_hooks.NAMED, *registry.names("comm_hooks")], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{HOOK} = {name!r}: {error}{hint}") from error
    make_state = getattr(hook, "make_state", None)
    if make_state is None:
        if options and name in comm_hooks.NAMED:
            raise ConfigError(
                f"{HOOK}_options = {options}: the hook {name!r} has no options. Leave them out."
            )
        return options or None, hook
    check_options(make_state, options, f"{HOOK}_options", skip=("process_group",))
    try:
        return make_state(None, **options), hook
    except (TypeError, ValueError, TenonError) as error:
        raise ConfigError(f"{HOOK}_options = {options}: {error}") from error
