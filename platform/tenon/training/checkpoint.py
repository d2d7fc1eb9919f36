"""Checkpoints of a run: everything needed to resume it exactly, on any number of ranks.

Rank 0 copies the state and writes it in a background thread (``serialize/background.py``). It also reads, and
broadcasts the file to the others, so that all resume from the same bytes and only rank 0 needs to see the
folder.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np

from tenon.distributed.checkpoint import random_states
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.zero import ZeroRedundancyOptimizer
from tenon.errors import CheckpointError
from tenon.plugins.manager import host
from tenon.plugins.user_key import is_signed, sign
from tenon.serialize.background import CheckpointWriter
from tenon.serialize.checkpoint import Sections, checkpoints, latest_valid, read_checkpoint
from tenon.serialize.named import NamedBytes
from tenon.serialize.regular_files import open_regular
from tenon.training import lock
from tenon.training.config import canonical
from tenon.training.session import Session
from tenon.training.trust import Trust, imports, listing

FOLDER = "checkpoints"
#: A run folder and the sections of the checkpoint from which it is resumed.
Resumed: TypeAlias = tuple[Path, Sections]


def save(session: Session) -> None:
    """Copy the run's state, which rank 0 writes in the background; all ranks call it at the same step.

    Does nothing if ``checkpoint.every`` is 0.
    """
    if not session.config.checkpoint.every:
        return
    plugins = host().save_sections(session)
    generators = random_states.capture(session.communicator)
    if isinstance(session.optimizer, ZeroRedundancyOptimizer):
        session.optimizer.consolidate_state_dict(to=0)
    if not session.is_main:
        return
    lock.check(session.folder)
    if session.writer is None:
        session.writer = CheckpointWriter(session.folder / FOLDER, session.config.checkpoint.keep)
    config = canonical(session.config)
    session.writer.save(
        session.step,
        {
            "model": session.model.state_dict(),
            "optimizer": session.optimizer.state_dict(),
            "scheduler": None if session.scheduler is None else session.scheduler.state_dict(),
            "scaler": None if session.scaler is None else session.scaler.state_dict(),
            "random": generators,
            "progress": {
                "step": session.step,
                "epoch": session.epoch,
                "position": session.position,
                "samples_seen": session.samples_seen,
            },
            "metrics": session.metrics,
            "config": config,
            "signature": sign(config) if imports(session.config.model_dump()) else "",
            "plugins": plugins,
        },
    )


def finish(session: Session) -> None:
    """Block all ranks until the last checkpoint is on disk; raise if it could not be written."""
    if session.writer is not None:
        session.writer.close()
    session.communicator.barrier()


def folder_of(run: Path) -> Path:
    """The run folder of ``run``, a run folder or one of its checkpoint files."""
    if not run.is_file():
        return run
    path = run.absolute()
    return path.parent.parent if path.parent.name == FOLDER else path.parent


def has_checkpoints(run: Path) -> bool:
    """Whether ``run`` is a run folder with a checkpoint to resume from."""
    return bool(checkpoints(run / FOLDER))


def fetch(communicator: Communicator, run: Path, trust: Trust) -> Resumed:
    """The run folder and the newest valid checkpoint of ``run``, a run folder or one checkpoint file.

    Collective: rank 0 reads and broadcasts; all ranks raise CheckpointError if there is none, and ConfigError
    if its configuration imports what ``trust`` does not allow.
    """
    content, path, problem = b"", None, None
    if communicator.rank == 0:
        try:
            path = _newest(run)
            with open_regular(path) as file:  # which another account may have replaced since it was checked
                content = file.read()
        except (CheckpointError, OSError) as error:
            problem = str(error)
    answers = communicator.all_gather_bytes(
        encode([None if path is None else str(path), len(content), problem]), name="checkpoint"
    )
    name, length, problem = decode(answers[0])
    if problem is not None:
        raise CheckpointError(problem)
    data = np.frombuffer(content, np.uint8) if communicator.rank == 0 else np.empty(length, np.uint8)
    if communicator.size > 1:
        data = communicator.broadcast(data, 0, name="checkpoint").wait()
    path = Path(name)
    folder = path.parent.parent if path.parent.name == FOLDER else path.parent
    sections = read_checkpoint(NamedBytes(data.data, name))
    saved = sections.get("config")
    settings = _settings(saved, path)
    if imports(settings):
        signed = is_signed(str(saved), str(sections.get("signature", "")))
        answers = communicator.all_gather_bytes(encode(signed), name="signature")
        trusted = trust.check(settings, decode(answers[0]), path)  # rank 0's key: the others may have no home
        if trusted and communicator.rank == 0:
            click.echo(f"--trust: imports and calls {listing(trusted)}, as {path} says", err=True)
    return folder, sections


def _settings(saved: object, path: Path) -> dict[str, object]:
    """The configuration in a checkpoint, parsed; CheckpointError if it has none."""
    with contextlib.suppress(ValueError, RecursionError):  # numbers with thousands of digits, deep nesting
        settings = json.loads(saved) if isinstance(saved, str) else None
        if isinstance(settings, dict):
            return settings
    raise CheckpointError(f"{path} holds no configuration of a run: `tenon train` did not write it.")


def restore(session: Session, saved: Sections) -> None:
    """Load the checkpoint ``saved``: model, optimizer, scheduler, generators, progress and plugins.

    CheckpointError for a section that is missing, or that does not fit the session.
    """
    folder = session.folder
    with restoring("model", folder):
        session.model.load_state_dict(saved["model"])
    with restoring("optimizer", folder):
        session.optimizer.load_state_dict(saved["optimizer"])
    with restoring("scheduler", folder):
        if session.scheduler is not None and saved["scheduler"] is not None:
            session.scheduler.load_state_dict(saved["scheduler"])
    with restoring("scaler", folder):
        if session.scaler is not None and saved.get("scaler") is not None:
            session.scaler.load_state_dict(saved["scaler"])
    with restoring("random", folder):
        random_states.restore(saved["random"], session.communicator)
    with restoring("progress", folder):
        session.step, session.epoch, session.position, session.samples_seen = (
            _count(saved["progress"][name]) for name in ("step", "epoch", "position", "samples_seen")
        )
    with restoring("metrics", folder):
        session.metrics = {name: float(value) for name, value in saved["metrics"].items()}
    with restoring("plugins", folder):
        host().load_sections(saved["plugins"], session)


@contextlib.contextmanager
def restoring(section: str, folder: Path) -> Iterator[None]:
    """Raise CheckpointError for whatever fails while ``section`` is restored: a file may hold anything."""
    try:
        yield
    except (CheckpointError, OSError):
        raise
    except Exception as error:
        what = f"its {section!r} cannot be restored: {type(error).__name__}: {str(error).rstrip('.')}"
        if isinstance(error, KeyError) and error.args == (section,):
            what = f"it has no {section!r}"
        raise CheckpointError(
            f"the checkpoint of {folder} does not fit this run: {what}. Resume with the code that wrote it,"
            " or from another checkpoint."
        ) from error


def _count(value: object) -> int:
    """Return ``value``; ValueError unless it is a number of steps or samples that a run can have counted."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.60} is not a number of steps or samples")
    return value


def _newest(run: Path) -> Path:
    """The newest valid checkpoint of a run folder, or ``run`` itself if it is a file."""
    if run.is_file():
        return run.absolute()
    folder = run / FOLDER
    if not folder.is_dir():
        raise CheckpointError(
            f"{run} has no {FOLDER}/ folder; pass the folder that `tenon train` printed, or a checkpoint"
            " file."
        )
    newest = latest_valid(folder)
    if newest is None:
        raise CheckpointError(f"{folder} has no valid checkpoint.")
    return newest.absolute()
