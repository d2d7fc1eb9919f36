"""``verify``: run every target of a bundle on its test vectors.

The files of a target are copied to a temporary folder, where the target compiles and runs them: only here is
anything in a bundle executed, and the bundle itself is not changed.

The checksums of a bundle detect damage, not manipulation: whoever can write a bundle can also write its
manifest. So verify only bundles that you would run; ``targets=()`` runs the graph alone, by tenon's own ops,
and nothing else.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tenon.errors import BundleError, TenonError
from tenon.export.bundle import Bundle, load, target_named
from tenon.export.captured import CapturedGraph
from tenon.export.runner import Runner
from tenon.export.target import Target
from tenon.graph.graph import Node


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one target."""

    target: str
    #: "passed", "failed" or "not run".
    status: str
    #: The largest difference from the vectors, in units of the tolerance; None if it was not run.
    excess: float | None
    seconds: float
    #: Why it failed or was not run.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a bundle: first that of the graph itself, then that of each target."""

    folder: Path
    runs: int
    absolute: float
    relative: float
    verdicts: Sequence[Verdict]

    @property
    def passed(self) -> bool:
        """Whether every target was run and passed."""
        return all(verdict.status == "passed" for verdict in self.verdicts)


def verify(
    folder: str | os.PathLike[str], targets: Sequence[str] | None = None, found: Sequence[Target] = ()
) -> Report:
    """Read the bundle in ``folder``, run its graph and its targets on the vectors, and report.

    ``targets`` limits it to some of them. Targets are found by name among plugins, or in ``found``.
    BundleError if the bundle is damaged. This executes the programs in the bundle, unless ``targets`` is
    empty.
    """
    bundle = load(folder)
    known = {target.name: target for target in found}
    verdicts = [_judged("graph", bundle, lambda: _graph_results(bundle))]
    for name in bundle.targets if targets is None else targets:
        verdicts.append(_target_verdict(bundle, name, known.get(name)))
    vectors = bundle.vectors
    return Report(bundle.folder, len(vectors.runs), vectors.absolute, vectors.relative, verdicts)


def _graph_results(bundle: Bundle) -> list[list[np.ndarray]]:
    needed, available = memory_peak(bundle.graph), physical_memory()
    if available and needed > available:
        raise BundleError(
            f"the graph needs {needed:,} bytes at once, and this machine has {available:,}. Verify it "
            "elsewhere."
        )
    runner = Runner(bundle.graph)
    return [runner.run(run.inputs) for run in bundle.vectors.runs]


def memory_peak(graph: CapturedGraph) -> int:
    """Return the largest sum of the sizes of values that are alive at once, inputs included.

    Views count as arrays of their own.
    """
    last: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        last[node] = position
        for ref in node.refs:
            last[ref.node] = position
    for ref in [*graph.outputs, *(write.value for write in graph.writes)]:
        last[ref.node] = len(graph.nodes)
    ends: dict[int, list[Node]] = {}
    for node, position in last.items():
        ends.setdefault(position, []).append(node)
    size = peak = 0
    for position, node in enumerate(graph.nodes):
        size += _bytes(node)
        peak = max(peak, size)
        size -= sum(_bytes(each) for each in ends.get(position, ()))
    return peak


def _bytes(node: Node) -> int:
    return sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in node.avals)


def physical_memory() -> int:
    """Return the bytes of this machine's memory; 0 if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return 0


def _target_verdict(bundle: Bundle, name: str, target: Target | None) -> Verdict:
    if name not in bundle.targets:
        return Verdict(
            name, "failed", None, 0.0, f"the bundle has {', '.join(bundle.targets) or 'no target'}"
        )
    try:
        target = target or target_named(name)
    except TenonError as error:
        return Verdict(name, "not run", None, 0.0, str(error))
    reason = target.unavailable()
    if reason is not None:
        return Verdict(name, "not run", None, 0.0, reason)
    found = target
    return _judged(name, bundle, lambda: _target_results(bundle, name, found))


def _target_results(bundle: Bundle, name: str, target: Target) -> list[list[np.ndarray]]:
    """Return what a copy of the target's files in a temporary folder computes."""
    with tempfile.TemporaryDirectory(prefix="tenon-verify-") as temporary:
        own = Path(temporary) / name
        try:
            own.mkdir()
            for file in bundle.targets[name]:
                place = Path(temporary) / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle.folder / file, place)
        except OSError as error:
            raise BundleError(
                f"its files cannot be copied to {temporary}: {error.strerror or error}. Set TMPDIR to a "
                "folder with more room."
            ) from error
        return target.run(own, [run.inputs for run in bundle.vectors.runs])


def _judged(name: str, bundle: Bundle, run: Callable[[], list[list[np.ndarray]]]) -> Verdict:
    """Return the verdict on the results of ``run``; any exception is a failure, reported by its text."""
    start = time.perf_counter()
    try:
        excess = bundle.vectors.excess(run())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Verdict(name, "failed", None, time.perf_counter() - start, reason)
    seconds = time.perf_counter() - start
    if excess > 1:
        return Verdict(name, "failed", excess, seconds, f"off by {excess:.3g} times the tolerance")
    return Verdict(name, "passed", excess, seconds)
