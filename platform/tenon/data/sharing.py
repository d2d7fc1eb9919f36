"""The sharing strategy of worker processes: large batches in shared memory, or through a pipe."""

from __future__ import annotations

__all__ = ["get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"]

_STRATEGIES = {"file_descriptor", "file_system"}
_chosen = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """Return PyTorch's names of the sharing strategies."""
    return set(_STRATEGIES)


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how worker processes send large batches.

    "file_descriptor": in shared memory, where each block may keep a file descriptor open; "file_system":
    through a pipe.
    """
    global _chosen
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"sharing strategy {new_strategy!r} is not one of {sorted(_STRATEGIES)}.")
    _chosen = new_strategy


def get_sharing_strategy() -> str:
    """Return the current sharing strategy."""
    return _chosen
