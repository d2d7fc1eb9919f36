"""``from_file``: a tensor over the bytes of a mapped file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tenon import dtypes
from tenon.device import as_device
from tenon.engine.value import Value
from tenon.errors import DeviceError
from tenon.kernels.backend import backend_named
from tenon.tensors.layout import with_layout
from tenon.tensors.storage.untyped import UntypedStorage

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.tensors.tensor import Tensor

__all__ = ["from_file"]


@with_layout
def from_file(
    filename: str | os.PathLike[str],
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a vector over the first ``size`` numbers of a file, which is mapped and read on demand.

    With ``shared`` the file is created or extended if needed, and writes to the tensor change it; otherwise
    they change only this process's memory.
    """
    target = as_device(device)
    if target.type != "cpu":
        raise DeviceError(
            f"from_file: a file is mapped on the CPU, not on {target}; use .to({str(target)!r})."
        )
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    mapped = UntypedStorage.from_file(filename, bool(shared), (size or 0) * kind.numpy.itemsize)
    result: Tensor = Value.make(mapped.array(kind), backend_named("cpu"))
    result._expose()
    return result.requires_grad_() if requires_grad else result
