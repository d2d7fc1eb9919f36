"""Checkpoints of a run: everything needed to resume it exactly, on any number of ranks.

Rank 0 copies the state and writes it in a background thread (``serialize/background.py``). It also reads, and
broadcasts the file to the others, so that all resume from the same bytes and only rank 0 needs to see the
folder. Where ranks have parts of the model (``[parallel]``) a checkpoint is a folder that all write and read
(``parallel/saved.py``).
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np

from tenon.distributed.checkpoint import FileSystemReader, random_states
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.zero import ZeroRedundancyOptimizer
from tenon.errors import CheckpointError, CheckpointVersionError, CheckpointWarning, ConfigError
from tenon.plugins.manager import host
from tenon.plugins.user_key import is_signed, sign
from tenon.serialize import verify
from tenon.serialize.background import CheckpointWriter
from tenon.serialize.checkpoint import SUFFIXES, Sections, read_checkpoint
from tenon.serialize.named import NamedBytes
from tenon.serialize.regular_files import open_regular
from tenon.training import lock
from tenon.training.config import canonical
from tenon.training.parallel import saved as saved_parts
from tenon.training.parallel.saved import FolderWriter
from tenon.training.resumed_settings import NewSettings
from tenon.training.session import Session
from tenon.training.trust import Trust, imports, listing

FOLDER = "checkpoints"
#: A run folder and the sections of the checkpoint from which it is resumed.
Resumed: TypeAlias = tuple[Path, Sections]


def save(session: Session) -> None:
    """Copy the run's state, which is written in the background; all ranks call it at the same step.

    Rank 0 writes one file; where ranks have parts of the model, each writes its own, into one folder. Does
    nothing if ``checkpoint.every`` is 0.
    """
    if not session.config.checkpoint.every:
        return
    plugins = host().save_sections(session)
    generators = random_states.capture(session.communicator)
    if isinstance(session.optimizer, ZeroRedundancyOptimizer):
        session.optimizer.consolidate_state_dict(to=0)
    if session.division is None and not session.is_main:
        return
    lock.check(session.folder)
    folder, keep = session.folder / FOLDER, session.config.checkpoint.keep
    if session.division is not None:
        if session.writer is None:
            session.writer = FolderWriter(folder, keep, session.is_main)
        assert isinstance(session.writer, FolderWriter)
        rest = _sections(session, generators, plugins)
        session.writer.save(session.step, session.model, session.optimizer, rest)
        return
    if session.writer is None:
        session.writer = CheckpointWriter(folder, keep, then=saved_parts.remove_surplus)
    assert isinstance(session.writer, CheckpointWriter)
    session.writer.save(
        session.step,
        {
            "model": session.model.state_dict(),
            "optimizer": session.optimizer.state_dict(),
            **_sections(session, generators, plugins),
        },
    )


def _sections(session: Session, generators: Sections, plugins: Sections) -> Sections:
    """What a checkpoint has besides the model and the optimizer."""
    config = canonical(session.config)
    return {
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
    }


def finish(session: Session) -> None:
    """Block all ranks until the last checkpoint is on disk; raise if it could not be written."""
    if session.writer is not None:
        session.writer.close()
    session.communicator.barrier()


def folder_of(run: Path) -> Path:
    """The run folder of ``run``, a run folder or one of its checkpoints."""
    if not run.is_file() and not saved_parts.is_folder(run):
        return run
    path = run.absolute()
    return path.parent.parent if path.parent.name == FOLDER else path.parent


def all_of(run: Path) -> list[Path]:
    """The checkpoints of a run folder, files and folders, newest first."""
    return saved_parts.all_in(run / FOLDER)


def has_checkpoints(run: Path) -> bool:
    """Whether ``run`` is a run folder with a checkpoint to resume from."""
    return bool(all_of(run))


def fetch(communicator: Communicator, run: Path, trust: Trust, whole: bool = False) -> Resumed:
    """The run folder and the newest valid checkpoint of ``run``, a run folder or one checkpoint.

    Collective: of a file rank 0 reads and broadcasts; from a folder each rank will read its part, ``whole``
    the whole model. All ranks raise CheckpointError if there is none, and ConfigError if its configuration
    imports what ``trust`` does not allow.
    """
    path, is_folder = _newest(communicator, run)
    if is_folder:
        with restoring("manifest", path):
            sections = saved_parts.read_small(path)
            if whole:
                sections["model"] = saved_parts.read_model(str(path))
    else:
        sections = _broadcast(communicator, path)
    folder = path.parent.parent if path.parent.name == FOLDER else path.parent
    saved = sections.get("config")
    settings = _settings(saved, path)
    if imports(settings):
        signed = is_signed(str(saved), str(sections.get("signature", "")))
        answers = communicator.all_gather_bytes(encode(signed), name="signature")
        trusted = trust.check(settings, decode(answers[0]), path)  # rank 0's key: the others may have no home
        if trusted and communicator.rank == 0:
            click.echo(f"--trust: imports and calls {listing(trusted)}, as {path} says", err=True)
    return folder, sections


def _broadcast(communicator: Communicator, path: Path) -> Sections:
    """The sections of the checkpoint file ``path``, which rank 0 reads."""
    content, problem = b"", None
    if communicator.rank == 0:
        try:
            with open_regular(path) as file:  # which another account may have replaced since it was checked
                content = file.read()
        except (CheckpointError, OSError) as error:
            problem = str(error)
    answers = communicator.all_gather_bytes(encode([len(content), problem]), name="checkpoint")
    length, problem = decode(answers[0])
    if problem is not None:
        raise CheckpointError(problem)
    data = np.frombuffer(content, np.uint8) if communicator.rank == 0 else np.empty(length, np.uint8)
    if communicator.size > 1:
        data = communicator.broadcast(data, 0, name="checkpoint").wait()
    return read_checkpoint(NamedBytes(data.data, str(path)))


def _settings(saved: object, path: Path) -> dict[str, object]:
    """The configuration in a checkpoint, parsed; CheckpointError if it has none."""
    with contextlib.suppress(ValueError, RecursionError):  # numbers with thousands of digits, deep nesting
        settings = json.loads(saved) if isinstance(saved, str) else None
        if isinstance(settings, dict):
            return settings
    raise CheckpointError(f"{path} holds no configuration of a run: `tenon train` did not write it.")


def restore(session: Session, saved: Sections) -> None:
    """Load the checkpoint ``saved``: model, optimizer, scheduler, generators, progress and plugins.

    CheckpointError for a section that is missing, or that does not fit the session. Collective.
    """
    folder = session.folder
    with restoring("config", folder):
        settings = NewSettings(session, saved)
    with restoring("model", folder):
        if saved_parts.PARTS in saved:
            saved_parts.load(saved[saved_parts.PARTS], session.model, session.optimizer)
        elif session.division is not None:
            saved_parts.load_whole_into(session.model, session.optimizer, saved)
        else:
            session.model.load_state_dict(saved["model"])
    with restoring("optimizer", folder):
        if saved_parts.PARTS not in saved and session.division is None:
            session.optimizer.load_state_dict(saved["optimizer"])
        settings.apply()
    with restoring("scheduler", folder):
        schedule = settings.schedule(saved["scheduler"])
        if session.scheduler is not None and schedule is not None:
            session.scheduler.load_state_dict(schedule)
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
    except (CheckpointError, ConfigError, OSError):
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


def _newest(communicator: Communicator, run: Path) -> tuple[Path, bool]:
    """The newest valid checkpoint of a run folder, or ``run`` if it is one; and whether it is a folder.

    Collective: rank 0 looks, and again if a job that runs has deleted what was found.
    """
    before: list[tuple[str, bool]] = []
    while True:
        candidates = _listed(communicator, run)
        if len(candidates) == 1 and Path(candidates[0][0]) == run.absolute():
            return run.absolute(), candidates[0][1]  # reading it will say what is wrong
        if candidates == before:
            raise CheckpointError(f"{run / FOLDER} has no valid checkpoint.")
        for candidate, is_folder in candidates:
            if _is_valid(communicator, Path(candidate)):
                return Path(candidate), is_folder
        before = candidates


def _listed(communicator: Communicator, run: Path) -> list[tuple[str, bool]]:
    """The candidates of rank 0, and whether each is a folder; its CheckpointError on all ranks."""
    candidates: list[tuple[str, bool]] = []
    problem = None
    if communicator.rank == 0:
        try:
            candidates = [(str(path.absolute()), saved_parts.is_folder(path)) for path in _candidates(run)]
        except CheckpointError as error:
            problem = str(error)
    answers = communicator.all_gather_bytes(encode([candidates, problem]), name="checkpoints")
    candidates, problem = decode(answers[0])
    if problem is not None:
        raise CheckpointError(problem)
    return candidates


def _is_valid(communicator: Communicator, path: Path) -> bool:
    """Whether all ranks find valid what they read of a checkpoint; rank 0 warns of one that is damaged."""
    own = encode(_problem(path, communicator.rank, communicator.size))
    answers = map(decode, communicator.all_gather_bytes(own, name="checksums"))
    wrong = [answer for answer in answers if answer is not None]
    if not wrong:
        return True
    text, newer = wrong[0]
    if newer:  # of a later tenon: an older checkpoint would silently undo what it has trained
        raise CheckpointError(text)
    if communicator.rank == 0 and path.exists():
        warnings.warn(f"skipped checkpoint {path.name!r}: {text}", CheckpointWarning, stacklevel=3)
    return False


def _candidates(run: Path) -> list[Path]:
    """The checkpoints of a run folder, newest first, or ``run`` itself if it is a checkpoint."""
    if run.is_file() or saved_parts.is_folder(run):
        return [run]
    if not (run / FOLDER).is_dir():
        raise CheckpointError(
            f"{run} has no {FOLDER}/ folder; pass the folder that `tenon train` printed, or a checkpoint"
            " file."
        )
    found = all_of(run)
    if not found:
        raise CheckpointError(f"{run / FOLDER} has no valid checkpoint.")
    return found


def newest_valid(run: Path) -> Path | None:
    """The newest valid checkpoint of a run folder, found by this process alone; None if there is none."""
    before: list[Path] = []
    while (found := all_of(run)) != before:  # else it is the same again: no job has written or deleted any
        for path in found:
            if _problem(path, 0, 1) is None:
                return path
        before = found
    return None


def _problem(path: Path, rank: int, ranks: int) -> tuple[str, bool] | None:
    """What is wrong with a checkpoint, and whether a later version wrote it; None if it is valid.

    A file is read by rank 0, the files of a folder by all ranks.
    """
    try:
        if path.suffix not in SUFFIXES:
            FileSystemReader(path).verify(rank, ranks)
        elif rank == 0:
            verify(path)
    except CheckpointVersionError as error:
        return str(error), True
    except (CheckpointError, FileNotFoundError) as error:
        return str(error), False
    return None
