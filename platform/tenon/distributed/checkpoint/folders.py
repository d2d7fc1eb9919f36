"""What storages share that keep checkpoints in folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tenon.distributed.checkpoint.planner import SavePlan
from tenon.errors import CheckpointError


class InFolder:
    """A part of a storage whose checkpoint is the folder ``path``."""

    path: Path

    @property
    def checkpoint_id(self) -> str:
        """The folder."""
        return os.fspath(self.path)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether ``checkpoint_id`` is a path, and no URL."""
        return is_path(checkpoint_id)


def is_path(checkpoint_id: str | os.PathLike[str]) -> bool:
    """Whether ``checkpoint_id`` is a path, and no URL."""
    return isinstance(checkpoint_id, os.PathLike) or "://" not in checkpoint_id


def need_one_folder(plans: Sequence[SavePlan]) -> None:
    """CheckpointError if ranks save to different folders, which are the ``storage_data`` of their plans."""
    folders = {plan.storage_data: rank for rank, plan in enumerate(plans)}
    if len(folders) > 1:
        given = ", ".join(f"rank {rank} to {folder!r}" for folder, rank in [*folders.items()][:4])
        raise CheckpointError(
            f"the ranks save to different folders: {given}. Pass the same path on all, which all see."
        )
