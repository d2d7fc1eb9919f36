"""How worker processes send large batches: in shared memory, or through a pipe."""

from __future__ import annotations

__all__ = ["get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"]

_STRATEGIES = {"file_descriptor", "file_system"}
_chosen = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """torch's names of ways to share memory."""
    return set(_STRATEGIES)


def set_sharing_strategy(new_strategy: str) -> None:
    """How a loader's worker processes send large batches: in shared memory, each of which may hold a file
    open ("file_descriptor"), or through a pipe."""
    global _chosen
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"sharing strategy {new_strategy!r} is not one of {sorted(_STRATEGIES)}.")
    _chosen = new_strategy


def get_sharing_strategy() -> str:
    """What ``set_sharing_strategy`` was told."""
    return _chosen
