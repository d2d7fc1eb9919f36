# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.data import BatchSampler as BatchSampler
from tenon.data import ChainDataset as ChainDataset
from tenon.data import ConcatDataset as ConcatDataset
from tenon.data import DataLoader as DataLoader
from tenon.data import Dataset as Dataset
from tenon.data import IterableDataset as IterableDataset
from tenon.data import RandomSampler as RandomSampler
from tenon.data import Sampler as Sampler
from tenon.data import SequentialSampler as SequentialSampler
from tenon.data import StackDataset as StackDataset
from tenon.data import Subset as Subset
from tenon.data import SubsetRandomSampler as SubsetRandomSampler
from tenon.data import TensorDataset as TensorDataset
from tenon.data import WeightedRandomSampler as WeightedRandomSampler
from tenon.data import default_collate as default_collate
from tenon.data import default_convert as default_convert
from tenon.data import get_worker_info as get_worker_info
from tenon.data import random_split as random_split
from tenon.distributed.sampler import DistributedSampler as DistributedSampler
from tenon.compat.utils.datapipes import IterDataPipe as IterDataPipe
from tenon.compat.utils.datapipes import MapDataPipe as MapDataPipe
from tenon.compat.utils.datapipes import functional_datapipe as functional_datapipe
from tenon.utils.data import _utils as _utils
from tenon.utils.data import dataloader as dataloader
from tenon.utils.data import dataset as dataset
from tenon.utils.data import distributed as distributed
from tenon.utils.data import sampler as sampler
