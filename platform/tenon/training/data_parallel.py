"""Apply the section ``[data_parallel]``: synchronized batch norm, communication hooks, sharded optimizers."""

from __future__ import annotations

import difflib

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


def prepare_model(config: RunConfig, model: Module, replicas: Communicator | None = None) -> Module:
    """``model``, with batch norm converted to ``SyncBatchNorm`` over ``replicas`` if so configured."""
    if config.data_parallel.sync_batch_norm:
        return SyncBatchNorm.convert_sync_batchnorm(model, replicas)
    return model


def shard(config: RunConfig, model: Module, communicator: Communicator) -> ZeroRedundancyOptimizer:
    """Build the configured optimizer with its state sharded over the ranks (ZeRO stage 1)."""
    cls, named, options = find_optimizer(config, model)
    try:
        return ZeroRedundancyOptimizer(named, cls, communicator, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer = {{name = {config.optimizer.name!r}, {options}}}: {error}") from error


def make_synchronizer(config: RunConfig, model: Module, communicator: Communicator) -> GradientSynchronizer:
    """Build the synchronizer that averages gradients, through the configured communication hook if any."""
    synchronizer = GradientSynchronizer(
        model.named_parameters(),
        communicator,
        bucket_cap_mb=config.data_parallel.bucket_cap_mb,
        module=model,
    )
    state_and_hook = find_hook(config)
    if state_and_hook is not None:
        synchronizer.reduce = comm_hooks.reduction(synchronizer, *state_and_hook)
    return synchronizer


def find_hook(config: RunConfig) -> tuple[object, comm_hooks.Hook] | None:
    """``(state, hook)`` of the configured communication hook, or None.

    ConfigError for an unknown name or option.

    A hook with ``make_state`` gets the state that it builds from the options; any other gets the options
    themselves, or None if there are none.
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
