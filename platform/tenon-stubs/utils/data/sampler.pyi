# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.data import BatchSampler as BatchSampler
from tenon.data import RandomSampler as RandomSampler
from tenon.data import Sampler as Sampler
from tenon.data import SequentialSampler as SequentialSampler
from tenon.data import SubsetRandomSampler as SubsetRandomSampler
from tenon.data import WeightedRandomSampler as WeightedRandomSampler
