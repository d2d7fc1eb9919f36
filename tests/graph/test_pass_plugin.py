"""A plugin's pass, written as the guide prints it and found through a real entry point."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "compile.md"
FILES = dict(re.findall(r"^```\w+\n# (tenon_log1p/\S+)\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S))

SCRIPT = """
import tenon

@tenon.compile(fullgraph=True)
def function(x):
    return (x + 1).log()

for _ in range(4):
    y = function(tenon.full((3,), 2.0**-40))
graph = str(function.programs[0].graph)
print("log1p" in graph, y[0].item())
"""


def installed(tmp_path):
    """A distribution as pip leaves it."""
    info = tmp_path / "tenon_log1p-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tenon-log1p\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[tenon]\nlog1p = tenon_log1p.plugin\n")
    (tmp_path / "tenon_log1p").mkdir()
    (tmp_path / "tenon_log1p" / "__init__.py").write_text("")
    for path, text in FILES.items():
        (tmp_path / path).write_text(text)
    return {"PYTHONPATH": str(tmp_path)}


def run(environment, **more):
    given = os.environ | environment | more
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=given, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found, value = done.stdout.split()
    return found == "True", float(value)


@pytest.mark.slow
def test_the_pass_of_the_guide_changes_what_is_compiled(tmp_path):
    environment = installed(tmp_path)

    assert set(FILES) == {"tenon_log1p/plugin.py", "tenon_log1p/passes.py"}
    assert run(environment) == (True, 2.0**-40)
    assert run(environment, TENON_DISABLE_PLUGINS="log1p") == (False, 0.0)


def test_a_pass_that_breaks_the_graph_is_named(tmp_path):
    environment = installed(tmp_path)
    passes = tmp_path / "tenon_log1p" / "passes.py"
    passes.write_text("def log_of_one_more(graph):\n    graph.nodes.reverse()\n")
    given = os.environ | environment
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=given, timeout=300
    )

    assert "GraphError" in done.stderr
    assert "after the pass 'log_of_one_more'" in done.stderr
