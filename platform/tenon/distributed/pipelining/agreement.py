"""Compare the schedules of the ranks of a pipeline before their first step."""

from __future__ import annotations

from tenon.distributed.communication.communicator import Communicator
from tenon.errors import CollectiveMismatchError


def agree(group: Communicator, description: str) -> None:
    """Raise ``CollectiveMismatchError`` on every rank unless all describe the same schedule; collective."""
    if group.size == 1:
        return
    payloads = group.all_gather_bytes(description.encode(), name="schedule of a pipeline")
    if len(set(payloads)) > 1:
        lines = [
            f"  rank {rank} has {text.decode()}" for rank, text in zip(group.ranks, payloads, strict=True)
        ]
        raise CollectiveMismatchError(
            "\n".join(
                [
                    "the ranks of a pipeline have different schedules:",
                    *lines,
                    "Build the same on every rank; loss_fn too, although only the last stage calls it.",
                ]
            )
        )
