"""Apply one elementwise rule to many arrays in one call, as optimizers update parameters and their state.

The arrays are cut into pieces, and a table lists the addresses of every piece's arrays; machine code walks
it, on all threads where that pays. A step then costs what its memory traffic costs, for a hundred small
arrays as for one large.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.extend import errors
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.emission.pointwise import each, types_of
from tenon_cpu.jit.fusion.domain import Cluster
from tenon_cpu.kernels import updates
from tenon_cpu.onednn.primitives import address_of

#: Elements of one piece: large enough to hide the cost of starting a loop, small enough to balance threads.
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

    def over(self, columns: Sequence[Sequence[np.ndarray]]) -> EachTable:
        """A table for these arrays: one sequence per array input, all C-contiguous and of equal lengths."""
        return EachTable(self, columns)


class EachTable:
    """The addresses of a kernel's arrays, which may be replaced column by column.

    The caller keeps the arrays alive: references to gradients here would keep their memory, or their bucket,
    from being reused in the next step.
    """

    def __init__(self, kernel: EachKernel, columns: Sequence[Sequence[np.ndarray]]) -> None:
        lengths = [a.size for a in columns[0]]
        counts = [-(-n // PIECE) for n in lengths]
        owner = np.repeat(np.arange(len(lengths)), counts)
        starts = np.concatenate([np.arange(c, dtype=np.int64) for c in counts]) * PIECE if counts else owner
        self.kernel = kernel
        self._owner, self._starts = owner, starts
        self._one_each = all(c == 1 for c in counts)
        self._pieces = np.empty((len(owner), len(columns) + 1), np.int64)
        self._pieces[:, -1] = np.minimum(np.array(lengths, np.int64)[owner] - starts, PIECE) if counts else 0
        self._addresses: dict[int, list[int]] = {}
        for position, arrays in enumerate(columns):
            self.set(position, arrays)
        self._numbers = np.zeros(max(kernel.numbers, 1), np.float64)
        table = (len(owner), self._pieces.ctypes.data, self._numbers.ctypes.data)
        self._table = np.array(table, np.int64)
        self._address = self._table.ctypes.data
        self._large = sum(lengths) >= SHARED

    def set(self, position: int, arrays: Sequence[np.ndarray]) -> None:
        """Replace the arrays of one column by others of the same lengths."""
        addresses = [address_of(a) for a in arrays]
        if addresses == self._addresses.get(position):
            return  # gradients often have the same addresses as those of the last step
        self._addresses[position] = addresses
        if self._one_each:
            self._pieces[:, position] = addresses
        else:
            base = np.array(addresses, np.int64)[self._owner]
            self._pieces[:, position] = base + self._starts * self.kernel.sizes[position]

    def run(self, numbers: Sequence[float]) -> None:
        """Compute all outputs in place, with these values of the number inputs."""
        self._numbers[: len(numbers)] = numbers
        self.kernel.entry(self._address, llvm.ALL if self._large else 1)


def fuse_each(cluster: Cluster, targets: tuple[int, ...]) -> EachKernel | updates.EachUpdate | None:
    """The kernel of a rule, over NumPy without llvmlite; None if there is no code for it."""
    if not llvm.available():
        return updates.fuse_each(cluster, targets)
    try:
        return EachKernel(cluster, targets)
    except errors.NotFusableError:
        return None
