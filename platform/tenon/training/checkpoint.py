"""Checkpoints of a run: everything needed to go on as if nothing had happened, on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenon import random
from tenon.errors import CheckpointError
from tenon.plugins.manager import host
from tenon.serialize.checkpoint import keep_last, read_checkpoint, read_latest, write_checkpoint
from tenon.training.config import canonical
from tenon.training.session import Session

FOLDER = "checkpoints"


def save(session: Session) -> Path:
    """Write a checkpoint from rank 0; all ranks wait until it is on disk."""
    folder = session.folder / FOLDER
    path = folder / f"step-{session.step:08d}.safetensors"
    plugins = host().save_sections(session)
    if session.is_main:
        folder.mkdir(exist_ok=True)
        write_checkpoint(
            path,
            {
                "model": session.model.state_dict(),
                "optimizer": session.optimizer.state_dict(),
                "scheduler": None if session.scheduler is None else session.scheduler.state_dict(),
                "random": {"stream": random.get_rng_state(), "seed": random.initial_seed()},
                "progress": {
                    "step": session.step,
                    "epoch": session.epoch,
                    "position": session.position,
                    "samples_seen": session.samples_seen,
                },
                "metrics": session.metrics,
                "config": canonical(session.config),
                "plugins": plugins,
            },
        )
        keep_last(folder, session.config.checkpoint.keep)
    session.communicator.barrier()
    return path


def find(run: Path) -> Path:
    """The folder of checkpoints that ``run`` (a run folder or one checkpoint file) means."""
    if run.is_file():
        return run
    folder = run / FOLDER
    if not folder.is_dir():
        raise CheckpointError(
            f"{run} holds no {FOLDER}/ folder; pass the folder that `tenon train` printed, or a checkpoint"
            " file."
        )
    return folder


def read(path: Path) -> dict[str, Any]:
    """The newest valid checkpoint of a folder, or that file."""
    if path.is_file():
        return read_checkpoint(path)
    found = read_latest(path)
    if found is None:
        raise CheckpointError(f"{path} holds no valid checkpoint.")
    return found[1]


def restore(session: Session, saved: dict[str, Any]) -> None:
    """Put ``saved`` into the session's objects."""
    session.model.load_state_dict(saved["model"])
    session.optimizer.load_state_dict(saved["optimizer"])
    if session.scheduler is not None and saved["scheduler"] is not None:
        session.scheduler.load_state_dict(saved["scheduler"])
    random.manual_seed(int(saved["random"]["seed"]))
    random.set_rng_state(saved["random"]["stream"])
    progress = saved["progress"]
    session.step, session.epoch = int(progress["step"]), int(progress["epoch"])
    session.position, session.samples_seen = int(progress["position"]), int(progress["samples_seen"])
    session.metrics = dict(saved["metrics"])
    host().load_sections(saved["plugins"], session)
