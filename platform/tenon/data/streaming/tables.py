"""What the indices of all formats are made of: arrays and strings, checked when they come from a file."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tenon.errors import DataError
from tenon.tensors.tensor import Tensor

#: An index as it is saved: numbers, lists of texts, and arrays (in files, tensors).
Table: TypeAlias = dict[str, Any]
#: The most samples or members of a shard: sums over shards do not overflow.
_MOST = 1 << 42


class Strings:
    """Many texts as one array of UTF-8 and the end of each in it: 8 bytes a text beside its own."""

    def __init__(self, text: np.ndarray, ends: np.ndarray) -> None:
        self.text, self.ends = text, ends

    @classmethod
    def of(cls, texts: list[str]) -> Strings:
        """The texts of a list."""
        encoded = [text.encode() for text in texts]
        ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    @classmethod
    def read(cls, table: Table, text: str, ends: str, total: int) -> Strings:
        """The texts of a table from a file."""
        content = array(table, text)
        if content.dtype != np.uint8:
            raise DataError(f"{text} are malformed")
        found = integers(table, ends, total, 0, len(content))
        if (np.diff(found) < 0).any() or (found[-1] if total else 0) != len(content):
            raise DataError(f"{ends} are malformed")
        return cls(content, found)

    def __getitem__(self, i: int) -> str:
        low = int(self.ends[i - 1]) if i else 0
        return self.text[low : int(self.ends[i])].tobytes().decode("utf-8", "replace")


def array(table: Table, name: str) -> np.ndarray:
    """An array of one axis in a table, which may come from a file; DataError if it is none."""
    value = table.get(name)
    if isinstance(value, Tensor) and value.device.type == "cpu":
        value = value.detach().numpy()
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu":
        raise DataError(f"{name} are malformed")
    return np.ascontiguousarray(value)


def integers(table: Table, name: str, total: int, low: int, high: int) -> np.ndarray:
    """An array of ``total`` integers from ``low`` to ``high`` in a table; DataError otherwise."""
    found = array(table, name)
    if found.dtype.itemsize > 4:
        found = found.astype(np.int64)
    if len(found) != total or (total and (int(found.min()) < low or int(found.max()) > high)):
        raise DataError(f"{name} are malformed")
    return found


def counts(table: Table, name: str) -> np.ndarray:
    """An array of one or more sums, which grow, in a table; DataError otherwise."""
    found = array(table, name).astype(np.int64)
    if not len(found) or int(found[0]) < 0 or (np.diff(found) < 0).any() or int(found[-1]) > _MOST:
        raise DataError(f"{name} are malformed")
    return found
