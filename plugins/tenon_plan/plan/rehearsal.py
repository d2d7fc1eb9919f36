"""Run some steps of one rank of many: the training loop, with a communicator that simulates the other ranks.

The program ``python -m tenon_plan.plan.rehearsal TASK`` is one rank. Its communication is recorded from the
calls of the loop, its memory from the process, its time from a clock. Several concurrent ones, which wait for
each other before the measured steps, compute side by side as the ranks of a node do.

Every simulated rank has the data of this one, so sums are multiples of its values: the loss remains finite,
and branches that depend on values are taken as in training.
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

import numpy as np
from numpy.typing import ArrayLike

from tenon.data.combined import Subset
from tenon.data.dataset import Splits
from tenon.errors import TenonError
from tenon.extend import Communicator, Session, engine, hookimpl, register, run_parts
from tenon_plan.plan import memory, step_graph
from tenon_plan.plan.recorded_calls import RecordedCall, Result

WARM_STEPS, WARM_SECONDS = 5, 2.0
"""Warm-up ends after so many steps or, if earlier, so many seconds."""
STEPS, SECONDS, MIN_STEPS = 30, 4.0, 3
"""The largest number of measured steps, the seconds after which they end, and their smallest number."""
WAIT_SECONDS = 300.0
COPY_BYTES = 16 << 20


@dataclass(frozen=True)
class Task:
    """The task of one of ``together`` concurrent rehearsals, which wait for each other in ``folder``.

    ``overlaps``: whether all-reduces would overlap with backward, as they do between nodes.
    ``graph``: whether to plan the graph of the step too.
    """

    config: dict[str, object]
    ranks: int
    folder: str
    index: int
    together: int
    overlaps: bool = False
    graph: bool = False


class _AllStepsDone(Exception):
    """Raised in the training loop when the requested steps are done."""


class Rehearsal(Communicator):
    """A communicator of the last of ``size`` ranks; collectives return what equal ranks would.

    The last rank's share of a batch is never smaller than another's.
    """

    name = "rehearsal"

    def __init__(self, size: int, folder: Path, overlaps: bool) -> None:
        super().__init__(size - 1, size, 0, 1)
        self.overlaps = overlaps
        self._folder = folder
        self.calls: list[RecordedCall] = []
        self.stop = False
        self._overlapping = False
        self._preallocated = False
        self.allocated: list[engine.Array] = []
        """Arrays from ``allocate``: buckets of gradients."""

    def allocate(self, count: int, dtype: np.dtype) -> engine.Array:
        """Allocate zeros and remember them: an engine would allocate them in shared memory."""
        self.allocated.append(np.zeros(count, dtype))
        return self.allocated[-1]

    def agree(self, call: engine.Call) -> None:
        """Record the call, or end the rehearsal."""
        if self.stop:
            raise _AllStepsDone
        self.calls.append(RecordedCall(call, self._preallocated, self._overlapping))

    def all_reduce(
        self,
        array: ArrayLike,
        op: str = engine.ReduceOp.SUM,
        out: engine.Array | None = None,
        *,
        name: str | None = None,
    ) -> engine.Work:
        """All-reduce, and record whether the array is from ``allocate``."""
        self._preallocated = out is array and any(
            np.may_share_memory(array, buffer) for buffer in self.allocated
        )
        try:
            return super().all_reduce(array, op, out, name=name)
        finally:
            self._preallocated = False

    def start_all_reduce(
        self, array: engine.Array, op: str = engine.ReduceOp.SUM, *, name: str | None = None
    ) -> engine.Work:
        """All-reduce, and record that it could overlap with computing."""
        self._overlapping = True
        try:
            return self.all_reduce(array, op, array, name=name)
        finally:
            self._overlapping = False

    def perform_all_reduce(self, source: engine.Array, target: engine.Array, op: engine.ReduceOp) -> None:
        """Compute the reduction of ``size`` equal arrays."""
        if op is engine.ReduceOp.SUM and source.dtype.kind != "b":
            np.multiply(source, source.dtype.type(self.size), out=target, casting="same_kind")
        elif op is engine.ReduceOp.PRODUCT and source.dtype.kind != "b":
            np.power(source, self.size, out=target)
        elif target is not source:
            np.copyto(target, source)

    def perform_broadcast(self, target: engine.Array, root: int) -> None:
        """Do nothing: the root has the values of this rank."""

    def perform_all_gather(self, source: engine.Array, target: engine.Array) -> None:
        """Fill every row of ``target`` with ``source``, as equal ranks would."""
        target[...] = source

    def perform_all_to_all(self, source: engine.Array, target: engine.Array) -> None:
        """Fill every row of ``target`` with this rank's row, as equal ranks would send it."""
        target[...] = source[self.rank]

    def perform_reduce_scatter(self, source: engine.Array, target: engine.Array, op: engine.ReduceOp) -> None:
        """Reduce this rank's row over ``size`` equal arrays."""
        self.perform_all_reduce(np.ascontiguousarray(source[self.rank]), target, op)

    def all_gather_bytes(self, payload: bytes, *, name: str | None = None, detail: str = "") -> list[bytes]:
        """Return ``size`` copies of ``payload``; rank 0 sends the folder of the run, which it creates."""
        payloads = super().all_gather_bytes(payload, name=name, detail=detail)
        if name == "run folder":
            payloads[0] = engine.encode([str(self._folder), None])
        return payloads

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """Return ``size`` copies of ``payload``."""
        return [payload] * self.size


