"""``DataParallel``: torch's wrapper for the GPUs of one process, here for one device.

Several GPUs are used by processes (``DistributedDataParallel``, ``tenon launch``), which torch advises too.
The wrapper is there because models are wrapped in it: without a GPU it calls its module, as torch's does,
and its state has torch's keys (``module.weight``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon import cuda
from tenon.errors import ModuleError, UnsupportedError
from tenon.nn.module import Module
from tenon.nn.parallel._functions import DeviceLike, on
from tenon.nn.parallel.scatter_gather import scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Calls ``module`` on the first of ``device_ids``; without a GPU where it is.

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
        places = [on(each) for each in ([cuda.current_device()] if device_ids is None else device_ids)]
        if len(places) != 1:
            raise UnsupportedError(
                f"DataParallel: one process uses one GPU here, not {[str(each) for each in places]}. Pass one"
                " in device_ids, or run one process for each by `tenon launch` with DistributedDataParallel."
            )
        self.dim = dim
        self.src_device_obj = places[0]
        self.device_ids = [places[0].index or 0]
        self.output_device = self.device_ids[0] if output_device is None else on(output_device).index
        module.to(places[0])

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module returns for the arguments, with their tensors moved to its device."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        for each in (*self.module.parameters(), *self.module.buffers()):
            if each.device != self.src_device_obj:
                raise ModuleError(
                    f"module must have its parameters and buffers on device {self.src_device_obj} "
                    f"(device_ids[0]) but found one of them on device: {each.device}. Move it there by .to()."
                )
        positional, named = scatter_kwargs(inputs, kwargs, self.device_ids, self.dim)
        return self.module(*(positional[0] if positional else ()), **(named[0] if named else {}))


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """What ``DataParallel(module, device_ids)`` returns for ``inputs``; it needs a GPU."""
    if not cuda.is_available():
        raise ModuleError("device type could not be determined: data_parallel needs a GPU. Call the module.")
    positional = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*positional, **(module_kwargs or {}))
