"""Process groups under torch's names: initialization, ranks and sizes, and groups of some of the ranks.

``init_process_group`` is optional and accepts the arguments that torch scripts pass, although the launcher
has determined the group already.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TypeAlias

from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.processes.group_order import watch_group
from tenon.distributed.processes.launcher import launched
from tenon.errors import (
    LaunchError,
    RankArgumentError,
    RankTypeError,
    TenonWarning,
    UnsupportedError,
)

TORCH_BACKENDS = frozenset({"gloo", "nccl", "ucc", "mpi"})
_destroyed = False
_requested_backend: str | None = None


class NonMember:
    """The group that ``new_group`` returns on ranks outside of it: collectives on it do nothing."""

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"


#: A communicator, a group that ``new_group`` returned, or None for all ranks.
Group: TypeAlias = Communicator | NonMember | None


class _CurrentWorld(type):
    """The metaclass of ``GroupMember``: ``WORLD`` is looked up at each access, as threads may differ."""

    @property
    def WORLD(cls) -> Communicator | None:
        """The current communicator; None, which also means all ranks, before the first use."""
        return world.current()


class GroupMember(metaclass=_CurrentWorld):
    """torch's names for the group of all ranks, and for a group that this rank is not in."""

    NON_GROUP_MEMBER = NonMember()


class group(GroupMember):
    """``GroupMember`` under torch's other name."""


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: object = None,
    world_size: int = -1,
    rank: int = -1,
    store: object = None,
    group_name: str = "",
    pg_options: object = None,
    device_id: object = None,
) -> None:
    """Create the process's communicator now rather than at the first use; further calls have no effect.

    ``backend`` is the communicator's name or one of torch's backends, in whose place MPI is used.
    ``world_size`` and ``rank`` are compared with the launcher's if given.

    ``timeout``, ``group_name``, ``pg_options`` and ``device_id`` have no effect: MPI has one world, and how
    long ranks wait is a setting (``docs/guide/distributed.md``).
    """
    global _requested_backend, _destroyed
    if (init_method or "env://") != "env://" or store is not None:
        raise LaunchError(
            f"init_method={init_method!r}, store={store!r}: ranks find each other through the launcher. "
            "Leave both out and start with: mpirun -n N python ..."
        )
    communicator = world.get_communicator()
    _destroyed = False
    requested = None if backend is None else backend.lower()
    names = {part.rpartition(":")[2] for part in (requested or "mpi").split(",")}
    if not names <= TORCH_BACKENDS | {communicator.name}:
        raise LaunchError(
            f"backend={backend!r} was requested, but this process communicates by {communicator.name!r}. "
            f"Leave it out, or set TENON_COMMUNICATOR={backend} before the start."
        )
    if world_size not in (-1, communicator.size) or rank not in (-1, communicator.rank):
        raise LaunchError(
            f"init_process_group(world_size={world_size}, rank={rank}), but the launcher made this process "
            f"rank {communicator.rank} of {communicator.size}. Leave both out."
        )
    _requested_backend = requested


def destroy_process_group(group: Group = None) -> None:
    """Destroy ``group``; all its ranks must call this at the same point.

    After the group of all ranks is destroyed, the next use creates a new one.
    """
    global _requested_backend, _destroyed
    if isinstance(group, NonMember):
        return
    communicator = world.current() if group is None else group
    if communicator is not None:
        is_world = communicator is world.current()
        communicator.close()
        if not is_world:
            return
        world.set_process_communicator(None)
    _requested_backend, _destroyed = None, True


def is_available() -> bool:
    """Always true: without a launcher, collectives run on one rank."""
    return True


def is_initialized() -> bool:
    """Whether there is a communicator, or a launcher, so that the first use creates one."""
    return world.current() is not None or (launched() is not None and not _destroyed)


def get_rank(group: Group = None) -> int:
    """This process's rank in ``group``; -1 if it is not a member."""
    communicator = find_group(group)
    return -1 if communicator is None else int(communicator.rank)


def get_world_size(group: Group = None) -> int:
    """The number of ranks in ``group``, 1 without a launcher; -1 if this rank is not a member."""
    communicator = find_group(group)
    return -1 if communicator is None else int(communicator.size)


def get_local_rank(group: Group = None) -> int:
    """This process's rank among those of its node."""
    return member(group).local_rank


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """``get_local_rank`` under torch's name.

    ``fallback_rank`` has no effect, as the local rank is always known.
    """
    return get_local_rank()


def get_backend(group: Group = None) -> str:
    """The backend passed to ``init_process_group``, or else the communicator's name, such as "mpi"."""
    communicator = member(group)
    return _requested_backend or communicator.name


def get_backend_config(group: Group = None) -> str:
    """``get_backend`` for each type of device, as "cpu:gloo,cuda:gloo"."""
    name = get_backend(group)
    return name if ":" in name else f"cpu:{name},cuda:{name}"


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: object = None,
    backend: str | None = None,
    pg_options: object = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: object = None,
    sort_ranks: bool = True,
) -> Communicator | NonMember:
    """The communicator of ``ranks``, sorted by default; all ranks of the job must call this.

    ``timeout``, ``backend``, ``pg_options``, ``group_desc`` and ``device_id`` have no effect: a group is part
    of the process's communicator.
    """
    communicator = world.get_communicator()
    if use_local_synchronization:
        raise UnsupportedError(
            "new_group(use_local_synchronization=True) is not supported: a group is created by all "
            "ranks of the job. Call it on every rank."
        )
    chosen = list(range(communicator.size) if ranks is None else ranks)
    if sort_ranks:
        chosen.sort()
    wrong = [rank for rank in chosen if not 0 <= rank < communicator.size]
    if wrong or len(set(chosen)) != len(chosen) or not chosen:
        raise RankArgumentError(
            f"new_group: ranks={ranks} must be different numbers from 0 to {communicator.size - 1}."
        )
    inside = communicator.rank in chosen
    position = chosen.index(communicator.rank) if inside else 0
    created = communicator.split(0 if inside else None, position, name=f"of ranks {chosen}")
    if created is not None:
        created.ranks = tuple(chosen)
    watch_group(communicator, created)
    return GroupMember.NON_GROUP_MEMBER if created is None else created


