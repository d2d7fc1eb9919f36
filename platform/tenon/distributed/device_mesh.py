"""``DeviceMesh``: the ranks of a job as an array of one or more named dimensions.

``init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "model"))`` makes 8 ranks a 2 x 4 grid. Each rank
belongs to one group along each dimension, which collectives over that dimension use.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.processes.group_order import watch_group
from tenon.errors import ArgumentError, CommunicatorError
from tenon.tensors.creation.create import tensor
from tenon.tensors.tensor import Tensor

__all__ = ["DeviceMesh", "init_device_mesh"]

#: The meshes of the ``with`` blocks that are open, the innermost last.
_open: contextvars.ContextVar[tuple[DeviceMesh, ...]] = contextvars.ContextVar("device meshes", default=())


class DeviceMesh:
    """Ranks in an array; all ranks of the job must create it, with the same arguments.

    ``mesh`` has the rank at each position; ``mesh_dim_names`` names its dimensions. ``mesh["data"]`` is the
    part along that dimension in which this rank is, ``mesh["data", "model"]`` of several. In a ``with`` block
    it is the default mesh of ``distribute_tensor`` and other functions.

    Source: torch.distributed.device_mesh.DeviceMesh.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any = None,  # a tensor, an array or nested lists of ranks
        *,
        mesh_dim_names: Sequence[str] | None = None,
        _groups: Sequence[Communicator | None] | None = None,
        _root: DeviceMesh | None = None,
    ) -> None:
        ranks = np.arange(world.get_communicator().size) if mesh is None else mesh
        host = ranks.numpy() if isinstance(ranks, Tensor) else np.asarray(ranks)
        self.device_type = _checked_device(device_type)
        self._ranks = _checked_ranks(host, _groups is None)
        self.mesh_dim_names = _checked_names(mesh_dim_names, self._ranks.ndim)
        place = np.argwhere(self._ranks == world.get_communicator().rank)
        self._coordinate = tuple(int(c) for c in place[0]) if len(place) else None
        self._groups = _split(self._ranks, self._coordinate) if _groups is None else tuple(_groups)
        #: The mesh that this one is a part of, and there the names of flattened dimensions and their parts.
        self._root = self if _root is None else _root
        self._flattened: dict[str, tuple[tuple[str, ...], DeviceMesh]] = {}

    # --- its shape ---

    @property
    def mesh(self) -> Tensor:
        """The ranks, as an int32 tensor."""
        return tensor(self._ranks.astype(np.int32))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._ranks.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._ranks.ndim

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, of one dimension or in all."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    # --- this rank in it ---

    def get_rank(self) -> int:
        """The global rank of this process."""
        return world.get_communicator().rank

    def get_coordinate(self) -> tuple[int, ...] | None:
        """The position of this rank; None if it is not in the mesh."""
        return self._coordinate

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The position of this rank along a dimension, which may be left out if there is only one."""
        dim = self._dim(mesh_dim, "get_local_rank")
        return self._member()[dim]

    def get_group(self, mesh_dim: int | str | None = None) -> Communicator:
        """The group of the ranks that differ from this one in ``mesh_dim`` only, or of flattened dimensions
        that ``mesh_dim`` names."""
        flattened = self._root._flattened
        if (
            isinstance(mesh_dim, str)
            and mesh_dim in flattened
            and mesh_dim not in (self.mesh_dim_names or ())
        ):
            return flattened[mesh_dim][1].get_group()
        dim = self._dim(mesh_dim, "get_group")
        self._member()
        group = self._groups[dim]
        assert group is not None
        return group

    def get_all_groups(self) -> list[Communicator]:
        """The groups of all dimensions."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def _line(self, dim: int) -> tuple[int, ...] | None:
        """The ranks that differ from this one in dimension ``dim`` only; None if it is not in the mesh."""
        if self._coordinate is None:
            return None
        place = (slice(None) if d == dim else c for d, c in enumerate(self._coordinate))
        return tuple(self._ranks[tuple(place)].tolist())

    def _member(self) -> tuple[int, ...]:
        if self._coordinate is None:
            raise CommunicatorError(
                f"rank {self.get_rank()} is not in the mesh {self!r}, so it has no position or group there."
                " Ask get_coordinate() first, which is None outside of the mesh."
            )
        return self._coordinate

    def _dim(self, mesh_dim: int | str | None, function: str) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise ArgumentError(
                    f"{function}(): Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim >"
                    f" 1. The mesh has {self.ndim} dimensions{self._named()}."
                )
            return 0
        if isinstance(mesh_dim, str):
            return self._dim_of(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise ArgumentError(
                f"{function}({mesh_dim}): Found the DeviceMesh have {self.ndim} dimensions. Pass one of them."
            )
        return mesh_dim % self.ndim

    def _dim_of(self, name: str) -> int:
        if self.mesh_dim_names is None or name not in self.mesh_dim_names:
            raise KeyError(f"Invalid mesh_dim_name: Mesh dimension {name!r} does not exist{self._named()}.")
        return self.mesh_dim_names.index(name)

    def _named(self) -> str:
        return "" if self.mesh_dim_names is None else f" ({', '.join(map(repr, self.mesh_dim_names))})"

    # --- parts of it ---

    @classmethod
    def from_group(
        cls,
        group: Communicator | Sequence[Communicator],
        device_type: str,
        mesh: Any = None,  # a tensor, an array or nested lists of ranks
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:
        """A mesh of groups that exist: of one group, or with ``mesh`` of one for each dimension."""
        groups = [group] if isinstance(group, Communicator) else list(group)
        if not groups:
            raise ArgumentError("DeviceMesh.from_group: Expects at least one ProcessGroup to be passed.")
        if isinstance(group, Communicator) and mesh is None:
            mesh = list(group.ranks)
        if mesh is None:
            raise ArgumentError(
                "DeviceMesh.from_group: Must pass mesh if passing multiple ProcessGroups: the array of all"
                " ranks."
            )
        made = cls(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=groups)
        if made.ndim != len(groups):
            raise ArgumentError(
                f"DeviceMesh.from_group: Expects mesh with ndim equal to number of ProcessGroups, but got"
                f" {len(groups)} groups for a mesh of {made.ndim} dimensions."
            )
        for dim, each in enumerate(groups):
            line = tuple(made._ranks.ravel().tolist()) if made.ndim == 1 else made._line(dim)
            if line is not None and tuple(each.ranks) != line:
                raise ArgumentError(
                    f"DeviceMesh.from_group: Invalid mesh {made._ranks.tolist()} for a group of the ranks"
                    f" {list(each.ranks)} along dimension {dim}, where the mesh has {list(line)}."
                )
        return made

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        names = (names,) if isinstance(names, str) else tuple(names)
        if self.mesh_dim_names is None:
            raise ArgumentError(
                "Cannot slice a DeviceMesh without mesh_dim_names! Pass them when creating it."
            )
        if names == self.mesh_dim_names:
            return self
        flattened = self._root._flattened
        if len(names) == 1 and names[0] in flattened and names[0] not in self.mesh_dim_names:
            return flattened[names[0]][1]
        joined = [flattened[n][0] if n in flattened else (n,) for n in names]
        dims = [[self._dim_of(n) for n in parts] for parts in joined]
        order = [d for group in dims for d in group]
        if len(set(order)) != len(order):
            raise ArgumentError(
                f"mesh[{names}]: Slicing overlapping dim_names is not allowed. Name each dimension once"
                f"{self._named()}."
            )
        if order != sorted(order):
            raise KeyError(
                f"mesh[{names}]: Mesh dim indices should be in ascending order. Name dimensions in the order"
                f" of the mesh{self._named()}."
            )
        place = self._coordinate or (0,) * self.ndim
        part = self._ranks[tuple(slice(None) if d in order else place[d] for d in range(self.ndim))]
        shape = [math.prod(self.shape[d] for d in group) for group in dims]
        groups = [
            flattened[name][1]._groups[0] if name in flattened else self._groups[group[0]]
            for name, group in zip(names, dims, strict=True)
        ]
        return DeviceMesh(
            self.device_type, part.reshape(shape), mesh_dim_names=names, _groups=groups, _root=self._root
        )

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """A mesh of one dimension with the same ranks; collective.

        The mesh that this one is a part of finds it again, as ``mesh[mesh_dim_name]``, and so does a further
        call.
        """
        own = self.mesh_dim_names or tuple(f"dim_{d}" for d in range(self.ndim))
        name = mesh_dim_name or "_".join(own)
        if own == (name,):
            return self
        known = self._root._flattened
        if name in (self._root.mesh_dim_names or ()) or (name in known and known[name][0] != own):
            raise ArgumentError(
                f"_flatten: {name!r} has been created before, as a dimension{self._root._named()} or of other"
                " dimensions. Pass another mesh_dim_name."
            )
        if name not in known:
            inside = self._coordinate is not None
            groups = self._groups
            if self.ndim > 1:
                groups = (_group(self._ranks.ravel() if inside else None, f"dimension {name!r}"),)
            mesh = DeviceMesh(
                self.device_type,
                self._ranks.ravel(),
                mesh_dim_names=(name,),
                _groups=groups,
                _root=self._root,
            )
            known[name] = own, mesh
        return known[name][1]

    # --- Python's protocols ---

    def __enter__(self) -> Self:
        _open.set((*_open.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open.set(_open.get()[:-1])

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, DeviceMesh)
            and self.device_type == other.device_type
            and self.mesh_dim_names == other.mesh_dim_names
            and self.shape == other.shape
            and bool((self._ranks == other._ranks).all())
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.mesh_dim_names, self.shape, self._ranks.tobytes()))

    def __repr__(self) -> str:
        if self.mesh_dim_names is None:
            return f"DeviceMesh({self.shape}, device: {self.device_type!r}, ranks: {self._ranks.tolist()})"
        sizes = ", ".join(f"{n}={s}" for n, s in zip(self.mesh_dim_names, self.shape, strict=True))
        return f"DeviceMesh(({sizes}), device: {self.device_type!r}, ranks: {self._ranks.tolist()})"

    def __deepcopy__(self, memo: object) -> DeviceMesh:
        return self


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Mapping[int | str, object] | None = None,
) -> DeviceMesh:
    """Arrange all ranks of the job in a mesh of ``mesh_shape``, in order; collective.

    ``backend_override`` has no effect: all groups use the engine of the job's communicator. Raises
    ``ArgumentError`` if the product of the sizes is not the number of ranks.
    Source: torch.distributed.device_mesh.init_device_mesh.

    >>> init_device_mesh("cpu", (1,), mesh_dim_names=("data",))
    DeviceMesh((data=1), device: 'cpu', ranks: [0])
    """
    shape = (mesh_shape,) if isinstance(mesh_shape, int) else tuple(mesh_shape)
    count = world.get_communicator().size
    if (
        any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in shape)
        or math.prod(shape) != count
    ):
        raise ArgumentError(
            f"init_device_mesh: a mesh of {list(shape)} has {math.prod(shape) if shape else 0} places, but"
            f" the job has {count} ranks. Choose positive sizes whose product is {count}, or start with"
            f" another mpirun -n."
        )
    return DeviceMesh(device_type, np.arange(count).reshape(shape), mesh_dim_names=mesh_dim_names)


