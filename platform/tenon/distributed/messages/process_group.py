"""Who is here: joining the other ranks, numbers of ranks, and groups of some of them, under torch's names.

``init_process_group`` is optional and takes what torch scripts pass: the launcher has decided everything
already.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
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
_asked: str | None = None


class NonMember:
    """What ``new_group`` gives to a rank that is not in the group: collectives with it do nothing."""

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"


class _Everyone(type):
    """Lets ``WORLD`` be the communicator in force where it is read, which threads have their own of."""

    @property
    def WORLD(cls) -> Communicator | None:
        """All ranks; None, which means them too, before the first use."""
        return world.current()


class GroupMember(metaclass=_Everyone):
    """torch's names for all ranks, and for a group that this rank is not in."""

    NON_GROUP_MEMBER = NonMember()


class group(GroupMember):
    """torch's other name of ``GroupMember``: ``group.WORLD``."""


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the other ranks now rather than at the first use; calling it again changes nothing.

    torch's backend names are accepted, since MPI does their work; any other must be a communicator's name.
    ``world_size`` and ``rank`` are checked against the launcher's if given.

    ``timeout``, ``group_name``, ``pg_options`` and ``device_id`` have no effect: MPI has one world, and how
    long ranks wait is a setting (``docs/guide/distributed.md``).
    """
    global _asked, _destroyed
    if (init_method or "env://") != "env://" or store is not None:
        raise LaunchError(
            f"init_method={init_method!r}, store={store!r}: ranks find each other through the launcher. "
            "Leave both out and start with: mpirun -n N python ..."
        )
    communicator = world.get_communicator()
    _destroyed = False
    asked = None if backend is None else backend.lower()
    names = {part.rpartition(":")[2] for part in (asked or "mpi").split(",")}
    if not names <= TORCH_BACKENDS | {communicator.name}:
        raise LaunchError(
            f"backend={backend!r} was asked for, but this process speaks through {communicator.name!r}. "
            f"Leave it out, or set TENON_COMMUNICATOR={backend} before the start."
        )
    if world_size not in (-1, communicator.size) or rank not in (-1, communicator.rank):
        raise LaunchError(
            f"init_process_group(world_size={world_size}, rank={rank}), but the launcher made this process "
            f"rank {communicator.rank} of {communicator.size}. Leave both out."
        )
    _asked = asked


def destroy_process_group(group: Communicator | None = None) -> None:
    """Part from the other ranks; all must do so at the same point. Communicating again starts anew."""
    global _asked, _destroyed
    if isinstance(group, NonMember):
        return
    communicator = world.current() if group is None else group
    if communicator is not None:
        everyone = communicator is world.current()
        communicator.close()
        if not everyone:
            return
        world.set_process_communicator(None)
    _asked, _destroyed = None, True


def is_available() -> bool:
    """Always true: alone, every collective works on one rank."""
    return True


def is_initialized() -> bool:
    """Whether there is a communicator, or a launcher, so that the first use makes one."""
    return world.current() is not None or (launched() is not None and not _destroyed)


def get_rank(group: Communicator | None = None) -> int:
    """This process's number among all ranks, or those of ``group``; -1 outside of it."""
    found = find_group(group)
    return -1 if found is None else int(found.rank)


def get_world_size(group: Communicator | None = None) -> int:
    """The number of ranks, 1 without a launcher; -1 for a group that this rank is not in."""
    found = find_group(group)
    return -1 if found is None else int(found.size)


def get_local_rank(group: Communicator | None = None) -> int:
    """This process's number among the ranks of its node."""
    return member(group).local_rank


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """``get_local_rank`` under torch's name; there is always one, so the fallback is never needed.

    ``fallback_rank`` has no effect.
    """
    return get_local_rank()


def get_backend(group: Communicator | None = None) -> str:
    """The name that ``init_process_group`` was given, or else the communicator's, such as "mpi"."""
    found = member(group)
    return _asked or found.name


