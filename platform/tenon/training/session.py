"""``Session``: the state of a training run, passed to the loop and to plugins' hooks."""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.amp import GradScaler
from tenon.data.dataset import Splits
from tenon.device import Device
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.replicas.accumulation import Loss
from tenon.distributed.replicas.shard_steps import ShardSteps
from tenon.errors import ConfigError, TrainingError
from tenon.nn.module import Module
from tenon.optim.scheduler import LRScheduler
from tenon.serialize.background import CheckpointWriter
from tenon.training.config import RunConfig, canonical

if TYPE_CHECKING:
    from tenon.training.parallel.division import Division
    from tenon.training.parallel.saved import FolderWriter

#: A record of metrics: numbers and flags by name.
Metrics: TypeAlias = dict[str, float]


@dataclass(eq=False)
class Session:
    """A run on this rank. ``step`` counts optimizer steps from 0; all ranks have the same ``folder``."""

    config: RunConfig
    communicator: Communicator
    model: Module
    loss: Loss
    data: Splits
    device: Device
    folder: Path
    optimizer: Any = None  # None only before training, so that readers need no check
    """An ``Optimizer``, built after the hook ``tenon_prepare_model``, which may replace parameters."""
    scheduler: LRScheduler | None = None
    step: int = 0
    epoch: int = 0
    position: int = 0
    """Samples of the current epoch already trained on, over all ranks."""
    samples_seen: int = 0
    metrics: Metrics = field(default_factory=dict)
    stopping: int = 0
    """The number of the signal after which to finish the step, save and exit; 0 before any."""
    reason: str | None = None
    """Why ``stop`` was called on this rank; None if it was not."""
    shards: ShardSteps | None = None
    """Computes steps where ``deterministic = "world"``."""
    division: Division | None = None
    """Computes steps where ranks have parts of the model; ``model`` is then this rank's part."""
    scaler: GradScaler | None = None
    """Scales losses where ``autocast = "float16"``."""
    writer: CheckpointWriter | FolderWriter | None = None
    """Created with the first checkpoint, on rank 0, or on all where ranks have parts of the model."""

    def stop(self, reason: str) -> None:
        """End the run with exit status 0, after a checkpoint; ``reason`` is printed.

        For hooks. One rank is enough: all stop after the same step, the next one if it is called at the end
        of a step. ``--resume`` goes on.
        """
        self.reason = self.reason or reason or "a plugin has asked for it"

    def section(self, name: str) -> Any:  # of the class that the plugin declares
        """The section ``[plugins.NAME]`` of the configuration, validated; None if it has none."""
        return self.config.plugins.get(name)

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self.communicator.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.communicator.size

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and prints for all."""
        return self.communicator.rank == 0


def agree_on_config(communicator: Communicator, config: RunConfig) -> None:
    """ConfigError on every rank, naming the differing keys, unless all have the same configuration."""
    texts = [
        decode(t) for t in communicator.all_gather_bytes(encode(canonical(config)), name="configuration")
    ]
    if len(set(texts)) == 1:
        return
    flat = [_flatten(json.loads(t)) for t in texts]
    differing = sorted({k for f in flat for k in f if len({json.dumps(g.get(k)) for g in flat}) > 1})
    lines = [
        f"{k}: " + ", ".join(f"rank {r} has {f.get(k)!r}" for r, f in enumerate(flat)) for k in differing[:5]
    ]
    raise ConfigError(
        "ranks were started with different configurations: " + "; ".join(lines) + ". Start all with the same."
    )


def _flatten(value: object, prefix: str = "") -> dict[str, object]:
    """The leaves of nested dicts by dotted path."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        k: v
        for key, part in value.items()
        for k, v in _flatten(part, f"{prefix}.{key}" if prefix else key).items()
    }


def make_folder(communicator: Communicator, config: RunConfig, chosen: Path | None = None) -> Path:
    """Create the run folder on rank 0: ``chosen``, or a new one in ``config.output``; return it on all."""
    communicator.barrier()  # creates nothing if a rank failed before this point
    created: str | None = None
    problem: str | None = None
    if communicator.rank == 0:
        try:
            if chosen is None:
                created = str(fresh_folder(config))
            else:
                chosen.mkdir(parents=True, exist_ok=True)
                created = str(chosen.absolute())
        except OSError as error:
            where = f"under output = {config.output!r}" if chosen is None else f"{str(chosen)!r}"
            problem = f"cannot create a run folder {where}: {error.strerror}."
    answers = [
        decode(t) for t in communicator.all_gather_bytes(encode([created, problem]), name="run folder")
    ]
    created, problem = answers[0]
    if problem is not None or created is None:
        option = "--set output=FOLDER" if chosen is None else "--run FOLDER"
        raise TrainingError(f"{problem} Choose another with {option}.")
    return Path(created)


def fresh_folder(config: RunConfig) -> Path:
    """Create a folder with a unique name, from model and time, under ``config.output``."""
    output = Path(config.output).absolute()
    output.mkdir(parents=True, exist_ok=True)
    name = (config.recipe or (config.model or "run").partition(":")[2]).lower()
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    number = 0
    while True:
        folder = output / (f"{name}-{stamp}" + (f"-{number}" if number else ""))
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as indented JSON, atomically: to a temporary file that replaces ``path``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(temporary, path)
