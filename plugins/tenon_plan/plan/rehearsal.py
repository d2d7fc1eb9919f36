"""Run some steps of one rank of many: the training loop, with a communicator that simulates the other ranks.

The program ``python -m tenon_plan.plan.rehearsal ORDER`` is one rank. Its communication is recorded from the
calls of the loop, its memory from the process, its time from a clock. Several concurrent ones, which wait for
each other before the measured steps, compute side by side as the ranks of a node do.

Every simulated rank has the data of this one: sums are multiples, the loss remains finite, branches are
taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tenon.data.combined import Subset
from tenon.data.dataset import Splits
from tenon.errors import TenonError
from tenon.extend import Communicator, Session, engine, hookimpl, register, run_parts
from tenon_plan.plan import memory
from tenon_plan.plan.notes import Note, Result

WARM_STEPS, WARM_SECONDS = 5, 2.0
"""Warm-up ends after so many steps or, if earlier, so many seconds."""
STEPS, SECONDS, LEAST = 30, 4.0, 3
"""The largest number of measured steps, the seconds after which they end, and their smallest number."""
PATIENCE = 300.0
COPIED = 16 << 20


@dataclass(frozen=True)
class Order:
    """The task of a rehearsal; in ``folder`` the ``together`` concurrent ones wait for each other.

    ``overlaps``: whether all-reduces would overlap with backward, as they do between nodes.
    """

    config: dict[str, object]
    ranks: int
    folder: str
    index: int
    together: int
    overlaps: bool = False


class _Enough(Exception):
    """The requested steps are done."""


class Rehearsal(Communicator):
    """A communicator of the last of ``size`` ranks; collectives return what equal ranks would.

    The last rank's share of a batch is never smaller than another's.
    """

    name = "rehearsal"

    def __init__(self, size: int, folder: Path, overlaps: bool) -> None:
        super().__init__(size - 1, size, 0, 1)
        self.overlaps = overlaps
        self._folder = folder
        self.notes: list[Note] = []
        self.stop = False
        self._beside = False
        self._placed = False
        self.allocated: list[engine.Array] = []
        """Arrays from ``allocate``: buckets of gradients."""

    def allocate(self, count: int, dtype: np.dtype) -> engine.Array:
        """Allocate zeros and remember them: an engine would allocate them in shared memory."""
        self.allocated.append(np.zeros(count, dtype))
        return self.allocated[-1]

    def agree(self, call: engine.Call) -> None:
        """Record the call, or end the rehearsal."""
        if self.stop:
            raise _Enough
        self.notes.append(Note(call, self._placed, self._beside))

    def all_reduce(
        self,
        array: ArrayLike,
        op: str = engine.ReduceOp.SUM,
        out: engine.Array | None = None,
        *,
        name: str | None = None,
    ) -> engine.Work:
        """All-reduce, and record whether the array is from ``allocate``."""
        self._placed = out is array and any(np.may_share_memory(array, buffer) for buffer in self.allocated)
        try:
            return super().all_reduce(array, op, out, name=name)
        finally:
            self._placed = False

    def start_all_reduce(
        self, array: engine.Array, op: str = engine.ReduceOp.SUM, *, name: str | None = None
    ) -> engine.Work:
        """All-reduce, and record that it could overlap with computing."""
        self._beside = True
        try:
            return self.all_reduce(array, op, array, name=name)
        finally:
            self._beside = False

    def perform_all_reduce(self, source: engine.Array, target: engine.Array, op: engine.ReduceOp) -> None:
        """Compute the reduction of ``size`` equal arrays."""
        if op is engine.ReduceOp.SUM and source.dtype.kind != "b":
            np.multiply(source, source.dtype.type(self.size), out=target, casting="same_kind")
        elif op is engine.ReduceOp.PRODUCT and source.dtype.kind != "b":
            np.power(source, self.size, out=target)
        elif target is not source:
            np.copyto(target, source)

    def perform_broadcast(self, target: engine.Array, root: int) -> None:
        """The root has what this rank has."""

    def perform_all_gather(self, source: engine.Array, target: engine.Array) -> None:
        """Equal rows."""
        target[...] = source

    def perform_all_to_all(self, source: engine.Array, target: engine.Array) -> None:
        """All ranks send this one the same row."""
        target[...] = source[self.rank]

    def perform_reduce_scatter(self, source: engine.Array, target: engine.Array, op: engine.ReduceOp) -> None:
        """This rank's row of equal arrays, combined."""
        self.perform_all_reduce(np.ascontiguousarray(source[self.rank]), target, op)

    def all_gather_bytes(self, payload: bytes, *, name: str | None = None) -> list[bytes]:
        """Equal answers, but for the folder of the run, which rank 0 makes."""
        answers = super().all_gather_bytes(payload, name=name)
        if name == "run folder":
            answers[0] = engine.encode([str(self._folder), None])
        return answers

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """Equal answers."""
        return [payload] * self.size


