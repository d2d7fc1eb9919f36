"""Training checkpoints: named sections in one file, and folders of such files.

A section is the state of one object: the model, the optimizer, the data loader, a plugin. Files are ordered
by the last number in their name (``step-000300.safetensors``), so that copying a folder, which changes dates,
keeps the order. Damaged files are skipped with a warning, and the newest valid file is never deleted.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tenon.errors import (
    CheckpointDeviceError,
    CheckpointError,
    CheckpointVersionError,
    CheckpointWarning,
    CheckpointWriteError,
)
from tenon.serialize import FileLike, load, save, verify
from tenon.serialize.migrate import CHECKPOINT
from tenon.serialize.placement import MapLocation

SUFFIXES = (".safetensors", ".pt")
#: The sections of a checkpoint by name; what writes a section chooses its type.
Sections: TypeAlias = dict[str, Any]
_HEADER = "tenon.checkpoint"
_NUMBER = re.compile(r"(\d+)(?!.*\d)")


def write_checkpoint(path: str | os.PathLike[str], sections: Mapping[str, object]) -> None:
    """Save ``sections`` to ``path`` (``.safetensors`` or ``.pt``) atomically; its folder may be missing.

    >>> import pathlib, tempfile, tenon
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> write_checkpoint(folder / "step-3.safetensors", {"model": {"w": tenon.ones(2)}, "step": 3})
    >>> read_checkpoint(folder / "step-3.safetensors")["step"]
    3
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"a checkpoint's name ends in {' or '.join(SUFFIXES)}, not {path.name!r}.")
    document = document_of(sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(document, path)


def document_of(sections: Mapping[str, object]) -> dict[str, object]:
    """The document of a checkpoint: a header with the schema version, and ``sections``."""
    wrong = [name for name in sections if type(name) is not str or name == _HEADER]
    if wrong:
        raise ValueError(f"a section cannot be called {wrong[0]!r}. Use a string that is not {_HEADER!r}.")
    return {_HEADER: {"schema": CHECKPOINT.current}, **sections}


def is_checkpoint(document: object) -> bool:
    """Whether ``document``, the content of a file as ``load`` returns it, is a training checkpoint."""
    return type(document) is dict and type(document.get(_HEADER)) is dict


def read_checkpoint(path: FileLike, map_location: MapLocation = None) -> Sections:
    """The sections in ``path``, or in a file open for reading, upgraded to the current schema."""
    document = load(path, map_location)
    source = repr(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else "the checkpoint"
    if not is_checkpoint(document):
        raise CheckpointError(
            f"cannot load {source} as a training checkpoint: it has no {_HEADER!r} header. "
            "Load it with tenon.load if it holds a state_dict."
        )
    header = document.pop(_HEADER)
    return CHECKPOINT.upgrade(document, header.get("schema"), source)


def checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """The checkpoint files in ``folder``, newest first; empty if there is no such folder.

    A file that is deleted meanwhile, as a run does with its surplus ones, may be missing.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    paths = [
        Path(folder, name) for name in names if Path(name).suffix in SUFFIXES and not name.startswith(".")
    ]
    ages = {path: age for path in paths if (age := _age(path)) is not None}
    return sorted(ages, key=ages.__getitem__, reverse=True)


def latest_valid(folder: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint in ``folder`` with valid checksums; warns about each one skipped."""
    for path in checkpoints(folder):
        try:
            verify(path)
        except FileNotFoundError:  # deleted meanwhile, so there may be a newer one
            return latest_valid(folder)
        except CheckpointVersionError:
            raise
        except CheckpointError as error:
            _warn(path, error)
        else:
            return path
    return None


def read_latest(
    folder: str | os.PathLike[str], map_location: MapLocation = None
) -> tuple[Path, Sections] | None:
    """Read the newest valid checkpoint and return it with its path.

    A valid one that cannot be read here (a newer schema, an absent device) raises an error.
    """
    for path in checkpoints(folder):
        try:
            return path, read_checkpoint(path, map_location)
        except FileNotFoundError:  # deleted meanwhile, so there may be a newer one
            return read_latest(folder, map_location)
        except (CheckpointDeviceError, CheckpointVersionError):
            raise
        except CheckpointError as error:
            _warn(path, error)
    return None


def keep_last(folder: str | os.PathLike[str], n: int) -> list[Path]:
    """Delete all but the newest ``n`` checkpoints; return the paths of the deleted ones.

    If the newest ``n`` are all damaged, the newest valid one is kept too; if none is valid, all are kept.
    """
    if n < 1:
        raise ValueError(f"keep_last: n must be 1 or more, not {n}.")
    paths = checkpoints(folder)
    newest, old = paths[:n], paths[n:]
    if not old:
        return []
    valid = next((path for path in paths if _is_valid(path)), None)
    if valid is None:
        return []
    removed = [path for path in old if path != valid]
    for path in removed:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raised = CheckpointWriteError(
                f"could not delete the old checkpoint {os.fspath(path)!r}: {error.strerror}. The newest {n}"
                " are untouched. Check the disk and its permissions, or keep more."
            )
            raised.errno, raised.filename, raised.strerror = error.errno, os.fspath(path), error.strerror
            raise raised from error
    if valid not in newest:
        warnings.warn(
            f"the newest {n} checkpoints in {os.fspath(folder)!r} are damaged: {valid.name!r} is kept too.",
            CheckpointWarning,
            stacklevel=2,
        )
    return removed


def _age(path: Path) -> tuple[int, float, str] | None:
    """The key by which files are ordered: the last number in the name, else the date; None if it is no
    file."""
    number = _NUMBER.search(path.stem)
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return (int(number.group(1)) if number else -1, status.st_mtime, path.name)


def _is_valid(path: Path) -> bool:
    try:
        verify(path)
    except CheckpointError:
        return False
    return True


def _warn(path: Path, error: CheckpointError) -> None:
    warnings.warn(f"skipped checkpoint {path.name!r}: {error}", CheckpointWarning, stacklevel=3)
