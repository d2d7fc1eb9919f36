"""Which tests run when: as CONTRIBUTING states, and CI runs all that the default run leaves out."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import _pytest.assertion
import pytest

TOP = Path(__file__).parents[2]
TESTS = """
import pytest
def test_quick(): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.manual
def test_manual(): pass
@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.manual)])
def test_both(n): pass
@pytest.mark.together
@pytest.mark.parametrize("n", [3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_cases(n): pass
"""
CHOICES = {
    (".",): {"test_quick", "test_cases[2 cases]"},
    ("test_all.py",): {"test_quick", "test_slow", "test_both[1]", *(f"test_cases[{n}]" for n in (3, 4, 5))},
    ("-k", "quick or cases"): {"test_quick", "test_cases[3]", "test_cases[4]"},
    ("-m", "slow"): {"test_slow", "test_both[1]", "test_cases[1 cases-slow]"},
    ("-m", "manual", "test_all.py"): {"test_manual", "test_both[2]"},
}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", CHOICES, ids=" ".join)
def test_a_run_takes_what_it_is_for(arguments, tmp_path):
    shutil.copy(TOP / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_all.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
        *arguments,
    ]

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert set(re.findall(r"::(.+)", done.stdout)) == CHOICES[arguments], done.stdout + done.stderr


TOGETHER = """
import pytest
@pytest.mark.together
@pytest.mark.parametrize("letter", "ab")
@pytest.mark.parametrize(("n", "square"), [(1, 1), (2, 5), (3, 9), (4, 0)], ids=lambda n: f"<{n}>")
def test_squares(n, square, letter):
    if letter == "b":
        pytest.skip("one letter is enough")
    assert n * n == square
"""


MORE = """
import numpy as np
import pytest
pytestmark = pytest.mark.together
@pytest.fixture
def rng(): return np.random.default_rng(0)
@pytest.mark.parametrize("n", [1, 2])
def test_each_draws_the_same(rng, n): assert rng.integers(1000) == np.random.default_rng(0).integers(1000)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_partly(n):
    if n == 3: pytest.skip("no three")
@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.skipif(n == 2, reason="two")) for n in (1, 2)])
def test_marked(n): assert n != 1
@pytest.mark.parametrize("n", range(30))
def test_many(n): assert n == 0
"""


def test_cases_that_run_together_all_run_share_no_draws_no_marks_and_hide_no_skip(tmp_path):
    shutil.copy(TOP / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_all.py").write_text(TOGETHER)
    (tmp_path / "test_more.py").write_text(MORE)
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-q", "-rs", "."]

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert "3 failed, 2 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "2 of 4 cases failed" in done.stdout, done.stdout
    named = {"<2>-<5>-a", "<4>-<0>-a", *(str(n) for n in range(1, 16))}
    assert set(re.findall(r"Case '(\S+)'", done.stdout)) == named, done.stdout
    assert "SKIPPED test_more.py::test_partly[3 cases]: 1 of 3 cases: no three" in done.stdout, done.stdout
    also = ", ".join(map(str, range(16, 30)))
    assert f"29 of 30 cases failed, also {also}" in done.stdout, done.stdout


LIFECYCLE = """
import pytest
@pytest.fixture
def bad_setup(): raise ValueError("no setup")
@pytest.fixture
def bad_teardown():
    yield
    raise ValueError("no teardown")
@pytest.fixture
def skipped(): pytest.skip("not here")
def test_passes(): pass
def test_setup(bad_setup): pass
def test_teardown(bad_teardown): pass
def test_skipped(skipped): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("durations", [[], ["--durations=9", "-vv"]])
def test_workers_report_every_setup_and_teardown_that_shows(tmp_path, durations):
    shutil.copy(TOP / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_all.py").write_text(LIFECYCLE)
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", *durations, "."]

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert "2 passed, 1 skipped, 2 errors" in done.stdout, done.stdout + done.stderr
    assert "ValueError: no setup" in done.stdout and "ValueError: no teardown" in done.stdout
    assert len(re.findall(r"s (?:setup|call|teardown) ", done.stdout)) == (9 if durations else 0), done.stdout


class Worker:
    """The first of two workers, on one folder."""

    workerinput: ClassVar = {"workerid": "gw0"}

    def __init__(self, config, folder):
        self._config, self.args = config, [str(folder)]

    def __getattr__(self, name):
        return getattr(self._config, name)


@pytest.mark.parametrize("renamed", [False, True], ids=["pytest as it is", "private names renamed"])
def test_workers_share_what_compiles_and_leave_the_rest_to_pytest(
    renamed, pytestconfig, tmp_path, monkeypatch
):
    (tmp_path / "test_broken.py").write_text("def")
    (tmp_path / "test_good.py").write_text("def test(): assert True")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    if renamed:
        monkeypatch.setattr(_pytest.assertion, "rewrite", SimpleNamespace())
    conftest = pytestconfig.pluginmanager.getplugin(str(TOP / "tests" / "conftest.py"))

    conftest.pytest_collection(SimpleNamespace(config=Worker(pytestconfig, tmp_path)))

    compiled = [path.name.split(".")[0] for path in tmp_path.rglob("*.pyc")]
    assert compiled == ([] if renamed else ["test_good"])


def test_ci_runs_the_readmes_command_and_then_what_that_leaves_out():
    (command,) = re.findall(
        r"^python3 -m venv .*&& pytest$", (TOP / "README.md").read_text("utf-8"), re.MULTILINE
    )
    lines = (TOP / ".ci" / "run").read_text("utf-8").splitlines()

    assert lines.index(command) < lines.index("pytest -m slow")


REPORT = "import sys, pytest; pytest.main(sys.argv[1:]); print(*sorted({name.split('.')[0] for name in sys.modules}))"


@pytest.mark.slow
def test_a_file_of_one_test_loads_no_compiler_no_browser_and_no_other_library(tmp_path):
    shutil.copy(TOP / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_one.py").write_text("def test_one(): pass")
    command = [sys.executable, "-c", REPORT, "-n", "0", "-p", "no:cacheprovider", "-q", "test_one.py"]

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    loaded = set(done.stdout.splitlines()[-1].split())
    assert "1 passed" in done.stdout and "tenon" in loaded, done.stdout + done.stderr
    heavy = {
        "torch",
        "numba",
        "llvmlite",
        "mpi4py",
        "hypothesis",
        "tensorboard",
        "tensorboardX",
        "scipy",
        "PIL",
    }
    assert not loaded & heavy
    assert not {name for name in loaded if name.startswith("tenon_")}
