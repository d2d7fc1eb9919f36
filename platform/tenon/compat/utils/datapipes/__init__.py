"""PyTorch's ``torch.utils.data.datapipes``: the base classes of pipes, and pipes over iterables and
sequences.

PyTorch's other pipes (shuffle, batch, shard ...) are not supported: use a ``DataLoader`` with a sampler.
Register a pipe of your own with ``functional_datapipe``.
"""

from tenon.compat.utils.datapipes import iter, map
from tenon.compat.utils.datapipes.datapipe import IterDataPipe, MapDataPipe, functional_datapipe

__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe", "iter", "map"]
