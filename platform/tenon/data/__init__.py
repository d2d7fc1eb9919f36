"""Data sets: what a training loop draws samples from."""

from __future__ import annotations

from tenon.data.dataset import Dataset as Dataset
from tenon.data.dataset import Splits as Splits
from tenon.data.dataset import TensorDataset as TensorDataset
from tenon.data.dataset import collate as collate
from tenon.data.dataset import fetch as fetch
