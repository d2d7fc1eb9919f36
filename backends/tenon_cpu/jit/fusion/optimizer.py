"""One elementwise rule over many arrays in one call: how optimizers update parameters and their state.

The arrays are cut into pieces, and a table lists the addresses of every piece's arrays; machine code walks
it, on all threads where that pays. A step then costs what its memory traffic costs, for a hundred small
arrays as for one large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.extend import errors
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.emission.pointwise import each, types_of
from tenon_cpu.jit.fusion.domain import Cluster
from tenon_cpu.kernels import updates
from tenon_cpu.onednn.primitives import address_of

#: Elements of one piece: large enough for the loop's start not to show, small enough to share fairly.
PIECE = 1 << 14
#: Elements from which a second thread pays for being woken.
SHARED = 1 << 16


class EachKernel:
    """``cluster`` over many tuples of flat arrays; output ``k`` overwrites input ``targets[k]``."""

    def __init__(self, cluster: Cluster, targets: tuple[int, ...]) -> None:
        if cluster.reduces:
            raise errors.NotFusableError("a rule over many arrays cannot reduce them.")
        types_of(cluster)
        self.arrays = [i for i in range(len(cluster.inputs)) if i not in cluster.numbers]
        self.numbers = len(cluster.numbers)
        self.sizes = [cluster.inputs[i].dtype.itemsize for i in self.arrays]
        self.entry = llvm.load(each(cluster, targets, llvm.compiler().has_fma))

    def over(self, columns: Sequence[Sequence[Any]]) -> EachTable:
        """A table for these arrays: one sequence per array input, all C-contiguous and of equal lengths."""
        return EachTable(self, columns)


class EachTable:
    """Addresses of a kernel's arrays, which may be exchanged column by column.

    Whoever runs it keeps the arrays alive: gradients held here would keep their memory, or the bucket that
    they lie in, from the next step.
    """

    def __init__(self, kernel: EachKernel, columns: Sequence[Sequence[Any]]) -> None:
        lengths = [a.size for a in columns[0]]
        counts = [-(-n // PIECE) for n in lengths]
        owner = np.repeat(np.arange(len(lengths)), counts)
        starts = np.concatenate([np.arange(c, dtype=np.int64) for c in counts]) * PIECE if counts else owner
        self.kernel = kernel
        self._owner, self._starts = owner, starts
        self._whole = all(c == 1 for c in counts)
        self._pieces = np.empty((len(owner), len(columns) + 1), np.int64)
        self._pieces[:, -1] = np.minimum(np.array(lengths, np.int64)[owner] - starts, PIECE) if counts else 0
        self._found: dict[int, list[int]] = {}
        for position, arrays in enumerate(columns):
            self.set(position, arrays)
        self._numbers = np.zeros(max(kernel.numbers, 1), np.float64)
        table = (len(owner), self._pieces.ctypes.data, self._numbers.ctypes.data)
        self._table = np.array(table, np.int64)
        self._address = self._table.ctypes.data
        self._large = sum(lengths) >= SHARED

    def set(self, position: int, arrays: Sequence[Any]) -> None:
        """Other arrays of the same lengths in one column."""
        found = [address_of(a) for a in arrays]
        if found == self._found.get(position):
            return  # a step's gradients often lie where the last one's did
        self._found[position] = found
        if self._whole:
            self._pieces[:, position] = found
        else:
            base = np.array(found, np.int64)[self._owner]
            self._pieces[:, position] = base + self._starts * self.kernel.sizes[position]

    def run(self, numbers: Sequence[float]) -> None:
        """Compute every output in place, with these values of the number inputs."""
        self._numbers[: len(numbers)] = numbers
        self.kernel.entry(self._address, llvm.ALL if self._large else 1)


def fuse_each(cluster: Cluster, targets: tuple[int, ...]) -> EachKernel | updates.EachUpdate | None:
    """The kernel of a rule, by NumPy where no code can be generated; None where there is none for it."""
    if not llvm.available():
        return updates.fuse_each(cluster, targets)
    try:
        return EachKernel(cluster, targets)
    except errors.NotFusableError:
        return None
