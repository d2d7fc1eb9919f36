"""PyTorch's path ``utils.data``; the code is in ``tenon.data`` and ``tenon.distributed``."""

from tenon.compat.finder import submodules
from tenon.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)
from tenon.distributed.sampler import DistributedSampler
from tenon.utils.data import _utils
from tenon.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe, functional_datapipe

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "MapDataPipe",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "_utils",
    "dataloader",
    "dataset",
    "default_collate",
    "default_convert",
    "distributed",
    "functional_datapipe",
    "get_worker_info",
    "random_split",
    "sampler",
]

__getattr__ = submodules(__name__)
