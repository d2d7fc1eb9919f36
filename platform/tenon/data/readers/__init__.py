"""Readers of data files: IDX (MNIST), CSV, npz, image folders, text."""

from __future__ import annotations

from tenon.data.readers.arrays import read_csv as read_csv
from tenon.data.readers.arrays import read_idx as read_idx
from tenon.data.readers.arrays import read_npz as read_npz
from tenon.data.readers.images import ImageFolder as ImageFolder
from tenon.data.readers.text import TextLines as TextLines
