"""``compute``: run a graph as the target numpy writes it, in this process."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from tenon_target_numpy import library, templates
from tenon_target_numpy.program import Program
from tenon_target_numpy.source import compute_text
from tenon_target_numpy.target import NumpyTarget

FOLDER = Path(templates.__file__).parent


def functions():
    """Return the functions of all templates by name."""
    found = {}
    for path in FOLDER.glob("*.py"):
        if path.name not in ("__init__.py", library.FRAME):
            module = importlib.import_module(f"{templates.__name__}.{path.stem}")
            found |= vars(module)
    return found


@pytest.fixture(scope="session")
def compute():
    known = functions()
    target = NumpyTarget()

    def run(graph, arrays, numbers=()):
        """Return the outputs of ``graph``."""
        program = Program(target.lowered(graph)).build()
        names = dict(known)
        exec(
            compile(f"from __future__ import annotations\n{compute_text(program)}", "runner.py", "exec"),
            names,
        )
        with np.errstate(all="ignore"):
            outputs, _ = names["compute"](program.arrays, dict(numbers), *arrays)
        return [np.asarray(out) for out in outputs]

    return run
