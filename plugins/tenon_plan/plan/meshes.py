"""The meshes on which a run can be divided among its ranks, and what trials of them have shown."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tenon.errors import ConfigError, LaunchError
from tenon.extend import run_parts
from tenon_plan.plan import measure
from tenon_plan.plan.recorded_calls import Result
from tenon_plan.plan.trial import MARK, STEPS, WARM_STEPS, Task

#: The sizes of a mesh by dimension, as in the section ``[parallel]``.
Sizes = dict[str, int]
NAMES = ("data", "shard", "tensor", "pipeline")


@dataclass(frozen=True)
class Tried:
    """A mesh, and the measured steps of a run on it; or why it cannot run, in ``problem``."""

    sizes: Sizes
    result: Result
    problem: str = ""

    @property
    def name(self) -> str:
        """The dimensions of more than one rank."""
        return (
            " x ".join(f"{name} {self.sizes[name]}" for name in NAMES if self.sizes[name] > 1) or "one rank"
        )

    @property
    def seconds(self) -> float:
        """The median time of a step; infinite if there is none."""
        return float(statistics.median(self.result["seconds"])) if not self.problem else float("inf")

    @property
    def peak(self) -> int:
        """The peak memory of the rank that needs most, evaluation included."""
        return max([*self.result["peaks"], *self.result["evaluations"]]) if not self.problem else 0

    def plain(self) -> Result:
        """Everything as plain values."""
        measured = {} if self.problem else {**self.result, "seconds": self.seconds, "peak": self.peak}
        return {**self.sizes, "problem": self.problem, **measured}


def candidates(config: run_parts.RunConfig, ranks: int) -> Iterator[Sizes]:
    """The meshes of ``ranks`` ranks that fit the model, those that send least first.

    The ranks besides ``tensor`` and ``pipeline`` either all have copies, or all have shards.
    """
    check = run_parts.division_check(config)
    for pipeline in _divisors(ranks):
        for tensor in _divisors(ranks // pipeline):
            rest = ranks // pipeline // tensor
            for data, shard in dict.fromkeys([(rest, 1), (1, rest)]):
                sizes = {"data": data, "shard": shard, "tensor": tensor, "pipeline": pipeline}
                if check(sizes, ranks) is None:
                    yield sizes


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def attempt(config: run_parts.RunConfig, sizes: Sizes, ranks: int, launcher: Sequence[str]) -> Tried:
    """Run some steps on the mesh ``sizes``; a failure becomes the ``problem``."""
    with tempfile.TemporaryDirectory(prefix="tenon-plan-") as folder:
        saved = measure.quiet(config, folder, STEPS + WARM_STEPS + 2)
        saved["checkpoint"] = {"every": 0}
        saved["parallel"] = {**config.parallel.model_dump(mode="json"), **sizes, "auto": False}
        path = Path(folder) / "task.json"
        path.write_text(json.dumps(asdict(Task(saved, folder))))
        try:
            result = measure.on_ranks(
                [*launcher, "-n", str(ranks)], "tenon_plan.plan.trial", [str(path)], {}, MARK
            )
        except LaunchError as error:
            return Tried(sizes, {}, str(error).partition(": ")[2] or str(error))
    return Tried(sizes, result)


def choose(tried: Sequence[Tried], limit: int | None) -> Tried:
    """The fastest that fits into ``limit`` bytes a rank; ConfigError if none does."""
    running = [each for each in tried if not each.problem]
    fitting = [each for each in running if limit is None or each.peak <= limit]
    if fitting:
        return min(fitting, key=lambda each: each.seconds)
    if running:
        least = min(running, key=lambda each: each.peak)
        raise ConfigError(
            f"no mesh fits into {limit:,} bytes a rank: {least.name} comes closest, with {least.peak:,}."
            " Use more ranks, a smaller batch_size, or parallel.meta = true."
        )
    raise ConfigError(
        f"no mesh can run: {tried[0].name}: {tried[0].problem}" if tried else "no mesh fits the model."
    )


def try_all(
    config: run_parts.RunConfig, ranks: int, launcher: Sequence[str], show: Callable[[Tried], None]
) -> list[Tried]:
    """Try each mesh, and pass what was found to ``show``."""
    tried = []
    for sizes in candidates(config, ranks):
        tried.append(attempt(config, sizes, ranks, launcher))
        show(tried[-1])
    return tried
