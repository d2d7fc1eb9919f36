"""torch's ``utils.data.datapipes``: the bases of streams and of tables, and those that wrap what Python has.

The pipes that PyTorch ships between them (shuffle, batch, shard ...) are not here: a ``DataLoader`` with a
sampler does that work. A pipe of one's own is registered by ``functional_datapipe``.
"""

from tenon.compat.utils.datapipes import iter, map
from tenon.compat.utils.datapipes.datapipe import IterDataPipe, MapDataPipe, functional_datapipe

__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe", "iter", "map"]
