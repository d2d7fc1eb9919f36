"""``tenon.nn.parallel``: PyTorch's path of ``DistributedDataParallel`` and ``DataParallel``.

``DistributedDataParallel`` is defined in ``tenon.distributed``; ``DataParallel`` uses a single device here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tenon.compat.utils.packages import functions_first as _functions_first
from tenon.nn.parallel.data_parallel import DataParallel, data_parallel
from tenon.nn.parallel.scatter_gather import gather, scatter

if TYPE_CHECKING:
    from tenon.distributed.replicas.data_parallel import DistributedDataParallel as DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "scatter"]

_functions_first(__name__)


def __getattr__(name: str) -> object:
    if name in ("_functions", "distributed"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}.")
    from tenon.distributed.replicas.data_parallel import DistributedDataParallel

    globals()[name] = DistributedDataParallel
    return DistributedDataParallel
