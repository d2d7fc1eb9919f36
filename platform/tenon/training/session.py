"""``Session``: what a run is made of, as the loop and the plugins see it."""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenon.amp import GradScaler
from tenon.data.dataset import Splits
from tenon.device import Device
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.replicas.logical_shards import LogicalShards
from tenon.errors import ConfigError, TrainingError
from tenon.nn.module import Module
from tenon.serialize.background import CheckpointWriter
from tenon.training.config import RunConfig, canonical


@dataclass
class Session:
    """One run on this rank. ``step`` counts optimizer steps from 0; ``folder`` is that of all ranks."""

    config: RunConfig
    communicator: Communicator
    model: Module
    loss: Any
    data: Splits
    device: Device
    folder: Path
    optimizer: Any = None
    """Made after ``tenon_prepare_model``, so that it sees the parameters as they will be trained."""
    scheduler: Any = None
    step: int = 0
    epoch: int = 0
    position: int = 0
    """Samples of the current epoch that are done, over all ranks."""
    samples_seen: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    stopping: int = 0
    """The number of the signal that asked to finish the step, save, and end; 0 if none did."""
    shards: LogicalShards | None = None
    """Computes steps where ``deterministic = "world"``."""
    scaler: GradScaler | None = None
    """Scales losses where ``autocast = "float16"``."""
    writer: CheckpointWriter | None = None
    """Made by rank 0 for its first checkpoint."""

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
        """Whether this rank writes what is written once."""
        return self.communicator.rank == 0


def agree_on_config(communicator: Communicator, config: RunConfig) -> None:
    """ConfigError on every rank, naming the keys, if ranks were started with different configurations."""
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


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        k: v
        for key, part in value.items()
        for k, v in _flatten(part, f"{prefix}.{key}" if prefix else key).items()
    }


def make_folder(communicator: Communicator, config: RunConfig, chosen: Path | None = None) -> Path:
    """The folder of this run, made by rank 0, known to all: ``chosen``, or a new one in ``config.output``."""
    communicator.barrier()  # nothing is left on disk where a rank cannot begin
    made: str | None = None
    problem: str | None = None
    if communicator.rank == 0:
        try:
            if chosen is None:
                made = str(fresh_folder(config))
            else:
                chosen.mkdir(parents=True, exist_ok=True)
                made = str(chosen.absolute())
        except OSError as error:
            where = f"under output = {config.output!r}" if chosen is None else f"{str(chosen)!r}"
            problem = f"cannot make a run folder {where}: {error.strerror}."
    answers = [decode(t) for t in communicator.all_gather_bytes(encode([made, problem]), name="run folder")]
    made, problem = answers[0]
    if problem is not None or made is None:
        option = "--set output=FOLDER" if chosen is None else "--run FOLDER"
        raise TrainingError(f"{problem} Choose another with {option}.")
    return Path(made)


def fresh_folder(config: RunConfig) -> Path:
    """Make a folder of a new name under ``config.output``."""
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


def write_json(path: Path, value: Any) -> None:
    """``value`` as an indented JSON file, written beside and renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(beside, path)
