# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.data import ChainDataset as ChainDataset
from tenon.data import ConcatDataset as ConcatDataset
from tenon.data import Dataset as Dataset
from tenon.data import IterableDataset as IterableDataset
from tenon.data import StackDataset as StackDataset
from tenon.data import Subset as Subset
from tenon.data import TensorDataset as TensorDataset
from tenon.data import random_split as random_split