class Watch:
    """A plugin that times the steps, records their calls, and ends the run after enough of them."""

    def __init__(self, order: Order, communicator: Rehearsal) -> None:
        self.seconds: list[float] = []
        self.processor: list[float] = []
        """Processor seconds of each step: on a busy machine fewer than it took."""
        self.notes: list[Note] = []
        self.peak = self.resident = self.arrays = 0
        """The peak bytes of the process, its bytes between steps, and the peak of arrays in one step."""
        self._order, self._communicator = order, communicator
        self._warm = 0.0
        self._counting = False
        self._began = self._used = 0.0

    @hookimpl
    def tenon_step_begin(self, session: Session, step: int) -> None:
        """Start timing; before the first measured step, wait for the concurrent rehearsals."""
        if not self._counting and (step >= WARM_STEPS or self._warm > WARM_SECONDS):
            self._counting = True
            self.seconds.clear()
            self.processor.clear()
            _wait_for_others(self._order)
            memory.reset_peak()
        self._communicator.notes.clear()
        if self._enough():
            self.peak, self.resident = memory.peak(), memory.resident()
            tracemalloc.start()  # NumPy reports its arrays to tracemalloc.
        self._used, self._began = time.process_time(), time.perf_counter()

    @hookimpl
    def tenon_step_end(self, session: Session, step: int) -> None:
        """Stop timing; after the measured steps, one more is run to trace its arrays."""
        took, used = time.perf_counter() - self._began, time.process_time() - self._used
        self.notes = list(self._communicator.notes)
        if tracemalloc.is_tracing():
            self.arrays = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self._communicator.stop = True
            return
        self.seconds.append(took)
        self.processor.append(used)
        if not self._counting:
            self._warm += took

    def _enough(self) -> bool:
        done = len(self.seconds)
        return self._counting and done >= LEAST and (done >= STEPS or sum(self.seconds) > SECONDS)


def rehearse(order: Order) -> Result:
    """Run steps of the last of ``order.ranks`` ranks; return their calls, memory and times."""
    folder = Path(order.folder) / f"run-{order.index}"
    folder.mkdir()
    communicator = Rehearsal(order.ranks, folder, order.overlaps)
    watch = Watch(order, communicator)
    resolved = run_parts.resolve_config([{k: v for k, v in order.config.items() if v is not None}])
    recipe = run_parts.recipe_named(resolved.recipe) if resolved.recipe is not None else None
    register(watch, "tenon-plan")
    with engine.use_communicator(communicator):
        session = run_parts.open_session(resolved, recipe, None, folder)
        # One batch is enough to measure the memory of an evaluation.
        test = session.data.test
        subset: Any = Subset(test, range(min(resolved.eval_batch_size * order.ranks, len(test))))
        session.data = Splits(session.data.train, subset)
        with contextlib.suppress(_Enough):
            run_parts.run(session)
        communicator.stop = False
        # Tracing needs memory too, so only the rise of the peak by an evaluation counts.
        memory.reset_peak()
        before = memory.resident()
        run_parts.evaluate(session, session.data.test)
        evaluation = watch.resident + max(0, memory.peak() - before)
    trained = [p for p in session.model.parameters() if p.requires_grad]
    state = [value for entry in session.optimizer.state.values() for value in entry.values()]
    return {
        "parameters": sum(p.numel() for p in session.model.parameters()),
        "samples": len(session.data.train),
        "buckets": len(communicator.allocated),
        "notes": [asdict(note) for note in watch.notes],
        "seconds": watch.seconds,
        "processor": statistics.median(watch.processor),
        "copied_per_second": _copy_rate(),
        "memory": {
            "weights": _bytes(session.model.parameters()) + _bytes(session.model.buffers()),
            "gradients": _bytes(trained),
            "buckets": _bytes(communicator.allocated) if order.ranks > 1 else 0,
            "optimizer": _bytes(state),
            "arrays": watch.arrays,
            "peak": watch.peak,
            "evaluation": evaluation,
        },
    }


def _bytes(values: Iterable[object]) -> int:
    """Return the bytes of the arrays and tensors among ``values``."""
    return sum(int(getattr(value, "nbytes", 0)) for value in values)


def _copy_rate() -> float:
    """Return the bytes that a copy reads and writes per second, the median of nine."""
    source, target, rates = np.ones(COPIED, np.uint8), np.ones(COPIED, np.uint8), []
    for _ in range(9):
        began = time.perf_counter()
        np.copyto(target, source)
        rates.append(2 * COPIED / (time.perf_counter() - began))
    return float(np.median(rates))


def _wait_for_others(order: Order) -> None:
    """Wait until all concurrent rehearsals have called this."""
    folder = Path(order.folder)
    (folder / f"ready-{order.index}").touch()
    deadline = time.monotonic() + PATIENCE
    while len(list(folder.glob("ready-*"))) < order.together and time.monotonic() < deadline:
        time.sleep(0.002)


def main() -> None:
    """Read the order and write the result to a file beside it."""
    path = Path(sys.argv[1])
    try:
        result = rehearse(Order(**json.loads(path.read_text())))
    except TenonError as error:
        result = {"error": str(error)}
    path.with_suffix(".part").write_text(json.dumps(result))
    path.with_suffix(".part").rename(path.with_suffix(".result"))
    sys.stdout.flush()
    os._exit(0)  # Do not wait for background writes or threads of data sets.


if __name__ == "__main__":
    main()
