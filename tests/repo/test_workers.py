"""The two worker processes that run these tests."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
#: One worker ends early; the other has done a file and begun a second when it crashes.
FILES = {
    "test_quick.py": "def test_one(): pass",
    "test_done.py": "def test_one(): pass",
    "test_crash.py": "import os\ndef test_one(): pass\ndef test_crash(): os.abort()\ndef test_rest(): pass",
    "test_last.py": "def test_one(): pass",
}


@pytest.mark.slow
def test_a_crashed_worker_is_one_failure_and_the_run_ends(tmp_path):
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, timeout=300, cwd=tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 5 passed" in done.stdout, done.stdout
    # The summary may say it again.
    report = r"^worker 'gw\d' crashed while running 'test_crash.py::test_crash'$"
    assert len(re.findall(report, done.stdout, re.MULTILINE)) == 1, done.stdout
