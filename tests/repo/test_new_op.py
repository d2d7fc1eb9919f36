"""An op is one class: its class and its sample, as in CONTRIBUTING, are all that a new op needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"


def run_tests_with(module, *arguments):
    """Run pytest in a process in which ``module``, a file of ``programs/``, is imported before anything else."""
    path = os.pathsep.join(filter(None, [str(PROGRAMS), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", module]
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_new_op_has_methods_functions_gradients_fusion_docs_and_tests_at_once():
    done = run_tests_with(
        "gaussian_op", str(PROGRAMS / "new_op.py"), "tests/core/test_samples.py", "-k", "gaussian or new_op"
    )

    assert done.returncode == 0, done.stdout + done.stderr
