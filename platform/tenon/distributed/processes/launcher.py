"""Detect, from environment variables alone, whether a launcher started this process as one of several ranks.

MPI itself knows the rank, but only once it is imported, and a process started without a launcher must never
import it. The variables below are set by the launchers' own daemons: users need not export any.
``SLURM_NTASKS`` is deliberately not read: ``sbatch`` sets it for the batch script too, which is not a rank.

Imported by ``import tenon`` through ``startup.py``: keep it free of heavy imports. Next: ``launch.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tenon.config import process_environment
from tenon.errors import LaunchError


class RankFacts(NamedTuple):
    """The rank and size that the launcher gave this process, in the job and on its node."""

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int


class _Launcher(NamedTuple):
    """A launcher, and the environment variables that it sets; the first that is set counts."""

    name: str
    rank: tuple[str, ...]
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]


# Most specific first: `mpirun` inside a Slurm step sees both sets, and the inner launcher counts.
LAUNCHERS = (
    _Launcher(
        "mpirun",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Launcher(
        "mpirun_rsh",
        ("MV2_COMM_WORLD_RANK",),
        ("MV2_COMM_WORLD_SIZE",),
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Launcher(
        "mpirun",
        ("PMI_RANK", "PALS_RANKID"),
        ("PMI_SIZE", "PALS_SIZE"),
        ("MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"),
        ("MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
    ),
    _Launcher("srun", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS",), ("SLURM_LOCALID",), ()),
)


def detect(environment: Mapping[str, str]) -> RankFacts | None:
    """The rank facts from a launcher's variables in ``environment``; None if no launcher set any.

    >>> detect({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"})
    RankFacts(launcher='mpirun', rank=1, size=2, local_rank=1, local_size=2)
    """
    for launcher in LAUNCHERS:
        rank = _read(environment, launcher.rank)
        size = _read(environment, launcher.size)
        if rank is None or size is None:
            continue
        if not 0 <= rank < size:
            raise LaunchError(
                f"{launcher.name} set rank {rank} of {size} in {launcher.rank[0]} and {launcher.size[0]}, "
                "which is impossible. Unset both to run as a single process, or start through the launcher."
            )
        local_rank = _read(environment, launcher.local_rank)
        local_size = _read(environment, launcher.local_size)
        if local_size is None:
            local_size = _slurm_local_size(environment)
        # Without a local size assume one node: the common case, and the cautious one for thread counts.
        local_size = size if local_size is None else local_size
        return RankFacts(
            launcher.name, rank, size, rank if local_rank is None else local_rank, max(1, local_size)
        )
    return None


def _read(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if not text:
            continue
        if not text.isdigit():
            raise LaunchError(
                f"the launcher variable {name}={text!r} is not a number. "
                "Unset it to run as a single process, or start through the launcher again."
            )
        return int(text)
    return None


def _slurm_local_size(environment: Mapping[str, str]) -> int | None:
    """The number of tasks on this node, from Slurm's list: ``"2(x3),1"`` is nodes of 2, 2, 2 and 1 tasks."""
    counts: list[int] = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        count, _, repeat = part.partition("(x")
        repeat = repeat.rstrip(")") or "1"
        if not count.isdigit() or not repeat.isdigit():
            return None
        counts += [int(count)] * int(repeat)
    node = environment.get("SLURM_NODEID", "0")
    return counts[int(node)] if node.isdigit() and int(node) < len(counts) else None


def launched() -> RankFacts | None:
    """This process's rank facts; None without a launcher, or in a job of a single rank."""
    facts = detect(process_environment())
    return facts if facts is not None and facts.size > 1 else None
