"""``tenon.nn.parallel``: torch's place for ``DistributedDataParallel``; its home is ``tenon.distributed``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenon.distributed.data_parallel import DistributedDataParallel as DistributedDataParallel

__all__ = ["DistributedDataParallel"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}.")
    from tenon.distributed.data_parallel import DistributedDataParallel

    globals()[name] = DistributedDataParallel
    return DistributedDataParallel
