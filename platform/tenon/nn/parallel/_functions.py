"""Tensors over several GPUs of one process, and together again: torch's functions behind ``DataParallel``.

Made of ordinary moves between devices, so gradients come back by those. As in torch they are about GPUs:
tensors on the CPU have one device, and copying or gathering them is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenon.device import Device

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]

DeviceLike = Device | str | int


class Broadcast:
    """Copies of tensors on several devices."""

    @staticmethod
    def apply(target_gpus: Sequence[DeviceLike], *inputs: Tensor) -> tuple[Tensor, ...]:
        """All ``inputs`` on the first device, then all on the second, and so on."""
        _refuse_cpu("Broadcast", inputs)
        return tuple(x.to(on(each)) for each in target_gpus for x in inputs)


class ReduceAddCoalesced:
    """The sum of what lies on several devices."""

    @staticmethod
    def apply(destination: DeviceLike, num_inputs: int, *grads: Tensor) -> tuple[Tensor, ...]:
        """``num_inputs`` sums on ``destination``, of tensors in the order in which Broadcast gives them."""
        _refuse_cpu("ReduceAddCoalesced", grads)
        place = on(destination)
        sums: list[Any] = [g.to(place) for g in grads[:num_inputs]]
        for index, g in enumerate(grads[num_inputs:]):
            sums[index % num_inputs] = sums[index % num_inputs] + g.to(place)
        return tuple(sums)


class Scatter:
    """Parts of a tensor on several devices."""

    @staticmethod
    def apply(
        target_gpus: Sequence[DeviceLike], chunk_sizes: Sequence[int] | None, dim: int, input: Tensor
    ) -> tuple[Tensor, ...]:
        """Parts along ``dim``, about equal without ``chunk_sizes``."""
        places = [on(each) for each in target_gpus]
        parts = input.chunk(len(places), dim) if chunk_sizes is None else input.split(list(chunk_sizes), dim)
        return tuple(part.to(place) for part, place in zip(parts, places, strict=False))


class Gather:
    """Parts from several devices as one tensor."""

    @staticmethod
    def apply(target_device: DeviceLike, dim: int, *inputs: Tensor) -> Tensor:
        """``inputs`` joined along ``dim`` on ``target_device``; numbers become a vector."""
        from tenon.functions.joining import cat  # and with it all functions, which layers do without

        _refuse_cpu("Gather", inputs)
        place = on(target_device)
        joined: Tensor = cat([(x.reshape(1) if x.dim() == 0 else x).to(place) for x in inputs], dim)
        return joined


def on(place: DeviceLike) -> Device:
    """A device, where a number alone means that GPU."""
    return Device("cuda", place) if isinstance(place, int) else Device(place)


def _refuse_cpu(name: str, tensors: Sequence[Tensor]) -> None:
    if any(x.device.type == "cpu" for x in tensors):
        raise AssertionError(
            f"{name} function not implemented for CPU tensors: there is one CPU. Move them to a GPU first."
        )