def current_mesh(given: DeviceMesh | None, function: str) -> DeviceMesh:
    """``given``, or the mesh of the innermost ``with`` block, or else one of all ranks."""
    if given is not None:
        if not isinstance(given, DeviceMesh):
            raise ArgumentError(f"{function}: device_mesh is a {type(given).__name__}, not a DeviceMesh.")
        return given
    if _open.get():
        return _open.get()[-1]
    return init_device_mesh("cpu", (world.get_communicator().size,))


def _checked_device(device_type: str) -> str:
    if not isinstance(device_type, str) or ":" in device_type:
        raise ArgumentError(
            f"Device type with index is not supported but got {device_type}. Pass a type, such as 'cpu'."
        )
    return device_type


def _checked_ranks(ranks: np.ndarray, whole: bool) -> np.ndarray:
    """``ranks`` as int64 of one axis or more; ArgumentError unless they are different ranks of the job."""
    count = world.get_communicator().size
    ranks = np.atleast_1d(ranks)
    if ranks.size == 0 or ranks.dtype.kind not in "iu":
        raise ArgumentError(f"DeviceMesh: mesh={ranks.tolist()} has to be an array of ranks, of one or more.")
    if len(np.unique(ranks)) != ranks.size or ranks.min() < 0 or ranks.max() >= count:
        raise ArgumentError(
            f"DeviceMesh: mesh={ranks.tolist()} has to consist of different ranks from 0 to {count - 1}."
        )
    return ranks.astype(np.int64)


