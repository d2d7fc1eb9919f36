"""``local_map``: call a function of plain tensors with this rank's parts of DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.distributed.tensor.dtensor import DTensor
from tenon.distributed.tensor.placement_types import Placement
from tenon.errors import ArgumentError, OptionError
from tenon.tensors.pytree import tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh

#: Placements of a tensor; None of another value.
Placed: TypeAlias = Sequence[Placement] | None
#: A function of the user's.
Mapped: TypeAlias = Callable[..., Any]


def local_map(
    func: Mapped | None = None,
    out_placements: Placed | tuple[Placed, ...] = None,
    in_placements: Sequence[Placed] | None = None,
    in_grad_placements: Sequence[Placed] | None = None,
    device_mesh: DeviceMesh | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Mapped:
    """``func``, which takes and returns plain tensors, as a function of DTensors, of which it gets the parts.

    ``out_placements`` are those of the result, or a tuple with those of each of several results. The DTensors
    passed have to have ``in_placements``, or with ``redistribute_inputs`` get them. The gradients that arrive
    at the parts are taken to be parts by ``in_grad_placements``, by default by the placements of the inputs.
    Results are on ``device_mesh``, by default on that of the first DTensor; without DTensors ``func`` is
    called as it is. Nested arguments and results count leaf by leaf. Without ``func``, a decorator.

    Raises ``ArgumentError`` for other placements. Source: torch.distributed.tensor.experimental.local_map.

    >>> import tenon
    >>> from tenon.distributed import init_device_mesh
    >>> from tenon.distributed.tensor import Shard, distribute_tensor
    >>> mesh = init_device_mesh("cpu", (1,))
    >>> scale = local_map(lambda part, factor: part * factor, out_placements=[Shard(0)])
    >>> scale(distribute_tensor(tenon.arange(3.0), mesh, [Shard(0)]), 2).full_tensor()
    tensor([0., 2., 4.])
    """
    options = out_placements, in_placements, in_grad_placements, device_mesh, redistribute_inputs
    if func is None:
        return lambda function: local_map(function, *options[:-1], redistribute_inputs=redistribute_inputs)
    return functools.wraps(func)(functools.partial(_call, func, *options))


def _call(
    func: Mapped,
    out_placements: Placed | tuple[Placed, ...],
    in_placements: Sequence[Placed] | None,
    in_grad_placements: Sequence[Placed] | None,
    mesh: DeviceMesh | None,
    redistributes: bool,
    *args: Any,  # those of the user's function
    **kwargs: Any,  # those of the user's function
) -> Any:  # what the user's function returns
    leaves, structure = tree_flatten(args)
    expected = _for_each(in_placements, len(leaves), "in_placements")
    gradients = _for_each(in_grad_placements, len(leaves), "in_grad_placements")
    distributed = [leaf for leaf in leaves if isinstance(leaf, DTensor)]
    local = []
    for leaf, placed, gradient in zip(leaves, expected, gradients, strict=True):
        if not isinstance(leaf, DTensor):
            if placed is not None and not isinstance(leaf, Tensor):
                raise OptionError(
                    f"local_map: the input {leaf!r} expects None placements, as it is no tensor, but"
                    f" in_placements has {placed}."
                )
            local.append(leaf)
            continue
        if in_placements is not None:
            leaf = _placed(leaf, placed, redistributes)
        if in_grad_placements is not None and gradient is None:
            raise OptionError(
                f"local_map: a DTensor by {leaf.placements} expects placements of its gradient, but"
                " in_grad_placements has None for it."
            )
        local.append(leaf.to_local(grad_placements=gradient))
    result = func(*tree_unflatten(local, structure), **kwargs)
    return _wrapped(result, out_placements, mesh or distributed[0].device_mesh) if distributed else result


def _for_each(placements: Sequence[Placed] | None, count: int, name: str) -> Sequence[Placed]:
    """``placements``, one for each of ``count`` inputs."""
    if placements is None:
        return [None] * count
    if len(placements) != count:
        raise OptionError(
            f"local_map: {name} length {len(placements)} does not match the number of input args {count}."
            " Pass one for each, None for what is no DTensor."
        )
    return placements


def _placed(x: DTensor, placements: Placed, redistributes: bool) -> DTensor:
    """``x`` by ``placements``."""
    if placements is None:
        raise OptionError(
            f"local_map: a DTensor by {x.placements} expects placements, but in_placements has None for it."
        )
    if x.placements == tuple(placements):
        return x
    if not redistributes:
        raise ArgumentError(
            f"local_map: a DTensor of {list(x.shape)} by {x.placements} was passed where in_placements has"
            f" {tuple(placements)}. If it should be redistributed, set redistribute_inputs=True."
        )
    return x.redistribute(placements=placements)


def _wrapped(result: Any, placements: Placed | tuple[Placed, ...], mesh: DeviceMesh) -> Any:  # of a function
    """``result`` with DTensors in place of tensors."""
    leaves, structure = tree_flatten(result)
    is_one = placements is None or any(isinstance(each, Placement) for each in placements)
    several: Sequence[Any] = [placements]  # placements, or None
    if isinstance(placements, tuple) and not is_one:
        several = placements
    if len(several) != len(leaves):
        raise OptionError(
            f"local_map: the function returned {len(leaves)} values, and out_placements are those of"
            f" {len(several)}. Pass a tuple with placements for each, None for what is no tensor."
        )
    wrapped = []
    for leaf, placed in zip(leaves, several, strict=True):
        if isinstance(leaf, DTensor) or (placed is not None and not isinstance(leaf, Tensor)):
            raise OptionError(
                f"local_map: the function returned a {type(leaf).__name__} for which out_placements has"
                f" {placed}. It has to return plain tensors; other values have None."
            )
        wrapped.append(DTensor.from_local(leaf, mesh, placed) if isinstance(leaf, Tensor) else leaf)
    return tree_unflatten(wrapped, structure)
