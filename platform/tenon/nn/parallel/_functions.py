"""Distribution of tensors over several GPUs of one process: PyTorch's functions behind ``DataParallel``.

They consist of copies between devices, through which gradients flow back. As in PyTorch they are for GPUs
only: broadcasting or gathering tensors on the CPU raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.device import Device

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]

#: A GPU: a device, its name, or its index.
DeviceLike = Device | str | int


class Broadcast:
    """Copies of tensors on several devices."""

    @staticmethod
    def apply(target_gpus: Sequence[DeviceLike], *inputs: Tensor) -> tuple[Tensor, ...]:
        """All ``inputs`` on the first device, then all on the second, and so on."""
        _refuse_cpu("Broadcast", inputs)
        return tuple(x.to(on(gpu)) for gpu in target_gpus for x in inputs)


class ReduceAddCoalesced:
    """Sums of tensors on several devices."""

    @staticmethod
    def apply(destination: DeviceLike, num_inputs: int, *grads: Tensor) -> tuple[Tensor, ...]:
        """Return ``num_inputs`` sums on ``destination``; ``grads`` are in the order of Broadcast's
        results."""
        _refuse_cpu("ReduceAddCoalesced", grads)
        device = on(destination)
        sums: list[Tensor] = [g.to(device) for g in grads[:num_inputs]]
        for index, g in enumerate(grads[num_inputs:]):
            sums[index % num_inputs] = sums[index % num_inputs] + g.to(device)
        return tuple(sums)


class Scatter:
    """Parts of a tensor on several devices."""

    @staticmethod
    def apply(
        target_gpus: Sequence[DeviceLike], chunk_sizes: Sequence[int] | None, dim: int, input: Tensor
    ) -> tuple[Tensor, ...]:
        """Return parts of ``input`` along ``dim``, of equal sizes, but for the last, without
        ``chunk_sizes``."""
        devices = [on(gpu) for gpu in target_gpus]
        parts = input.chunk(len(devices), dim) if chunk_sizes is None else input.split(list(chunk_sizes), dim)
        return tuple(part.to(device) for part, device in zip(parts, devices, strict=False))


class Gather:
    """Parts from several devices as one tensor."""

    @staticmethod
    def apply(target_device: DeviceLike, dim: int, *inputs: Tensor) -> Tensor:
        """Return ``inputs`` concatenated along ``dim`` on ``target_device``; scalars become a vector."""
        from tenon.functions.joining import cat  # a late import, as layers do without these functions

        _refuse_cpu("Gather", inputs)
        device = on(target_device)
        return cat([(x.reshape(1) if x.dim() == 0 else x).to(device) for x in inputs], dim)


def on(device: DeviceLike) -> Device:
    """Return ``device`` as a Device; a number is the index of a GPU."""
    return Device("cuda", device) if isinstance(device, int) else Device(device)


def _refuse_cpu(name: str, tensors: Sequence[Tensor]) -> None:
    """Raise AssertionError, as PyTorch does, if a tensor is on the CPU."""
    if any(x.device.type == "cpu" for x in tensors):
        raise AssertionError(
            f"{name} function not implemented for CPU tensors: there is one CPU. Move them to a GPU first."
        )
