"""``DataParallel``: PyTorch's wrapper for the GPUs of one process, here for one device.

Use one process per GPU for several (``DistributedDataParallel``, ``tenon launch``), as PyTorch advises too.
The wrapper exists for models that are wrapped in it: without a GPU it calls its module, as PyTorch's does,
and its state dict has PyTorch's keys (``module.weight``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon import cuda
from tenon.errors import ModuleError, UnsupportedError
from tenon.nn.module import Module
from tenon.nn.parallel._functions import DeviceLike, on
from tenon.nn.parallel.scatter_gather import scatter_kwargs

if TYPE_CHECKING:
    from tenon.engine.types import Nested

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Calls ``module`` on the first of ``device_ids``; without a GPU, on the module's own device.

    >>> import tenon
    >>> tenon.nn.DataParallel(tenon.nn.Linear(2, 3)).state_dict().keys()
    odict_keys(['module.weight', 'module.bias'])
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[int] = []
        if not cuda.is_available():
            return
        devices = [on(gpu) for gpu in ([cuda.current_device()] if device_ids is None else device_ids)]
        if len(devices) != 1:
            raise UnsupportedError(
                f"DataParallel: one process uses one GPU here, not {[str(device) for device in devices]}."
                " Pass one in device_ids, or run one process for each by `tenon launch` with"
                " DistributedDataParallel."
            )
        self.dim = dim
        self.src_device_obj = devices[0]
        self.device_ids = [devices[0].index or 0]
        self.output_device = self.device_ids[0] if output_device is None else on(output_device).index
        module.to(devices[0])

    def forward(self, *inputs: Nested, **kwargs: Nested) -> Nested:
        """Call the module with the arguments, whose tensors are moved to its device."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        for member in (*self.module.parameters(), *self.module.buffers()):
            if member.device != self.src_device_obj:
                raise ModuleError(
                    f"module must have its parameters and buffers on device {self.src_device_obj} "
                    f"(device_ids[0]) but found one of them on device: {member.device}. Use .to()."
                )
        positional, named = scatter_kwargs(inputs, kwargs, self.device_ids, self.dim)
        return self.module(*(positional[0] if positional else ()), **(named[0] if named else {}))


def data_parallel(
    module: Module,
    inputs: Nested,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: dict[str, Nested] | None = None,
) -> Nested:
    """Return ``DataParallel(module, device_ids)(*inputs, **module_kwargs)``; requires a GPU."""
    if not cuda.is_available():
        raise ModuleError("device type could not be determined: data_parallel needs a GPU. Call the module.")
    positional = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*positional, **(module_kwargs or {}))