def get_backend_config(group: Communicator | None = None) -> str:
    """``get_backend`` for each type of device: "cpu:gloo,cuda:gloo"."""
    name = get_backend(group)
    return name if ":" in name else f"cpu:{name},cuda:{name}"


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Communicator | NonMember:
    """The communicator of ``ranks``, by default in order of number; all ranks call it, also those outside.

    ``timeout``, ``backend``, ``pg_options``, ``group_desc`` and ``device_id`` have no effect: a group is part
    of the communicator that the launcher gave.
    """
    communicator = world.get_communicator()
    if use_local_synchronization:
        raise UnsupportedError(
            "new_group(use_local_synchronization=True) is not supported: all ranks compare what they ask "
            "for. Call it on every rank."
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
    place = chosen.index(communicator.rank) if inside else 0
    made = communicator.split(0 if inside else None, place, name=f"of ranks {chosen}")
    if made is None:
        return GroupMember.NON_GROUP_MEMBER
    made.ranks = tuple(chosen)
    return made


def new_subgroups(
    group_size: int | None = None,
    group: Communicator | None = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Communicator, list[Communicator | NonMember]]:
    """Groups of ``group_size`` consecutive ranks each, by default those of a node: mine, and all of them.

    ``timeout``, ``backend``, ``pg_options`` and ``group_desc`` have no effect, as for ``new_group``.
    """
    communicator = member(group)
    each = communicator.local_size if group_size is None else group_size
    if each < 1:
        raise RankArgumentError(f"The arg 'group_size' ({each}) must be positive.")
    if each > communicator.size:
        raise RankArgumentError(
            f"The arg 'group_size' ({each}) must not exceed the world size ({communicator.size})."
        )
    if communicator.size % each:
        raise RankArgumentError(
            f"The world size ({communicator.size}) must be divisible by group_size={each}: "
            "new_subgroups makes groups of one size. Use new_subgroups_by_enumeration for others."
        )
    mine = communicator.rank // each
    made = communicator.split(mine, communicator.rank, name=f"of {each} ranks each")
    assert made is not None
    made.ranks = communicator.ranks[mine * each : (mine + 1) * each]
    everyone: list[Communicator | NonMember] = [GroupMember.NON_GROUP_MEMBER] * (communicator.size // each)
    everyone[mine] = made
    return made, everyone


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Communicator | None, list[Communicator | NonMember]]:
    """Groups of these ranks, of which none is in two: mine, or None, and all of them.

    ``timeout``, ``backend``, ``pg_options`` and ``group_desc`` have no effect, as for ``new_group``.
    """
    if not ranks_per_subgroup_list:
        raise RankArgumentError(
            "The arg 'ranks_per_subgroup_list' cannot be empty. Give a list of ranks per group."
        )
    of: dict[int, Sequence[int]] = {}
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in of:
                raise RankArgumentError(
                    f"Rank {rank} has appeared in both subgroup {of[rank]} and {ranks}. Leave it out of one."
                )
            of[rank] = ranks
    made = [new_group(ranks) for ranks in ranks_per_subgroup_list]
    return next((one for one in made if isinstance(one, Communicator)), None), made


def get_process_group_ranks(group: Communicator | None = None) -> list[int]:
    """The numbers among all ranks of those in ``group``, in its order."""
    return list(member(group).ranks)


def get_group_rank(group: Communicator, global_rank: int) -> int:
    """The number in ``group`` of rank ``global_rank``."""
    ranks = member(group).ranks
    if global_rank not in ranks:
        raise RankArgumentError(
            f"Global rank {global_rank} is not part of group: it is of ranks {list(ranks)}."
        )
    return ranks.index(global_rank)


def get_global_rank(group: Communicator, group_rank: int) -> int:
    """The number among all ranks of the one that is ``group_rank`` in ``group``."""
    ranks = member(group).ranks
    if not 0 <= group_rank < len(ranks):
        raise RankArgumentError(
            f"Group rank {group_rank} is not part of group: it has {len(ranks)} ranks, {list(ranks)}."
        )
    return ranks[group_rank]


def find_group(group: Any) -> Communicator | None:
    """The communicator meant by ``group``; None where this rank is not in it."""
    if group is None:
        return world.get_communicator()
    if isinstance(group, NonMember):
        return None
    if not isinstance(group, Communicator):
        raise RankTypeError(f"group is a {type(group).__name__}. Pass a Communicator, or None for all ranks.")
    return group


def member(group: Any) -> Communicator:
    """The communicator meant by ``group``, of which this rank must be a member."""
    found = find_group(group)
    if found is None:
        raise RankArgumentError("Invalid process group specified: new_group gave this rank NON_GROUP_MEMBER.")
    return found


def taking_part(group: Any, function: str) -> Communicator | None:
    """``find_group`` with torch's warning where this rank calls ``function`` for a group it is not in."""
    found = find_group(group)
    if found is None:
        warnings.warn(
            f"{function} does nothing on rank {world.get_communicator().rank}, which is not in the group.",
            TenonWarning,
            stacklevel=3,
        )
    return found


def root_of(communicator: Communicator, rank: int | None, group_rank: int | None, argument: str) -> int:
    """The root's number in ``communicator``, given among all ranks or, as ``group_...``, in the group."""
    if (rank is None) == (group_rank is None):
        raise RankArgumentError(f"give either {argument} or group_{argument}, not {rank} and {group_rank}.")
    return get_group_rank(communicator, int(rank)) if rank is not None else int(group_rank or 0)
