"""``ZeroRedundancyOptimizer``: each rank keeps the optimizer state of its share of the parameters (ZeRO-1).

Each parameter is assigned to a rank, the largest first, always to the rank with the fewest elements so far.
Each rank runs the wrapped optimizer on its share and broadcasts the new values, so the weights are those of
the unsharded optimizer bit for bit, and the state takes ``1 / size`` of the memory. Gradients must have been
averaged, as ``DistributedDataParallel`` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenon.device import CPU, Device
from tenon.distributed.communication import objects, staging
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import dtype_name
from tenon.distributed.communication.world import get_communicator
from tenon.distributed.joinable import Joinable, JoinHook, notify_join_context
from tenon.distributed.replicas import buckets
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.distributed.replicas.last_step import options
from tenon.engine.types import Forwarded
from tenon.errors import OptimizerStateError, UnsupportedError
from tenon.optim import groups, state
from tenon.optim.optimizer import Optimizer, ParamsT
from tenon.optim.types import Closure, StateDict
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor

__all__ = ["ZeroRedundancyOptimizer"]

#: A parameter group: "params", "param_names" and the options of an optimizer, each of its own type.
ParamGroup: TypeAlias = dict[str, Any]
#: The state of one parameter by name: tensors and plain values.
Entry: TypeAlias = dict[str, Any]

_OWN = ("params", "param_names")


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """``optimizer_class(params, **defaults)`` with its state sharded over the ranks of ``process_group``.

    All ranks must create it with the same parameters, call ``step`` together, and ``consolidate_state_dict``
    before one of them calls ``state_dict``. A state dict is that of the plain optimizer: either loads it, on
    any number of ranks. ``parameters_as_bucket_view`` has no effect.
    """

    def __init__(
        self,
        params: ParamsT,
        optimizer_class: type[Optimizer],
        process_group: Communicator | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,  # each option has a type of its own
    ) -> None:
        if overlap_with_ddp:
            raise UnsupportedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp=True is not supported. Leave it out, and call"
                " step() after backward."
            )
        Joinable.__init__(self)
        self.process_group = get_communicator() if process_group is None else process_group
        self.rank, self.world_size = self.process_group.rank, self.process_group.size
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._wrapped = optimizer_class.__name__
        self._loads = [0] * self.world_size
        self._owners: dict[int, int] = {}
        self.process_group.models += 1
        self._name = f"parameters of sharded optimizer {self.process_group.models}"
        self._consolidated: dict[int, Entry] | None = None
        self.optim: Optimizer | None = None
        Optimizer.__init__(self, params, defaults)
        self.optim = optimizer_class([self._share(group) for group in self.param_groups], **defaults)
        self.state, self.defaults = self.optim.state, self.optim.defaults
        _copy_options(self.optim.param_groups, self.param_groups)

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add a parameter group; its parameters are sharded like the others."""
        groups.add(self, param_group)
        group = self.param_groups[-1]
        names = group.get("param_names") or [f"parameter {i}" for i in range(len(group["params"]))]
        named = list(zip(names, group["params"], strict=True))
        buckets.agree(self.process_group, named, [f"{self._wrapped}({options(group)})"])
        for parameter in sorted(group["params"], key=lambda p: -p.raw.size):
            rank = self._loads.index(min(self._loads))
            self._owners[id(parameter)] = rank
            self._loads[rank] += parameter.raw.size
        if self.optim is not None:
            self.optim.add_param_group(self._share(group))
            _copy_options(self.optim.param_groups[-1:], self.param_groups[-1:])

    def step(self, closure: Closure | None = None, **options: Forwarded) -> Forwarded:
        """Update this rank's shard of the parameters, then broadcast all shards."""
        notify_join_context(self)
        return self._advance(closure, **options)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gather the state of all ranks on rank ``to``; collective."""
        numbers = {id(p): n for n, p in enumerate(p for g in self.param_groups for p in g["params"])}
        own = {numbers[id(p)]: entry for p, entry in self.state.items() if isinstance(p, Tensor)}
        entries: dict[int, Entry] = {}
        for rank in range(self.world_size):
            payload = objects.encode(_describe(own)) if rank == self.rank else b""
            sent = self.process_group.all_gather_bytes(payload, name=f"optimizer state of rank {rank}")[rank]
            for number, description in objects.decode(sent).items():
                entry = _receive(self.process_group, rank, own.get(number, {}), description)
                if self.rank == to:
                    entries[number] = entry
        self._consolidated = dict(sorted(entries.items())) if self.rank == to else None

    def state_dict(self) -> StateDict:
        """The state of all ranks, on the rank where it has been consolidated since the last step."""
        if self._consolidated is None:
            raise OptimizerStateError(
                "Optimizer state has not been consolidated on this rank. Please call"
                f" `consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save the"
                " global state."
            )
        parameters = [p for group in self.param_groups for p in group["params"]]
        shard = self.state
        self.state = defaultdict(dict, {parameters[n]: e for n, e in self._consolidated.items()})
        try:
            return state.to_dict(self)
        finally:
            self.state = shard

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load a state dict of this class or of the plain optimizer; each rank keeps its share."""
        assert self.optim is not None
        saved = state_dict
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):
            changed = hook(self, saved)
            saved = saved if changed is None else changed
        owned = {
            key
            for key, (parameter, _) in state.match(self.param_groups, saved["param_groups"]).items()
            if self._owners[id(parameter)] == self.rank
        }
        self.optim.load_state_dict(
            {
                "state": {key: entry for key, entry in saved["state"].items() if key in owned},
                "param_groups": [_saved_share(group, owned) for group in saved["param_groups"]],
            }
        )
        self.state = self.optim.state
        self._consolidated = None
        _copy_options(saved["param_groups"], self.param_groups)
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    def join_hook(self, **kwargs: object) -> JoinHook:
        """The hook by which a rank without data updates its share; list the model before the optimizer."""
        return _ZeroJoinHook(self)

    @property
    def join_device(self) -> Device:
        """The device of the first parameter."""
        device: Device = self.param_groups[0]["params"][0].device
        return device

    @property
    def join_process_group(self) -> Communicator:
        """The ranks over which the state is sharded."""
        return self.process_group

    def _advance(self, closure: Closure | None = None, **options: Forwarded) -> Forwarded:
        """``step`` without notifying a ``Join`` context."""
        assert self.optim is not None
        _copy_options(self.param_groups, self.optim.param_groups)
        loss = self.optim.step(closure, **options)
        _copy_options(self.optim.param_groups, self.param_groups)
        self._consolidated = None
        parameters = [p for group in self.param_groups for p in group["params"]]
        for rank in range(self.world_size):
            shard = [p for p in parameters if self._owners[id(p)] == rank]
            broadcast_tensors(shard, self.process_group, root=rank, name=f"{self._name}, part of rank {rank}")
        return loss

    def _share(self, group: ParamGroup) -> ParamGroup:
        """``group`` with this rank's parameters only, as ``(name, parameter)`` if they have names."""
        own = [self._owners[id(p)] == self.rank for p in group["params"]]
        items = (
            list(zip(group["param_names"], group["params"], strict=True)) if "param_names" in group else None
        )
        shared = [item for item, keep in zip(items or group["params"], own, strict=True) if keep]
        return {**{k: v for k, v in group.items() if k not in _OWN}, "params": shared}


