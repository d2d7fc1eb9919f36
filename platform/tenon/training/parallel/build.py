"""Divide the model of a session as its configuration says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

from tenon.data.collate import fetch
from tenon.device import Device
from tenon.distributed.fsdp.state import states_of
from tenon.distributed.pipelining import SplitPoint, pipeline
from tenon.distributed.pipelining.split_points import even_split
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.distributed.replicas.shard_order import check_order
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, CommunicatorError, ConfigError, TenonError, UnsupportedError
from tenon.nn.module import Module
from tenon.tensors.pytree import tree_map
from tenon.tensors.tensor import Tensor
from tenon.training.config import RunConfig, resolve
from tenon.training.data_parallel import prepare_model
from tenon.training.parallel.division import Division, ShardedModel
from tenon.training.parallel.feed import restored_generators
from tenon.training.parallel.initialize import initialize
from tenon.training.parallel.mesh import Mesh, Sizes
from tenon.training.parallel.modules import divide, gathered_alone, nearest
from tenon.training.parallel.pipelined import PipelinedModel
from tenon.training.parallel.tensor_plan import plan_of
from tenon.training.recipe import build_model, recipe_named
from tenon.training.session import Session
from tenon.training.step import to_device, unpack


def check(config: RunConfig, model: Module, ranks: int) -> None:
    """ConfigError unless the section ``[parallel]`` fits ``model`` and the number of ranks."""
    parallel = config.parallel
    sizes = Sizes.of(parallel, ranks)
    gathered_alone(model, parallel.modules)
    if sizes.tensor > 1:
        plan_of(model, parallel.tensor_plan)
    if sizes.pipeline > 1:
        _split(model, parallel.split, sizes.pipeline)
    if parallel.divides and config.shards is not None:
        try:
            check_order(config.shards, sizes.data, sizes.shard)
        except CommunicatorError as error:
            raise ConfigError(str(error)) from None


def mesh_sizes(config: RunConfig, ranks: int) -> dict[str, int]:
    """The sizes of a run's mesh by dimension; ConfigError if they do not fit the number of ranks."""
    return asdict(Sizes.of(config.parallel, ranks))


def division_check(config: RunConfig) -> Callable[[Mapping[str, int], int], str | None]:
    """A function that says why sizes do not divide the run among so many ranks; None if they do."""
    recipe = recipe_named(config.recipe) if config.recipe is not None else None
    with building(config):
        model = build_model(config, recipe)

    def problem(sizes: Mapping[str, int], ranks: int) -> str | None:
        saved = config.model_dump(mode="json")
        saved["parallel"] |= sizes
        if sizes["data"] * sizes["shard"] > config.batch_size:
            return f"a batch of {config.batch_size} has fewer samples than shares"
        try:
            check(resolve([{k: v for k, v in saved.items() if v is not None}]), model, ranks)
        except ConfigError as error:
            return str(error)
        return None

    return problem


@contextlib.contextmanager
def building(config: RunConfig) -> Iterator[None]:
    """Where the model is built: on the meta device, if each rank initializes its part only."""
    if not config.parallel.meta:
        yield
        return
    with Device("meta"):
        yield


def build(session: Session) -> Division | None:
    """Divide ``session.model`` among the ranks, in place; None if each rank has the whole. Collective."""
    config, model = session.config.parallel, session.model
    if not config.divides:
        return None
    sizes = Sizes.of(config, session.size)
    _check_last_batch(session)
    mesh = Mesh(sizes, session.device)
    count = sum(p.numel() for p in model.parameters())
    if not config.meta:
        broadcast_tensors([*model.parameters(), *model.buffers()], session.communicator, name="model")
    model = prepare_model(session.config, model, mesh.replicas)
    alone = gathered_alone(model, config.modules)
    plan = plan_of(model, config.tensor_plan) if sizes.tensor > 1 else {}
    module = _stage_module(session, sizes.pipeline, mesh.stage) if sizes.pipeline > 1 else model
    try:
        divide(module, alone, mesh, plan, session.config)
    except (ArgumentError, CommunicatorError, UnsupportedError) as error:
        raise ConfigError(f"parallel: {error}") from error
    if config.meta:
        initialize(model, module, session.device)
    session.model = module
    outermost = next(iter(states_of(module)), None)
    session.shards = None if outermost is None else outermost.steps
    return (PipelinedModel if sizes.pipeline > 1 else ShardedModel)(mesh, module, count)


def _check_last_batch(session: Session) -> None:
    """ConfigError if the last batch of an epoch has fewer samples than logical shards."""
    samples, size, shards = len(session.data.train), session.config.batch_size, session.config.shards
    rest = samples % size
    if shards is not None and 0 < rest < shards:
        raise ConfigError(
            f'deterministic = "world": the last batch of {samples} samples in batches of {size} has {rest}:'
            f" all ranks of a sharded model need some in each of {shards} shards. Choose another batch_size."
        )


def _split(model: Module, paths: list[str], stages: int) -> dict[str, SplitPoint]:
    """The modules with which stages begin."""
    if not paths:
        try:
            return even_split(model, stages)
        except ArgumentError as error:
            raise ConfigError(f"parallel.pipeline = {stages}: {error}") from None
    if len(paths) != stages - 1:
        raise ConfigError(
            f"parallel.split = {paths} has {len(paths)} paths: of a pipeline of {stages} stages, name the"
            f" {stages - 1} modules with which the second stage and the further ones begin."
        )
    known = dict(model.named_modules())
    for path in paths:
        if path not in known:
            raise ConfigError(
                f"parallel.split: {type(model).__name__} has no module {path!r}. {nearest(path, model)}"
            )
    return dict.fromkeys(paths, SplitPoint.BEGINNING)


def _stage_module(session: Session, stages: int, number: int) -> Module:
    """Stage ``number`` of the session's model, with its parameters."""
    config, model = session.config.parallel, session.model
    with restored_generators(session.communicator):
        samples = fetch(session.data.train, [0, len(session.data.train) - 1])
    inputs, _ = unpack(to_device(samples, session))
    device = Device("meta") if config.meta else session.device
    example: Nested = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, inputs)
    try:
        pipe = pipeline(model, (example,), split_spec=_split(model, config.split, stages))
    except TenonError as error:
        raise ConfigError(f"parallel.pipeline = {stages}: {error}") from error
    if pipe.replicated_params:
        names = " and ".join(pipe.replicated_params[0].values())
        raise ConfigError(
            f"parallel.pipeline = {stages}: several stages use the parameter {names}, and each would train it"
            " by itself. Split elsewhere, by parallel.split, so that one stage has all that use it."
        )
    return pipe.get_stage_module(number)
