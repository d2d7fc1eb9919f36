"""Read and write the whole parameters, and whole state dicts, of models with sharded parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from tenon.distributed.fsdp.parameter_group import ParameterGroup
from tenon.distributed.fsdp.state import STATE, states_of
from tenon.distributed.tensor.creation import distribute_tensor
from tenon.distributed.tensor.dtensor import DTensor
from tenon.nn.module import Module
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor


@contextlib.contextmanager
def gathered(module: Module, recurse: bool, writeback: bool, with_grads: bool) -> Iterator[None]:
    """Inside, modules have their whole parameters; with ``writeback``, changes of them are kept.

    Collective. With ``with_grads`` the whole gradients are there too, and are kept alike.
    """
    states = states_of(module) if recurse else [module.__dict__[STATE]]
    groups = [state.group for state in states if state.group.parameters]
    before = {id(group): group.is_gathered for group in groups}
    for group in groups:
        group.reshard()  # shards may have been updated since they were gathered
        group.unshard(private=True)
        if with_grads:
            _gather_gradients(group)
    try:
        yield
    finally:
        for group in groups:
            _put_back(group, writeback, with_grads)
            group.reshard()
            if before[id(group)]:
                group.unshard()


def _gather_gradients(group: ParameterGroup) -> None:
    for parameter in group.parameters:
        parameter.gather_gradient()


def _put_back(group: ParameterGroup, writeback: bool, with_grads: bool) -> None:
    """Copy the whole parameters, and gradients, into the shards; drop the gradients."""
    for parameter in group.parameters:
        if writeback:
            parameter.write_back(parameter.whole)
            shard = parameter.sharded.grad
            if with_grads and shard is not None and parameter.whole.grad is not None:
                host = parameter.layout.host_part(parameter.whole.grad)
                shard.raw.local[...] = parameter.own_part_of(host)
        parameter.whole.grad = None


def whole_tensors(values: Mapping[str, object], keeps: bool) -> dict[str, object]:
    """``values`` with DTensors as whole tensors, on every rank, or only those that ``keeps`` is true on;
    others get an empty dict. Collective."""
    found: dict[str, object] = {}
    for name, value in values.items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        if keeps:
            found[name] = whole.detach() if isinstance(whole, Tensor) else whole
    return found


def sharded_like(values: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """``values`` with whole tensors distributed as those of ``own`` of the same name are; each rank takes its
    part, without communication."""
    result: dict[str, object] = {}
    with no_grad():
        for name, value in values.items():
            like = own.get(name)
            if isinstance(like, DTensor) and isinstance(value, Tensor) and not isinstance(value, DTensor):
                fits = tuple(value.shape) == tuple(like.shape)
                value = _distributed(value, like) if fits else value
            result[name] = value
    return result


def _distributed(value: Tensor, like: DTensor) -> DTensor:
    return distribute_tensor(value.detach(), like.device_mesh, like.placements, src_data_rank=None)


def on_cpu(values: Mapping[str, object], offloads: bool) -> dict[str, object]:
    """``values`` with tensors on the CPU if ``offloads``."""
    return {
        name: value.cpu() if offloads and isinstance(value, Tensor) else value
        for name, value in values.items()
    }
