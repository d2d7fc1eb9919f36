"""The validated configuration of a run; errors name unknown keys and bad values by their dotted path.

Sources, in increasing precedence: a recipe's defaults, a TOML file, ``--set path=value`` (``layers.py`` reads
them). They resolve to a ``RunConfig``, which the run folder keeps as ``config.json``.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, SerializeAsAny, ValidationError, ValidationInfo, field_validator

from tenon.distributed.replicas.logical_shards import SHARDS
from tenon.errors import ConfigError
from tenon.training import plugin_sections
from tenon.training.layers import Table, check_values, dotted, shortened
from tenon.training.sections import (
    CheckpointConfig,
    DataParallelConfig,
    LogConfig,
    OptimizerConfig,
    ParallelConfig,
    ProfileConfig,
    PruneConfig,
    SchedulerConfig,
    Section,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

#: Errors of a configuration that are shown, and the longest name that others are compared with.
_SHOWN, _LONGEST_NAME = 5, 80
#: Of each epoch's generator, the seed is this times 1,000,003, which has to fit in 64 bits.
_LARGEST_SEED = 1 << 43


#: A module by its absolute name, and a name in it.
S = TypeVar("S", bound=Section)
_TARGET = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


class RunConfig(Section):
    """The complete configuration of a run: model, data, optimizer, and how to train and log."""

    recipe: str | None = None
    model: str | None = Field(None, description="package.module:Class")
    model_options: Table = Field({})
    data: str | None = Field(None, description="package.module:function")
    data_options: Table = Field({})
    loss: str = Field("cross_entropy", description="name in nn.functional, or package.module:function")
    seed: int = Field(0, ge=-_LARGEST_SEED, le=_LARGEST_SEED)
    deterministic: Literal["world"] | None = Field(
        None, description="bit-identical results on any number of ranks"
    )
    shards: int | None = Field(
        None,
        ge=1,
        validate_default=True,
        description="logical shards of a batch if deterministic; by default 4",
    )
    threads: int | None = Field(None, ge=1, le=4096, description="computation threads of a rank")
    device: str = "cpu"
    epochs: int = Field(10, ge=0)
    batch_size: int = Field(
        64, ge=1, validate_default=True, description="samples per optimizer step, over all ranks"
    )
    eval_batch_size: int = Field(256, ge=1)
    accumulate: int = Field(1, ge=1, description="backward passes per optimizer step")
    clip_grad_norm: float | None = Field(None, gt=0)
    autocast: Literal["bfloat16", "float16"] | None = Field(
        None, description="compute in 16 bits where precision allows"
    )
    data_parallel: DataParallelConfig = DataParallelConfig.model_validate({})
    optimizer: OptimizerConfig = OptimizerConfig()
    scheduler: SchedulerConfig | None = None
    checkpoint: CheckpointConfig = CheckpointConfig(every=1, steps=None, keep=2)
    log: LogConfig = LogConfig(every=10, histograms=None, graph=None)
    profile: ProfileConfig | None = Field(None, description="`--profile` is this section with its defaults")
    prune: PruneConfig | None = Field(None, description="masks that grow in training")
    parallel: ParallelConfig = Field(
        ParallelConfig.model_validate({}), description="how ranks divide the model; by default not"
    )
    plugins: dict[str, SerializeAsAny[Section]] = Field({}, description="sections of plugins, by their names")
    output: str = Field("runs", description="folder in which each run gets its own")

    @field_validator("plugins", mode="before")
    @classmethod
    def _read_plugin_sections(cls, value: object) -> object:
        return plugin_sections.read(value)

    @field_validator("model", "data")
    @classmethod
    def _check_target(cls, value: str | None) -> str | None:
        if value is not None and not _TARGET.fullmatch(value):
            raise ValueError('expected "package.module:name"')
        return value

    @field_validator("loss")
    @classmethod
    def _check_loss(cls, value: str) -> str:
        if ":" in value:
            cls._check_target(value)
        return value

    @field_validator("shards")
    @classmethod
    def _default_shards(cls, value: int | None, info: ValidationInfo) -> int | None:
        if info.data.get("deterministic") is None:
            if value is not None:
                raise ValueError('has no effect without deterministic = "world"')
            return None
        return SHARDS if value is None else value

    @field_validator("device", "batch_size", "accumulate")
    @classmethod
    def _check_against_shards(cls, value: str | int, info: ValidationInfo) -> str | int:
        shards = info.data.get("shards")
        if shards is None:
            return value
        if isinstance(value, str):
            if value != "cpu":
                raise ValueError('deterministic = "world" computes on the CPU')
        elif info.field_name == "batch_size" and value % shards:
            raise ValueError(f"must be a multiple of shards = {shards}")
        elif info.field_name == "accumulate" and value > 1:
            raise ValueError(
                f"each of the {shards} shards is a pass of its own already; raise shards for smaller passes"
            )
        return value

    @field_validator("accumulate")
    @classmethod
    def _check_passes(cls, value: int, info: ValidationInfo) -> int:
        batch_size = info.data.get("batch_size", value)
        if value > batch_size:
            raise ValueError(f"must be at most batch_size = {batch_size}: each pass needs a sample")
        return value

    @field_validator("autocast", "data_parallel")
    @classmethod
    def _check_bit_reproducible(
        cls, value: str | DataParallelConfig | None, info: ValidationInfo
    ) -> str | DataParallelConfig | None:
        if info.data.get("shards") is None:
            return value
        if value == "float16":
            raise ValueError('deterministic = "world" does not scale losses; use bfloat16')
        for name in ("sync_batch_norm", "comm_hook"):
            if getattr(value, name, None):
                raise ValueError(f'{name} would undo deterministic = "world"')
        return value

    @field_validator("parallel")
    @classmethod
    def _check_division(cls, value: ParallelConfig, info: ValidationInfo) -> ParallelConfig:
        """What needs the whole model on a rank is refused where ranks have parts of it."""
        settings = info.data
        data_parallel, log = settings.get("data_parallel"), settings.get("log")
        whole = {
            "prune": settings.get("prune"),
            "data_parallel.comm_hook": getattr(data_parallel, "comm_hook", None),
            "data_parallel.shard_optimizer": getattr(data_parallel, "shard_optimizer", None),
            "log.histograms": getattr(log, "histograms", None),
            "log.graph": getattr(log, "graph", None),
        }
        refused = [name for name, given in whole.items() if given]
        if (value.divides or value.auto) and refused:
            raise ValueError(
                f"{refused[0]} needs the whole model on each rank; leave it out, or the division"
            )
        if settings.get("shards") is not None and (value.tensor > 1 or value.pipeline > 1):
            raise ValueError(
                'deterministic = "world" allows data and shard only: tensor and pipeline sum in another order'
            )
        if value.pipeline > 1 and settings.get("accumulate", 1) > 1:
            raise ValueError(
                "a pipeline accumulates its microbatches; set parallel.microbatches, not accumulate"
            )
        if value.pipeline > 1 and getattr(data_parallel, "sync_batch_norm", None):
            raise ValueError("data_parallel.sync_batch_norm does not work in the stages of a pipeline")
        return value


def resolve(layers: Sequence[Mapping[str, object]]) -> RunConfig:
    """Merge ``layers``, later ones taking precedence, and validate; sections are merged key by key.

    ConfigError for unknown keys and bad values.
    """
    merged: Table = {}
    for layer in layers:
        check_values(layer)
        _merge(merged, layer)
    for section in ("optimizer", "scheduler"):
        _check_finite(section, merged.get(section))
    if isinstance(tables := merged.get("plugins"), dict):
        merged["plugins"] = {  # each by itself, so that errors have the paths of their keys
            name: _validated(plugin_sections.model_of(name), table, ("plugins", name))
            for name, table in tables.items()
        }
    config = _validated(RunConfig, merged)
    if config.recipe is None and (config.model is None or config.data is None):
        missing = " and ".join(n for n in ("model", "data") if getattr(config, n) is None)
        raise ConfigError(
            f'the configuration names no {missing}. Add model = "package.module:Class" and data ='
            ' "package.module:function", or name a recipe (see `tenon train --help`).'
        )
    return config


def _validated(model: type[S], table: object, prefix: tuple[str, ...] = ()) -> S:
    """``table`` as the section ``prefix``; ConfigError for unknown keys and bad values."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        more = f"; and {len(errors) - _SHOWN:,} more" if len(errors) > _SHOWN else ""
        texts = [_describe_error(each, model, prefix) for each in errors[:_SHOWN]]
        raise ConfigError("; ".join(texts) + more) from None


