"""Start the measurements: concurrent rehearsals, and the replay of their calls on real ranks."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tenon.errors import ConfigError, LaunchError, TrainingError
from tenon.extend import process_environment, run_parts
from tenon_plan.plan.graph_plan import GraphPlan
from tenon_plan.plan.recorded_calls import RecordedCall, Result
from tenon_plan.plan.rehearsal import STEPS, WARM_STEPS, Task
from tenon_plan.plan.replay import MARK

MOST_REPLAYED = 16
"""The largest number of ranks of one node that are started here."""
LIMIT = 300.0
REPLAY = "tenon_plan.plan.replay"


@dataclass(frozen=True)
class Rehearsed:
    """The results of rehearsals; ``seconds`` has the step times of each of those that ran concurrently."""

    parameters: int
    samples: int
    buckets: int
    calls: tuple[RecordedCall, ...]
    memory: Mapping[str, int]
    seconds: tuple[tuple[float, ...], ...]
    processor: float
    """Processor seconds of a step, over all its threads."""
    copied_per_second: float
    graph: GraphPlan | None = None
    """Of the captured graph of the step, where one was asked for and could be captured."""
    graph_remark: str = ""


@dataclass(frozen=True)
class Replayed:
    """Times of a step's calls on ``ranks`` real ranks of this machine, and their communicator's memory."""

    ranks: int
    seconds: tuple[float, ...]
    memory: int


@dataclass(frozen=True)
class Link:
    """Seconds of a small and of a large all-reduce between ``ranks`` ranks on ``nodes`` nodes."""

    ranks: int
    nodes: int
    small: tuple[float, ...]
    large: tuple[float, ...]


def rehearse(
    config: run_parts.RunConfig,
    ranks: int,
    together: int,
    threads: int,
    nodes: int = 1,
    *,
    graph: bool = False,
) -> Rehearsed:
    """Run ``together`` concurrent rehearsals of a rank of ``ranks`` on ``nodes``, with ``threads`` each.

    ``graph``: whether the first of them plans the graph of the step too, when all have measured theirs.
    """
    with tempfile.TemporaryDirectory(prefix="tenon-plan-") as folder:
        paths = []
        for index in range(together):
            path = Path(folder) / f"task-{index}.json"
            task = Task(
                quiet(config, folder, STEPS + WARM_STEPS + 1),
                ranks,
                folder,
                index,
                together,
                nodes > 1,
                graph and not index,
            )
            path.write_text(json.dumps(asdict(task)))
            paths.append(path)
        _run_concurrently(paths, threads)
        results = [path.with_suffix(".result") for path in paths]
        outcomes = [json.loads(result.read_text()) for result in results if result.exists()]
    problem = next((outcome["error"] for outcome in outcomes if "error" in outcome), None)
    if problem is not None:
        raise ConfigError(problem)
    first = outcomes[0]
    return Rehearsed(
        first["parameters"],
        first["samples"],
        first["buckets"],
        tuple(RecordedCall.read(recorded) for recorded in first["calls"]),
        first["memory"],
        tuple(tuple(outcome["seconds"]) for outcome in outcomes),
        max(outcome["processor"] for outcome in outcomes),
        min(outcome["copied_per_second"] for outcome in outcomes),
        GraphPlan.read(first["graph"]["plan"]) if first["graph"].get("plan") else None,
        first["graph"].get("remark", ""),
    )


def replay(rehearsed: Rehearsed, ranks: int) -> Replayed:
    """Time the calls of a step on ``ranks`` ranks of this machine, as one node."""
    with tempfile.TemporaryDirectory(prefix="tenon-plan-") as folder:
        path = Path(folder) / "calls.json"
        path.write_text(json.dumps([asdict(recorded) for recorded in rehearsed.calls]))
        launcher = [*run_parts.find_launcher(), "-n", str(ranks)]
        result = on_ranks(launcher, REPLAY, [str(path)], {"TENON_NUM_THREADS": "1"}, MARK)
    return Replayed(result["ranks"], tuple(result["seconds"]), result["memory"])


def network(launcher: str) -> Link:
    """Measure the network between the nodes of ``launcher``'s ranks."""
    measured = _link(run_parts.find_launcher(launcher), {})
    if measured.ranks != measured.nodes or measured.nodes < 2:
        raise ConfigError(
            f"--mpirun {launcher!r} started {measured.ranks} ranks on {measured.nodes} "
            f"node{'s' if measured.nodes > 1 else ''}; the network is measured by one rank on each of two or "
            "more. Add e.g. -n 2 -ppn 1 -hosts a,b."
        )
    return measured


def this_machine() -> Link:
    """Measure messages between two processes of this machine, which are faster than a network."""
    return _link([*run_parts.find_launcher(), "-n", "2"], {"TENON_MPI_NODES": "2"})


def _link(launcher: Sequence[str], variables: Mapping[str, str]) -> Link:
    result = on_ranks(launcher, REPLAY, [], {"TENON_NUM_THREADS": "1", **variables}, MARK)
    return Link(result["ranks"], result["nodes"], tuple(result["small"]), tuple(result["large"]))


def quiet(config: run_parts.RunConfig, folder: str, steps: int) -> dict[str, object]:
    """Return the configuration without outputs on the disk, and with epochs for at least so many steps."""
    if config.epochs == 0:
        raise ConfigError("epochs = 0: the configuration trains no step, so there is nothing to plan.")
    saved: dict[str, object] = config.model_dump(mode="json")
    saved["epochs"] = max(config.epochs, steps)
    saved["output"] = folder
    saved["checkpoint"] = {"every": 1 << 30}
    saved["log"] = {"every": 1 << 30, "tensorboard": False}
    return saved


def _run_concurrently(tasks: Sequence[Path], threads: int) -> None:
    """Run a rehearsal for each task; end all of them if one fails."""
    environment = {**process_environment(), "TENON_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "tenon_plan.plan.rehearsal"]
    running = []
    try:
        for task in tasks:
            with open(task.with_suffix(".errors"), "wb") as errors:
                running.append(
                    subprocess.Popen(
                        [*command, str(task)], stdout=subprocess.DEVNULL, stderr=errors, env=environment
                    )
                )
        while any(child.poll() is None for child in running):
            failed = [task for task, child in zip(tasks, running, strict=True) if child.poll()]
            if failed:
                break
            if any(_refused(task) for task in tasks):
                return
            time.sleep(0.02)
        failed = [task for task, child in zip(tasks, running, strict=True) if child.poll()]
    finally:
        for child in running:
            child.kill()
            child.wait()
    if failed:
        raise TrainingError(
            f"the rehearsal of a rank failed:\n{failed[0].with_suffix('.errors').read_text()}"
        )


def _refused(task: Path) -> bool:
    result = task.with_suffix(".result")
    return result.exists() and '"error"' in result.read_text()[:20]


def on_ranks(
    launcher: Sequence[str], module: str, arguments: Sequence[str], variables: Mapping[str, str], mark: str
) -> Result:
    """Run ``module`` on ``launcher``'s ranks and return the JSON that rank 0 prints after ``mark``.

    LaunchError if it prints none, with the last error.
    """
    command = [*launcher, sys.executable, "-m", module, *arguments]
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
    line = next((line for line in done.stdout.splitlines() if line.startswith(mark)), None)
    if line is None:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        reason = next((x for x in done.stderr.splitlines() if "Error: " in x), last)
        raise LaunchError(f"{' '.join(launcher)} ended with status {done.returncode}: {reason.strip()}")
    result: Result = json.loads(line.removeprefix(mark))
    return result