class _ZeroJoinHook(JoinHook):
    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self.optimizer = optimizer

    def main_hook(self) -> None:
        self.optimizer._advance()


def _copy_options(source: list[ParamGroup], target: list[ParamGroup]) -> None:
    """Copy the options of the parameter groups ``source`` into those of ``target``."""
    for group, copied in zip(source, target, strict=True):
        copied.update({name: value for name, value in group.items() if name not in _OWN})


def _saved_share(group: ParamGroup, owned: Container[int | str]) -> ParamGroup:
    """A saved group with the parameters in ``owned`` only."""
    local = [key in owned for key in group["params"]]
    share = {**group, "params": [key for key, keep in zip(group["params"], local, strict=True) if keep]}
    if "param_names" in group:
        share["param_names"] = [name for name, keep in zip(group["param_names"], local, strict=True) if keep]
        if not share["param_names"]:
            del share["param_names"]
    return share


def _describe(entries: Mapping[int, Mapping[str, object]]) -> dict[int, dict[str, tuple[object, ...]]]:
    """For each parameter and name: ``("tensor", dtype, shape)``, or ``("value", value)``."""
    return {
        number: {
            name: (
                ("tensor", dtype_name(staging.to_host(value).dtype), list(value.shape))
                if isinstance(value, Tensor)
                else ("value", value)
            )
            for name, value in entry.items()
        }
        for number, entry in entries.items()
    }


def _receive(
    communicator: Communicator,
    root: int,
    own: Entry,
    description: Mapping[str, Sequence[Any]],  # as sent by the root
) -> Entry:
    """Broadcast the state of one parameter, ``own`` on rank ``root``; return it with tensors on the host."""
    entry: Entry = {}
    for name, (kind, *content) in description.items():
        if kind == "value":
            entry[name] = content[0]
            continue
        dtype, shape = content
        array = np.array(staging.to_host(own[name])) if communicator.rank == root else np.empty(shape, dtype)
        communicator.broadcast(array, root, out=array, name=f"optimizer state {name!r}")
        entry[name] = wrap(array, CPU)
    return entry
