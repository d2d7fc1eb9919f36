"""Checkpoints in folders, which all ranks write: ``checkpoints/step-00000300/``.

Each has the model, the optimizer and all other sections, as ``tenon.distributed.checkpoint`` writes them, so
that it can be resumed on any mesh and on one rank.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tenon.distributed import checkpoint
from tenon.distributed.checkpoint.manifest import NAME as MANIFEST
from tenon.distributed.checkpoint.metadata import Metadata
from tenon.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from tenon.distributed.checkpoint.state_dict_loader import load_whole
from tenon.errors import CheckpointWriteError
from tenon.nn.module import Module
from tenon.optim.optimizer import Optimizer
from tenon.serialize.checkpoint import Sections, checkpoints

_FOLDER = re.compile(r"step-(\d+)")
#: The key of a checkpoint's sections that has its folder, instead of the model and the optimizer.
PARTS = "parts"
_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def is_folder(path: Path) -> bool:
    """Whether ``path`` is the folder of one checkpoint."""
    return (path / MANIFEST).is_file()


def folders(path: Path, complete: bool = True) -> dict[Path, int]:
    """The checkpoints in the folder ``path`` that are folders, ``complete`` or not, and the step of each."""
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found = {path / name: _FOLDER.fullmatch(name) for name in names}
    steps = {each: int(match.group(1)) for each, match in found.items() if match and each.is_dir()}
    return {each: step for each, step in steps.items() if is_folder(each) is complete}


def all_in(path: Path) -> list[Path]:
    """The checkpoints in the folder ``path``, files and folders, newest first."""
    return sorted([*folders(path), *checkpoints(path)], key=_number, reverse=True)  # files stay sorted


def _number(path: Path) -> int:
    """The step in the name of a checkpoint; -1 if there is none."""
    found = re.findall(r"\d+", path.stem)
    return int(found[-1]) if found else -1


def remove_surplus(written: Path, keep: int) -> None:
    """Delete all checkpoints beside ``written`` but the newest ``keep``, and what killed ranks have left.

    ``written`` is kept in any case: the others may be damaged. Of a folder the manifest goes first: without
    it the folder is no checkpoint.
    """
    old = [each for each in all_in(written.parent)[keep:] if each != written]
    incomplete = folders(written.parent, complete=False)
    abandoned = [each for each, step in incomplete.items() if step < _number(written)]
    for surplus in (*old, *abandoned):
        try:
            if surplus.is_dir():
                (surplus / MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(surplus)
            else:
                surplus.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointWriteError(
                f"could not delete the old checkpoint {os.fspath(surplus)!r}: {error.strerror}. The newest"
                f" {keep} are untouched. Check the disk and its permissions, or keep more."
            ) from error


def read_small(folder: Path) -> Sections:
    """All sections of a checkpoint but the model and the optimizer, and the folder as ``PARTS``."""
    names = checkpoint.FileSystemReader(folder).read_metadata().state_dict_metadata
    sections = {name.partition(".")[0] for name in names} - {"model", "optimizer"}
    empty: Sections = {"metrics": {}, "plugins": {}}  # a checkpoint has no entries of empty dicts
    return {**empty, **load_whole(sections, checkpoint_id=folder), PARTS: str(folder)}


def read_model(folder: str) -> Sections:
    """The state dict of the model in a checkpoint, whole."""
    model: Sections = load_whole("model", checkpoint_id=folder)["model"]
    return model


def load(folder: str, model: Module, optimizer: Optimizer) -> None:
    """Load ``model``, this rank's part or the whole, and ``optimizer`` from a checkpoint. Collective."""
    state = {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer, options=_FLAT),
    }
    checkpoint.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])


def load_whole_into(model: Module, optimizer: Optimizer, saved: Sections) -> None:
    """Load this rank's part of the sections ``model`` and ``optimizer`` of a checkpoint in one file."""
    own = set(get_model_state_dict(model))
    set_model_state_dict(model, {name: value for name, value in saved["model"].items() if name in own})
    groups = saved["optimizer"]["param_groups"]
    names = {
        number: name
        for group in groups
        for number, name in zip(group["params"], group["param_names"], strict=True)
    }
    state = {names[number]: entry for number, entry in saved["optimizer"]["state"].items()}
    named = [{**group, "params": group["param_names"]} for group in groups]
    set_optimizer_state_dict(model, optimizer, {"state": state, "param_groups": named})


class FolderWriter:
    """Writes checkpoints of all ranks into ``folder`` in the background, and keeps the newest ``keep``."""

    patience = 1.0

    def __init__(self, folder: Path, keep: int, is_main: bool) -> None:
        self.folder, self.keep, self._is_main = folder, keep, is_main
        self._done = concurrent.futures.Future[None]()
        self._done.set_result(None)

    def save(self, step: int, model: Module, optimizer: Optimizer, sections: Mapping[str, object]) -> None:
        """Begin to write a checkpoint; waits for the last one, and raises its error. Collective."""
        self.close()
        state = {
            "model": get_model_state_dict(model),
            "optimizer": get_optimizer_state_dict(model, optimizer, options=_FLAT),
            **sections,
        }
        path = self.folder / f"step-{step:08d}"
        saving = checkpoint.async_save(state, checkpoint_id=path)
        assert isinstance(saving, concurrent.futures.Future)  # the copy is made at once
        done = concurrent.futures.Future[None]()
        self._done = done

        def finish(future: concurrent.futures.Future[Metadata]) -> None:
            try:
                future.result()
                if self._is_main:
                    remove_surplus(path, self.keep)
            except BaseException as error:  # raised in the training thread, by ``check``
                done.set_exception(error)
            else:
                done.set_result(None)

        saving.add_done_callback(finish)

    def check(self) -> None:
        """Raise the error of the last write, if it has failed."""
        if self._done.done():
            self._done.result()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the last checkpoint is complete or has failed; False after the timeout."""
        return bool(concurrent.futures.wait([self._done], timeout).done)

    def close(self) -> None:
        """Wait for the last checkpoint; raise if it could not be written."""
        self.wait()
        self.check()
