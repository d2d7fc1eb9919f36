"""The sections of a run's configuration: their keys, defaults and meanings."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from tenon.training.layers import Table


class Section(BaseModel):
    """A section whose keys are all known: a pydantic model, frozen and strict, that refuses other keys.

    Plugins derive the sections of theirs from it, and declare them by ``tenon_sections``.

    >>> from pydantic import Field
    >>> class Warmth(Section):
    ...     degrees: float = Field(20.0, gt=0)
    >>> Warmth.model_validate({"degrees": 21.5})
    Warmth(degrees=21.5)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), strict=True)


class Component(BaseModel):
    """A section that names a component; its further keys are that component's options."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    name: str

    def options(self) -> Table:
        """The keys besides ``name``."""
        return dict(self.model_extra or {})


class OptimizerConfig(Component):
    """``name`` of an optimizer, and its options: ``lr``, ``weight_decay``, ..."""

    name: str = "AdamW"


class SchedulerConfig(Component):
    """``name`` of a learning rate scheduler, and its options; it steps after each ``per``."""

    per: Literal["step", "epoch"] = "step"

    def options(self) -> Table:
        """The keys besides ``name`` and ``per``."""
        return dict(self.model_extra or {})


class DataParallelConfig(Section):
    """Options of data parallel training: batch norm, communication hooks, sharding, buckets."""

    sync_batch_norm: bool = Field(False, description="normalise over the whole batch, not each rank's share")
    comm_hook: str | None = Field(
        None, description="how gradients are reduced: bf16, powersgd, a plugin's, ..."
    )
    comm_hook_options: Table = {}
    shard_optimizer: bool = Field(False, description="shard the optimizer's state over the ranks: ZeRO-1")
    bucket_cap_mb: float = Field(
        25.0, gt=0, allow_inf_nan=False, description="size of the buckets in which gradients are reduced"
    )

    @field_validator("comm_hook_options")
    @classmethod
    def _check_hook_options(cls, value: Table, info: ValidationInfo) -> Table:
        if value and info.data.get("comm_hook") is None:
            raise ValueError("has no effect without data_parallel.comm_hook")
        return value


class CheckpointConfig(Section):
    """How often checkpoints are written, and how many are kept."""

    every: int = Field(1, ge=0, description="epochs between checkpoints; 0 writes none")
    steps: int | None = Field(None, ge=1, description="optimizer steps between checkpoints within an epoch")
    keep: int = Field(2, ge=1, description="newest checkpoints to keep")


class LogConfig(Section):
    """How often metrics, histograms and the graph are written."""

    every: int = Field(10, ge=1, description="steps between training metrics")
    tensorboard: bool = True
    histograms: int | None = Field(None, ge=1, description="steps between histograms of weights, gradients")
    graph: bool | None = Field(
        None, description="the model's graph at the end; if unset, only in profiled runs"
    )


class ProfileConfig(Section):
    """Which steps are profiled and what is recorded; by default the first steps after a warm-up."""

    skip_first: int = Field(10, ge=0, description="steps before the first cycle")
    wait: int = Field(0, ge=0, description="steps of a cycle that are not recorded")
    warmup: int = Field(2, ge=0, description="steps whose profile is discarded")
    active: int = Field(10, ge=1, description="steps whose profile is saved")
    repeat: int = Field(1, ge=0, description="cycles; 0 repeats them to the end")
    record_shapes: bool = Field(True, description="shapes, FLOPs and bytes of ops")
    memory: bool = Field(True, description="allocation and release of arrays by ops")
    stack: bool = Field(False, description="where each op was called")


class PruneConfig(Section):
    """Masks that grow while the model trains; `tenon.prune.compact` removes them afterwards."""

    amount: float = Field(gt=0, lt=1, description="share of the model that is masked in the end")
    what: Literal["channels", "weights"] = "channels"
    criterion: str = Field("Magnitude", description="Magnitude, Gradient, Taylor, Random, a plugin's, ...")
    scope: Literal["global", "layer"] = "global"
    keep: list[str] = Field([], description="paths of modules that are not pruned, e.g. blocks.*.attn")
    schedule: Literal["one-shot", "gradual", "lottery"] = "gradual"
    begin: int = Field(0, ge=0, description="step of the first mask: one-shot, gradual")
    end: int | None = Field(None, ge=1, description="step of the last mask: gradual; unset: half of the run")
    every: int = Field(1, ge=1, description="steps between masks: gradual; steps of a round: lottery")
    rounds: int = Field(1, ge=1, description="number of rounds: lottery")
    rewind: int = Field(0, ge=0, description="step whose weights are restored: lottery")


class ParallelConfig(Section):
    """How ranks divide the model: the sizes of a mesh of pipeline x data x shard x tensor, and how to split.

    Ranks that differ in ``tensor`` and ``pipeline`` only compute the same samples; all others compute a share
    of each batch.
    """

    auto: bool = Field(False, description="let `tenon plan` choose the sizes when a run starts")
    memory: str | None = Field(None, description="what a rank may take, as 4GiB, where sizes are chosen")
    data: int = Field(-1, description="copies of the model; -1: as many as the ranks that remain allow")
    shard: int = Field(
        1, description="ranks that shard parameters, gradients and optimizer state; -1: the rest"
    )
    tensor: int = Field(1, ge=1, description="ranks that compute each layer together")
    pipeline: int = Field(1, ge=1, description="stages of consecutive layers")
    reshard: bool = Field(True, description="release gathered parameters after forward: ZeRO-3; else ZeRO-2")
    modules: list[str] = Field([], description="modules to gather one at a time, by path or pattern")
    tensor_plan: dict[str, str] = Field(
        {}, description="path or pattern of a module: its tensor-parallel style"
    )
    split: list[str] = Field(
        [], description="modules with which a stage begins, by path; by default an even split"
    )
    microbatches: int | None = Field(
        None, ge=1, description="parts of a batch in a pipeline; 4 for each stage"
    )
    schedule: Literal["1F1B", "GPipe"] = Field("1F1B", description="order of the passes of a pipeline")
    meta: bool = Field(False, description="initialize each rank's part only: no rank has the whole model")

    @field_validator("data", "shard")
    @classmethod
    def _check_size(cls, value: int) -> int:
        if value < 1 and value != -1:
            raise ValueError("must be a number of ranks, or -1 for all that the other sizes leave")
        return value

    @property
    def divides(self) -> bool:
        """Whether ranks have parts of the model, and not each the whole."""
        return self.shard != 1 or self.tensor > 1 or self.pipeline > 1