def new_subgroups(
    group_size: int | None = None,
    group: Group = None,
    timeout: object = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[Communicator, list[Communicator | NonMember]]:
    """Split ``group`` into groups of ``group_size`` consecutive ranks, by default those of each node.

    Returns this rank's group and the list of all groups, in which the others are ``NON_GROUP_MEMBER``.

    ``timeout``, ``backend``, ``pg_options`` and ``group_desc`` have no effect, as for ``new_group``.
    """
    communicator = member(group)
    size = communicator.local_size if group_size is None else group_size
    if size < 1:
        raise RankArgumentError(f"The arg 'group_size' ({size}) must be positive.")
    if size > communicator.size:
        raise RankArgumentError(
            f"The arg 'group_size' ({size}) must not exceed the world size ({communicator.size})."
        )
    if communicator.size % size:
        raise RankArgumentError(
            f"The world size ({communicator.size}) must be divisible by group_size={size}: "
            "new_subgroups makes groups of one size. Use new_subgroups_by_enumeration for others."
        )
    index = communicator.rank // size
    own = communicator.split(index, communicator.rank, name=f"of {size} ranks each")
    assert own is not None  # every rank passes a color
    own.ranks = communicator.ranks[index * size : (index + 1) * size]
    watch_group(communicator, own)
    subgroups: list[Communicator | NonMember] = [GroupMember.NON_GROUP_MEMBER] * (communicator.size // size)
    subgroups[index] = own
    return own, subgroups


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: object = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[Communicator | None, list[Communicator | NonMember]]:
    """Create a group of each list of ranks; no rank may be in two of them.

    Returns this rank's group, None if it is in none, and the list of all groups, in which the others are
    ``NON_GROUP_MEMBER``.

    ``timeout``, ``backend``, ``pg_options`` and ``group_desc`` have no effect, as for ``new_group``.
    """
    if not ranks_per_subgroup_list:
        raise RankArgumentError(
            "The arg 'ranks_per_subgroup_list' cannot be empty. Give a list of ranks per group."
        )
    subgroup_of: dict[int, Sequence[int]] = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in subgroup_of:
                raise RankArgumentError(
                    f"Rank {rank} has appeared in both subgroup {subgroup_of[rank]} and {ranks}. Leave it out"
                    " of one."
                )
            subgroup_of[rank] = ranks
    subgroups = [new_group(ranks) for ranks in ranks_per_subgroup_list]
    return next((each for each in subgroups if isinstance(each, Communicator)), None), subgroups


def get_process_group_ranks(group: Group = None) -> list[int]:
    """The global ranks of the members of ``group``, in the order of their group ranks."""
    return list(member(group).ranks)


def get_group_rank(group: Group, global_rank: int) -> int:
    """The group rank of ``global_rank`` in ``group``."""
    ranks = member(group).ranks
    if global_rank not in ranks:
        raise RankArgumentError(
            f"Global rank {global_rank} is not part of group: it is of ranks {list(ranks)}."
        )
    return ranks.index(global_rank)


def get_global_rank(group: Group, group_rank: int) -> int:
    """The global rank of ``group_rank`` of ``group``."""
    ranks = member(group).ranks
    if not 0 <= group_rank < len(ranks):
        raise RankArgumentError(
            f"Group rank {group_rank} is not part of group: it has {len(ranks)} ranks, {list(ranks)}."
        )
    return ranks[group_rank]


def find_group(group: object) -> Communicator | None:
    """The communicator of ``group``, which is a ``Group``; None if this rank is not a member."""
    if group is None:
        return world.get_communicator()
    if isinstance(group, NonMember):
        return None
    if not isinstance(group, Communicator):
        raise RankTypeError(f"group is a {type(group).__name__}. Pass a Communicator, or None for all ranks.")
    return group


def member(group: object) -> Communicator:
    """The communicator of ``group``; raises ``RankArgumentError`` if this rank is not a member."""
    communicator = find_group(group)
    if communicator is None:
        raise RankArgumentError("Invalid process group specified: new_group gave this rank NON_GROUP_MEMBER.")
    return communicator


def taking_part(group: object, function: str) -> Communicator | None:
    """``find_group``, with torch's warning if this rank is not a member and calls ``function``."""
    communicator = find_group(group)
    if communicator is None:
        warnings.warn(
            f"{function} does nothing on rank {world.get_communicator().rank}, which is not in the group.",
            TenonWarning,
            stacklevel=3,
        )
    return communicator


def root_of(communicator: Communicator, rank: int | None, group_rank: int | None, argument: str) -> int:
    """The root's rank in ``communicator``, from its global ``rank`` or its ``group_rank``.

    Raises ``RankArgumentError``, naming ``argument``, unless exactly one of them is given.
    """
    if (rank is None) == (group_rank is None):
        raise RankArgumentError(f"pass either {argument} or group_{argument}, not {rank} and {group_rank}.")
    return get_group_rank(communicator, int(rank)) if rank is not None else int(group_rank or 0)