class StepRecorder:
    """A plugin that times the steps, records their calls, and ends the run after enough of them."""

    def __init__(self, task: Task, communicator: Rehearsal) -> None:
        self.seconds: list[float] = []
        self.processor: list[float] = []
        """Processor seconds of each step; on a busy machine fewer than the elapsed ones."""
        self.calls: list[RecordedCall] = []
        self.peak = self.resident = self.arrays = 0
        """The peak bytes of the process, its bytes between steps, and the peak of arrays in one step."""
        self._task, self._communicator = task, communicator
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
            _wait_for_others(self._task)
            memory.reset_peak()
        self._communicator.calls.clear()
        if self._has_measured_enough():
            self.peak, self.resident = memory.peak(), memory.resident()
            tracemalloc.start()  # NumPy reports its arrays to tracemalloc.
        self._used, self._began = time.process_time(), time.perf_counter()

    @hookimpl
    def tenon_step_end(self, session: Session, step: int) -> None:
        """Stop timing; after the measured steps, one more is run to trace its arrays."""
        elapsed, used = time.perf_counter() - self._began, time.process_time() - self._used
        self.calls = list(self._communicator.calls)
        if tracemalloc.is_tracing():
            self.arrays = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self._communicator.stop = True
            return
        self.seconds.append(elapsed)
        self.processor.append(used)
        if not self._counting:
            self._warm += elapsed

    def _has_measured_enough(self) -> bool:
        done = len(self.seconds)
        return self._counting and done >= MIN_STEPS and (done >= STEPS or sum(self.seconds) > SECONDS)


def rehearse(task: Task) -> Result:
    """Run steps of the last of ``task.ranks`` ranks; return their calls, memory and times."""
    folder = Path(task.folder) / f"run-{task.index}"
    folder.mkdir()
    communicator = Rehearsal(task.ranks, folder, task.overlaps)
    recorder = StepRecorder(task, communicator)
    resolved = run_parts.resolve_config([{k: v for k, v in task.config.items() if v is not None}])
    recipe = run_parts.recipe_named(resolved.recipe) if resolved.recipe is not None else None
    register(recorder, "tenon-plan")
    with engine.use_communicator(communicator):
        session = run_parts.open_session(resolved, recipe, None, folder)
        # One batch is enough to measure the memory of an evaluation.
        test = session.data.test
        subset = Subset(test, range(min(resolved.eval_batch_size * task.ranks, len(test))))
        session.data = Splits(session.data.train, subset)
        with contextlib.suppress(_AllStepsDone):
            run_parts.run(session)
        communicator.stop = False
        # Tracing needs memory too, so only the rise of the peak by an evaluation counts.
        memory.reset_peak()
        before = memory.resident()
        run_parts.evaluate(session, session.data.test)
        evaluation = recorder.resident + max(0, memory.peak() - before)
        graph = step_graph.plan(session) if task.graph else {}
    trained = [p for p in session.model.parameters() if p.requires_grad]
    state = [value for entry in session.optimizer.state.values() for value in entry.values()]
    return {
        "parameters": sum(p.numel() for p in session.model.parameters()),
        "samples": len(session.data.train),
        "buckets": len(communicator.allocated),
        "calls": [asdict(recorded) for recorded in recorder.calls],
        "seconds": recorder.seconds,
        "processor": statistics.median(recorder.processor),
        "copied_per_second": _copy_rate(),
        "memory": {
            "weights": _bytes(session.model.parameters()) + _bytes(session.model.buffers()),
            "gradients": _bytes(trained),
            "buckets": _bytes(communicator.allocated) if task.ranks > 1 else 0,
            "optimizer": _bytes(state),
            "arrays": recorder.arrays,
            "peak": recorder.peak,
            "evaluation": evaluation,
        },
        "graph": graph,
    }


def _bytes(values: Iterable[object]) -> int:
    """Return the bytes of the arrays and tensors among ``values``."""
    return sum(int(getattr(value, "nbytes", 0)) for value in values)


def _copy_rate() -> float:
    """Return the bytes that a copy reads and writes per second, the median of nine."""
    source, target, rates = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8), []
    for _ in range(9):
        began = time.perf_counter()
        np.copyto(target, source)
        rates.append(2 * COPY_BYTES / (time.perf_counter() - began))
    return float(np.median(rates))


def _wait_for_others(task: Task) -> None:
    """Wait until all concurrent rehearsals have called this."""
    folder = Path(task.folder)
    (folder / f"ready-{task.index}").touch()
    deadline = time.monotonic() + WAIT_SECONDS
    while len(list(folder.glob("ready-*"))) < task.together and time.monotonic() < deadline:
        time.sleep(0.002)


def main() -> None:
    """Read the task from the file named on the command line; write the result to a file next to it."""
    path = Path(sys.argv[1])
    try:
        result = rehearse(Task(**json.loads(path.read_text())))
    except TenonError as error:
        result = {"error": str(error)}
    path.with_suffix(".part").write_text(json.dumps(result))
    path.with_suffix(".part").rename(path.with_suffix(".result"))
    sys.stdout.flush()
    os._exit(0)  # Do not wait for background writes or threads of data sets.


if __name__ == "__main__":
    main()