def _checked_names(names: Sequence[str] | None, ndim: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = (names,) if isinstance(names, str) else tuple(names)
    if len(names) != ndim:
        raise ArgumentError(
            f"mesh_shape and mesh_dim_names should have same length! Got {ndim} dimensions and names {names}."
        )
    if len(set(names)) != ndim or not all(isinstance(n, str) for n in names):
        raise ArgumentError(f"Each mesh_dim_name must be unique. Got {names}: pass different strings.")
    return names


def _split(ranks: np.ndarray, coordinate: tuple[int, ...] | None) -> tuple[Communicator | None, ...]:
    """The group of this rank along each dimension; all ranks of the job take part."""
    communicator = world.get_communicator()
    if ranks.ndim == 1 and ranks.size == communicator.size and (ranks[:-1] < ranks[1:]).all():
        return (communicator,)
    groups = []
    for dim in range(ranks.ndim):
        line = None
        if coordinate is not None:
            line = ranks[tuple(slice(None) if d == dim else c for d, c in enumerate(coordinate))]
        groups.append(_group(line, f"dimension {dim}"))
    return tuple(groups)


def _group(line: np.ndarray | None, what: str) -> Communicator | None:
    """The group of the ranks in ``line``, in that order; None on a rank in none. All ranks take part."""
    communicator = world.get_communicator()
    ranks = [] if line is None else line.tolist()
    color, position = (ranks[0], ranks.index(communicator.rank)) if ranks else (None, 0)
    group = communicator.split(color, position, name=f"{what} of a mesh")
    if group is not None:
        group.ranks = tuple(ranks)
    watch_group(communicator, group)  # so that calls in different orders are reported
    return group
