"""Data sets that several tests read."""

import numpy as np

from tenon import data


class Rows(data.Dataset):
    """Sample ``i`` is ``(i, a row that depends on random numbers)``."""

    def __init__(self, n, width=3, trouble=None):
        self.n, self.width, self.trouble = n, width, trouble

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if self.trouble is not None and index == 5:
            self.trouble()
        return index, np.full(self.width, index) + np.random.rand(self.width)


class Stream(data.IterableDataset):
    def __init__(self, n, split=False):
        self.n, self.split = n, split

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None and self.split else (0, 1)
        return iter(range(first, self.n, step))


class Place(Stream):
    """A stream with a position that can be saved."""

    at = 0

    def __iter__(self):
        while self.at < self.n:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def numbers(loader):
    """The first element of every batch."""
    firsts = (batch[0] if isinstance(batch, list) else batch for batch in loader)
    return [first.tolist() if hasattr(first, "tolist") else first for first in firsts]


def flat(loader):
    """All elements of all first parts."""
    return [element for batch in numbers(loader) for element in batch]
