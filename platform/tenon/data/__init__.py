"""Data sets, samplers, and the loader that batches their samples. Guide: docs/guide/data.md."""

from __future__ import annotations

from tenon.data.collate import default_collate as default_collate
from tenon.data.collate import default_convert as default_convert
from tenon.data.collate import fetch as fetch
from tenon.data.combined import ChainDataset as ChainDataset
from tenon.data.combined import ConcatDataset as ConcatDataset
from tenon.data.combined import StackDataset as StackDataset
from tenon.data.combined import Subset as Subset
from tenon.data.combined import random_split as random_split
from tenon.data.dataset import Dataset as Dataset
from tenon.data.dataset import IterableDataset as IterableDataset
from tenon.data.dataset import Splits as Splits
from tenon.data.dataset import TensorDataset as TensorDataset
from tenon.data.loader import DataLoader as DataLoader
from tenon.data.sampler import BatchSampler as BatchSampler
from tenon.data.sampler import RandomSampler as RandomSampler
from tenon.data.sampler import Sampler as Sampler
from tenon.data.sampler import SequentialSampler as SequentialSampler
from tenon.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from tenon.data.sampler import WeightedRandomSampler as WeightedRandomSampler
from tenon.data.serving import get_worker_info as get_worker_info
