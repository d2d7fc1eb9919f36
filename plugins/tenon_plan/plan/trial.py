"""Run some steps of a run whose ranks have parts of the model: the program is one of its real ranks.

Such ranks wait for each other's parts, in an order that no single one shows. So their steps are measured
where they run: ``mpirun -n N python -m tenon_plan.plan.trial TASK``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tenon.data.combined import Subset
from tenon.data.dataset import Splits
from tenon.extend import Session, engine, hookimpl, register, run_parts
from tenon_plan.plan import memory

MARK = "tenon plan tried: "
WARM_STEPS, WARM_SECONDS = 4, 3.0
"""Warm-up ends after so many steps or, if earlier, so many seconds, but not before the second step."""
STEPS, SECONDS, MIN_STEPS = 40, 4.0, 3
"""The largest number of measured steps, the seconds after which they end, and their smallest number."""


@dataclass(frozen=True)
class Task:
    """A configuration, whose outputs go to ``folder``."""

    config: dict[str, object]
    folder: str


class StepTimer:
    """A plugin that times the steps, and ends the run on all ranks after enough of them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.peak = 0
        self._began = 0.0
        self._first: float | None = None
        self._steps = 0
        self._counting = self._is_full = False

    @hookimpl
    def tenon_step_begin(self, session: Session, step: int) -> None:
        """Start timing; warm-up ends after some steps."""
        now = time.perf_counter()
        if self._first is None:
            self._first = now
        warm = self._steps >= WARM_STEPS or (self._steps >= 2 and now - self._first > WARM_SECONDS)
        if warm and not self._counting:
            self._counting = True
            memory.reset_peak()
        self._steps += 1
        left = len(session.data.train) - session.position
        self._is_full = left >= min(session.config.batch_size, len(session.data.train))
        self._began = time.perf_counter()

    @hookimpl
    def tenon_step_end(self, session: Session, step: int) -> None:
        """Stop timing: full batches count. When rank 0 has measured enough, all stop a step later."""
        if self._counting and self._is_full:
            self.seconds.append(time.perf_counter() - self._began)
        self.peak = memory.peak()
        done = len(self.seconds)
        if session.is_main and done >= MIN_STEPS and (done >= STEPS or sum(self.seconds) > SECONDS):
            session.stopping = signal.SIGTERM


def run(task: Task) -> dict[str, object]:
    """Run the steps; return what this rank has measured."""
    resolved = run_parts.resolve_config([{k: v for k, v in task.config.items() if v is not None}])
    recipe = run_parts.recipe_named(resolved.recipe) if resolved.recipe is not None else None
    timer = StepTimer()
    register(timer, "tenon-plan")
    session = run_parts.open_session(resolved, recipe, None, Path(task.folder) / "run")
    test = session.data.test
    few = Subset(test, range(min(resolved.eval_batch_size * session.size, len(test))))
    session.data = Splits(session.data.train, few)
    run_parts.run(session)
    memory.reset_peak()
    before = memory.resident()
    run_parts.evaluate(session, session.data.test)
    parameters = sum(p.numel() for p in session.model.parameters())
    return {
        "parameters": session.division.parameters if session.division is not None else parameters,
        "seconds": timer.seconds,
        "peak": timer.peak,
        "evaluation": timer.peak + max(0, memory.peak() - before),
    }


def main() -> None:
    """Read the task from the file named on the command line; rank 0 prints what all ranks have measured."""
    result = run(Task(**json.loads(Path(sys.argv[1]).read_text())))
    communicator = engine.launch()
    gathered = [json.loads(each) for each in communicator.all_gather_bytes(json.dumps(result).encode())]
    if communicator.rank == 0:
        first = gathered[0]
        summary = {
            "parameters": first["parameters"],
            "seconds": first["seconds"],
            "peaks": [each["peak"] for each in gathered],
            "evaluations": [each["evaluation"] for each in gathered],
        }
        print(MARK + json.dumps(summary), flush=True)
    communicator.barrier()
    sys.stdout.flush()
    os._exit(0)  # Do not wait for threads of data sets.


if __name__ == "__main__":
    main()
