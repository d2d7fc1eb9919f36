"""``scatter`` and ``gather``: tensors in nested containers over several GPUs of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.engine.types import Nested
from tenon.nn.parallel._functions import DeviceLike, Gather, Scatter
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.types import Nested

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]


def is_namedtuple(obj: object) -> bool:
    """Return whether ``obj`` is a named tuple."""
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def scatter(inputs: Nested, target_gpus: Sequence[DeviceLike], dim: int = 0) -> Nested:
    """Return ``inputs`` for each device: tensors split along ``dim``, other values unchanged."""
    if isinstance(inputs, Tensor):
        return Scatter.apply(target_gpus, None, dim, inputs)
    if isinstance(inputs, (tuple, list, dict)) and inputs:
        members = list(inputs.items()) if isinstance(inputs, dict) else inputs
        rows = zip(*(scatter(member, target_gpus, dim) for member in members), strict=False)
        if is_namedtuple(inputs):
            return [type(inputs)(*row) for row in rows]
        return [row if isinstance(inputs, tuple) else type(inputs)(row) for row in rows]
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: tuple[Nested, ...],
    kwargs: dict[str, Nested] | None,
    target_gpus: Sequence[DeviceLike],
    dim: int = 0,
) -> tuple[tuple[Nested, ...], tuple[dict[str, Nested], ...]]:
    """Return positional and keyword arguments for each device, by ``scatter``."""
    positional = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    positional += [() for _ in range(len(named) - len(positional))]
    named += [{} for _ in range(len(positional) - len(named))]
    return tuple(positional), tuple(named)


def gather(outputs: Nested, target_device: DeviceLike, dim: int = 0) -> Nested:
    """Combine the outputs of all devices: tensors are concatenated along ``dim`` on ``target_device``."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return Gather.apply(target_device, dim, *outputs)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(output) != len(first) for output in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((k, gather([output[k] for output in outputs], target_device, dim)) for k in first)
    joined = [gather(row, target_device, dim) for row in zip(*outputs, strict=True)]
    return type(first)(*joined) if is_namedtuple(first) else type(first)(joined)
