"""Apply one elementwise rule to many arrays with NumPy, where ``jit/fusion/optimizer.py`` generates no code.

Every op becomes one call of a ufunc with ``out=``: a value overwrites the array that it is to replace, if
that is not read any more, else it is written to scratch memory of a block. Applied to the arrays directly,
the rule allocates some ten temporary arrays and copies the results, and its calls are so short that threads
contend for the interpreter lock (Adam over 670,000 numbers, one thread: 2.1 ms, in blocks 1.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon_cpu.threads import scratch, split

if TYPE_CHECKING:
    from tenon_cpu.jit.fusion.domain import Cluster, Step

#: Elements of a block, whose data stay in a core's cache.
BLOCK = 1 << 16
#: Mean elements per array below which one flat array for all of them is faster (``tenon.optim.batch``).
LEAST = 1 << 12
_POWERS: dict[object, np.ufunc] = {2: np.square, 0.5: np.sqrt, -1: np.reciprocal}


#: A ufunc, the slots of its operands (numbers: -1 and down), and the slot of its result.
Call = tuple[np.ufunc, list[int], int]


class EachUpdate:
    """``cluster`` over many tuples of flat arrays; output ``k`` overwrites input ``targets[k]``.

    Values are stored in numbered slots: those of the array inputs first, then scratch.
    """

    def __init__(self, calls: list[Call], copies: list[tuple[int, int]], slots: int) -> None:
        self.calls, self.copies, self.slots = calls, copies, slots

    def over(self, columns: Sequence[Sequence[np.ndarray]]) -> UpdateTable | None:
        """Return a table for these arrays; None where they are so small that another kernel is faster."""
        lengths = [a.size for a in columns[0]]
        return None if sum(lengths) < LEAST * len(lengths) else UpdateTable(self, columns, lengths)

    def block(self, values: list[np.ndarray], numbers: Sequence[float]) -> None:
        """Update one block, whose arrays and scratch are flat and equally long."""
        for ufunc, operands, out in self.calls:
            ufunc(*[values[o] if o >= 0 else numbers[-1 - o] for o in operands], out=values[out])
        for source, target in self.copies:
            np.copyto(values[target], values[source])


class UpdateTable:
    """The arrays of an update; references to those passed to ``set`` are dropped after the next run."""

    def __init__(
        self, kernel: EachUpdate, columns: Sequence[Sequence[np.ndarray]], lengths: list[int]
    ) -> None:
        self.kernel = kernel
        self._columns: list[list[np.ndarray]] = [[a.reshape(-1) for a in arrays] for arrays in columns]
        self._set_columns: set[int] = set()
        self._blocks = [(i, a, min(a + BLOCK, n)) for i, n in enumerate(lengths) for a in range(0, n, BLOCK)]

    def set(self, position: int, arrays: Sequence[np.ndarray]) -> None:
        """Replace the arrays of one column, by others of the same lengths, for one run."""
        self._columns[position] = [a.reshape(-1) for a in arrays]
        self._set_columns.add(position)

    def run(self, numbers: Sequence[float]) -> None:
        """Compute every output in place, with these values of the number inputs."""
        columns, kernel = self._columns, self.kernel
        names = [f"update{i}" for i in range(kernel.slots - len(columns))]

        def work(start: int, stop: int) -> None:
            scratch_arrays = [scratch.get(name, (BLOCK,), columns[0][0].dtype) for name in names]
            for i, a, b in self._blocks[start:stop]:
                kernel.block([c[i][a:b] for c in columns] + [r[: b - a] for r in scratch_arrays], numbers)

        split(work, len(self._blocks), 2)
        for position in self._set_columns:
            columns[position] = []
        self._set_columns.clear()


def fuse_each(cluster: Cluster, targets: tuple[int, ...]) -> EachUpdate | None:
    """Return the update of a rule; None where one of its ops is no ufunc or has another dtype."""
    count = len(cluster.inputs)
    arrays = [i for i in range(count) if i not in cluster.numbers]
    numbers = {i: -1 - k for k, i in enumerate(sorted(cluster.numbers))}
    dtype = cluster.inputs[arrays[0]].dtype
    last = _last_reads(cluster)
    ends = {ref.index: arrays[t] for ref, t in zip(cluster.outputs, targets, strict=True)}
    slot = {i: k for k, i in enumerate(arrays)}
    free, calls, slots = [], [], len(arrays)
    for k, step in enumerate(cluster.steps):
        value = count + k
        ufunc, refs = _ufunc(step), [ref.index for ref in step.refs]
        if ufunc is None or step.aval.dtype != dtype:
            return None
        operands = [numbers[i] if i in numbers else slot[i] for i in refs]
        for i in {i for i in refs if i >= count and last[i] == value}:
            if slot[i] >= len(arrays):
                free.append(slot[i])
        target = ends.get(value)
        if target is not None and last.get(target, 0) <= value:
            slot[value] = slot[target]
        elif free:
            slot[value] = free.pop()
        else:
            slot[value], slots = slots, slots + 1
        calls.append((ufunc, operands, slot[value]))
    pairs = [(slot[ref.index], slot[arrays[t]]) for ref, t in zip(cluster.outputs, targets, strict=True)]
    return EachUpdate(calls, [pair for pair in pairs if pair[0] != pair[1]], slots)


def _last_reads(cluster: Cluster) -> dict[int, int]:
    """Return the last step that reads each value; outputs are read at the end."""
    count = len(cluster.inputs)
    last = {ref.index: count + k for k, step in enumerate(cluster.steps) for ref in step.refs}
    return last | {ref.index: count + len(cluster.steps) for ref in cluster.outputs}


def _ufunc(step: Step) -> np.ufunc | None:
    if step.op == "pow":
        return _POWERS.get(step.args[1]) if len(step.refs) == 1 else None
    if len(step.refs) != len(step.args) or step.attrs:
        return None
    op = step.definition
    return np.positive if op.expression == "a" else getattr(np, getattr(op, "ufunc", None) or "", None)


__all__ = ["fuse_each"]
