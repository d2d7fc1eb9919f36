"""Write the table of ops by export target: ``python docs/build_targets.py``.

Each target is asked for the form of every sample of every op (``tenon.testing.samples``), in float32. The
table is ``docs/export-ops.md``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tenon
from tenon import ops
from tenon.errors import CaptureError, LoweringError
from tenon.export import capture
from tenon.extend import CapturedGraph
from tenon.testing import samples
from tenon_target_c.target import CTarget
from tenon_target_numpy.target import NumpyTarget
from tenon_target_onnx.target import OnnxTarget
from tenon_target_stablehlo.target import StableHloTarget

OUT = Path(__file__).parent / "export-ops.md"
TARGETS = (CTarget, NumpyTarget, OnnxTarget, StableHloTarget)

HEAD = """# Ops by export target

How many of the samples of every op each target can export, in float32 and the dtypes that samples fix:
all (✓), some, or none. Composite ops that a target does not support are decomposed. If an op cannot be
exported, the error names it, its module and its line before any file is written. In C, 8-bit weights must be
constants; here they are arguments. `nonzero` cannot be captured, as its result's shape depends on values.

Written by `python docs/build_targets.py`.

"""


def captured(sample: samples.Sample) -> CapturedGraph | None:
    """Return the graph of a sample's call; None if it cannot be captured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        given = sample.arrays(np.float32)
    places = [i for i, a in enumerate(given) if isinstance(a, np.ndarray)]

    def call(*xs: tenon.Tensor) -> object:
        args = list(given)
        for place, x in zip(places, xs, strict=True):
            args[place] = x
        return getattr(ops, sample.op)(*args, **sample.attrs)

    try:
        return capture(call, *(tenon.tensor(np.array(given[i], order="C")) for i in places))
    except CaptureError:
        return None


def writes(target: Callable[[], object], graph: CapturedGraph | None) -> bool:
    """Whether a target has a form of all of ``graph``."""
    if graph is None:
        return False
    try:
        target().lowered(graph)  # type: ignore[attr-defined]
    except LoweringError:
        return False
    return True


def table() -> dict[str, list[str]]:
    """Return, for each op, what each target writes of it."""
    rows = {}
    for name in sorted({s.op for s in samples.everything()}):
        graphs = [captured(s) for s in samples.of(name)]
        rows[name] = []
        for target in TARGETS:
            count = sum(writes(target, g) for g in graphs)
            rows[name].append("✓" if count == len(graphs) else f"{count} of {len(graphs)}" if count else "")
    return rows


def text(rows: dict[str, list[str]]) -> str:
    """Return the page."""
    names = [t.name for t in TARGETS]
    lines = [f"| op | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| `{name}` | {' | '.join(cells)} |" for name, cells in rows.items()]
    totals = [sum(bool(cells[i]) for cells in rows.values()) for i in range(len(names))]
    lines += [f"| {len(rows)} ops | {' | '.join(map(str, totals))} |"]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    OUT.write_text(text(table()))
    sys.exit()