def _check_finite(section: str, options: object) -> None:
    """ConfigError for infinite numbers among the options of a component."""
    for key, value in options.items() if isinstance(options, Mapping) else ():
        if isinstance(value, float) and math.isinf(value):
            raise ConfigError(f"{dotted((*section.split('.'), key))} = {value}: must be finite")


def _merge(into: Table, layer: Mapping[str, object]) -> None:
    """Update ``into`` by ``layer``, table by table."""
    for key, value in layer.items():
        existing = into.get(key)
        if isinstance(value, Mapping) and isinstance(existing, dict):
            if "name" in value and value["name"] != existing.get("name"):
                existing.clear()  # options of another optimizer do not carry over
            _merge(existing, value)
        elif isinstance(value, Mapping):
            into[key] = {}
            _merge(into[key], value)
        else:
            into[key] = value


def _describe_error(error: ErrorDetails, section: type[BaseModel], prefix: tuple[str, ...]) -> str:
    """The text of a validation error; the closest known keys for an unknown one."""
    path = (*prefix, *error["loc"])
    if error["type"] == "extra_forbidden":
        for key in error["loc"][:-1]:
            annotation = section.model_fields[str(key)].annotation
            candidates = (annotation, *get_args(annotation))  # of ``Section``, or of ``Section | None``
            section = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
        return unknown_key([str(key) for key in path], section.model_fields)
    return f"{dotted(path)} = {shortened(error['input'])}: {error['msg'].removeprefix('Value error, ')}"


def unknown_key(path: Sequence[str], known: Iterable[str]) -> str:
    """The error text for an unknown key, with the closest known key."""
    *section, key = path
    return f"unknown key {dotted(path)!r}. {closest(key, known, section)}"


def closest(name: str, known: Iterable[str], section: Sequence[str] = ()) -> str:
    """A sentence with the name of ``known`` that ``name`` may stand for, or with all of them."""
    near = difflib.get_close_matches(name, list(known), n=1) if len(name) <= _LONGEST_NAME else ()
    if near:
        return f"Did you mean {dotted([*section, near[0]])!r}?"
    return f"Known: {', '.join(sorted(known))}."


def canonical(config: RunConfig) -> str:
    """Serialize as JSON with sorted keys: equal configurations give equal text."""
    return json.dumps(config.model_dump(mode="json"), sort_keys=True)
