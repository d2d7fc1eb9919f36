"""Starts what measures: rehearsals side by side, and the replay of their calls on real ranks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tenon.errors import ConfigError, LaunchError, TrainingError
from tenon.extend import process_environment, run_parts
from tenon_plan.plan.notes import Note
from tenon_plan.plan.rehearsal import STEPS, WARM_STEPS, Order
from tenon_plan.plan.replay import MARK

MOST_REPLAYED = 16
"""Ranks of one node are started here up to this number."""
LIMIT = 300.0


@dataclass(frozen=True)
class Rehearsed:
    """What rehearsals of a rank found; ``seconds`` has the steps of each of those that ran side by side."""

    parameters: int
    samples: int
    buckets: int
    notes: tuple[Note, ...]
    memory: Mapping[str, int]
    seconds: tuple[tuple[float, ...], ...]
    processor: float
    """Seconds that processors worked for a step, over all its threads."""
    copied_per_second: float


@dataclass(frozen=True)
class Replayed:
    """The calls of a step on ``ranks`` real ranks of this machine, and the memory of their communicator."""

    ranks: int
    seconds: tuple[float, ...]
    memory: int


@dataclass(frozen=True)
class Link:
    """Seconds of a small and of a large sum between ``ranks`` ranks on ``nodes`` nodes."""

    ranks: int
    nodes: int
    small: tuple[float, ...]
    large: tuple[float, ...]


def rehearse(
    config: run_parts.RunConfig, ranks: int, together: int, threads: int, nodes: int = 1
) -> Rehearsed:
    """``together`` rehearsals of a rank of ``ranks`` on ``nodes``, at once, each with ``threads`` threads."""
    with tempfile.TemporaryDirectory(prefix="tenon-plan-") as folder:
        paths = []
        for index in range(together):
            path = Path(folder) / f"order-{index}.json"
            order = Order(_quiet(config, folder), ranks, folder, index, together, nodes > 1)
            path.write_text(json.dumps(asdict(order)))
            paths.append(path)
        _run_together(paths, threads)
        results = [path.with_suffix(".result") for path in paths]
        found = [json.loads(result.read_text()) for result in results if result.exists()]
    problem = next((one["error"] for one in found if "error" in one), None)
    if problem is not None:
        raise ConfigError(problem)
    first = found[0]
    return Rehearsed(
        first["parameters"],
        first["samples"],
        first["buckets"],
        tuple(Note.read(note) for note in first["notes"]),
        first["memory"],
        tuple(tuple(one["seconds"]) for one in found),
        max(one["processor"] for one in found),
        min(one["copied_per_second"] for one in found),
    )


def replay(rehearsed: Rehearsed, ranks: int) -> Replayed:
    """The calls of a step on ``ranks`` ranks of this machine, as one node."""
    with tempfile.TemporaryDirectory(prefix="tenon-plan-") as folder:
        path = Path(folder) / "notes.json"
        path.write_text(json.dumps([asdict(note) for note in rehearsed.notes]))
        found = _on_ranks(
            [*run_parts.find_launcher(), "-n", str(ranks)], [str(path)], {"TENON_NUM_THREADS": "1"}
        )
    return Replayed(found["ranks"], tuple(found["seconds"]), found["memory"])


def network(launcher: str) -> Link:
    """What ``launcher``'s ranks measure between their nodes."""
    found = _link(run_parts.find_launcher(launcher), {})
    if found.ranks != found.nodes or found.nodes < 2:
        raise ConfigError(
            f"--mpirun {launcher!r} started {found.ranks} ranks on {found.nodes} "
            f"node{'s' if found.nodes > 1 else ''}; the network is measured by one rank on each of two or "
            "more. Add e.g. -n 2 -ppn 1 -hosts a,b."
        )
    return found


def this_machine() -> Link:
    """Messages between two processes here: faster than what comes over a network."""
    return _link([*run_parts.find_launcher(), "-n", "2"], {"TENON_MPI_NODES": "2"})


def _link(launcher: Sequence[str], variables: Mapping[str, str]) -> Link:
    found = _on_ranks(launcher, [], {"TENON_NUM_THREADS": "1", **variables})
    return Link(found["ranks"], found["nodes"], tuple(found["small"]), tuple(found["large"]))


def _quiet(config: run_parts.RunConfig, folder: str) -> dict[str, Any]:
    """The configuration, without what a run would leave on the disk, and with steps enough to measure."""
    if config.epochs == 0:
        raise ConfigError("epochs = 0: the configuration trains no step, so there is nothing to plan.")
    saved = config.model_dump(mode="json")
    saved["epochs"] = max(config.epochs, STEPS + WARM_STEPS + 1)
    saved["output"] = folder
    saved["checkpoint"] = {"every": 1 << 30}
    saved["log"] = {"every": 1 << 30, "tensorboard": False}
    return saved


def _run_together(orders: Sequence[Path], threads: int) -> None:
    """Start a rehearsal for each order; return when all are done, or end them when one fails."""
    environment = {**process_environment(), "TENON_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "tenon_plan.plan.rehearsal"]
    running = []
    try:
        for order in orders:
            with open(order.with_suffix(".errors"), "wb") as errors:
                running.append(
                    subprocess.Popen(
                        [*command, str(order)], stdout=subprocess.DEVNULL, stderr=errors, env=environment
                    )
                )
        while any(child.poll() is None for child in running):
            failed = [order for order, child in zip(orders, running, strict=True) if child.poll()]
            if failed:
                break
            if any(_refused(order) for order in orders):
                return
            time.sleep(0.02)
        failed = [order for order, child in zip(orders, running, strict=True) if child.poll()]
    finally:
        for child in running:
            child.kill()
            child.wait()
    if failed:
        raise TrainingError(
            f"the rehearsal of a rank failed:\n{failed[0].with_suffix('.errors').read_text()}"
        )


def _refused(order: Path) -> bool:
    result = order.with_suffix(".result")
    return result.exists() and '"error"' in result.read_text()[:20]


def _on_ranks(
    launcher: Sequence[str], arguments: Sequence[str], variables: Mapping[str, str]
) -> dict[str, Any]:
    """The line that rank 0 of the replay prints."""
    command = [*launcher, sys.executable, "-m", "tenon_plan.plan.replay", *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env={**process_environment(), **variables},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"cannot measure with {' '.join(launcher)}: {error}.") from error
    line = next((line for line in done.stdout.splitlines() if line.startswith(MARK)), None)
    if line is None:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        reason = next((x for x in done.stderr.splitlines() if "Error: " in x), last)
        raise LaunchError(f"{' '.join(launcher)} ended with status {done.returncode}: {reason.strip()}")
    found: dict[str, Any] = json.loads(line.removeprefix(MARK))
    return found
