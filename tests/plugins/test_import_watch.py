"""A plugin that blocks while it is imported is named, and the first Ctrl-C ends the program."""

import os
import re
import signal
import subprocess
import sys

import pytest

PROGRAM = """
from tenon.plugins import import_watch
import_watch.LIMIT = 0.4
from tenon.plugins.manager import host
print(len(host().plugins) > 5)
"""


@pytest.mark.slow
def test_a_plugin_that_blocks_on_import_is_named(install):
    files = {"tenon_blocking.py": "import time\ntime.sleep(300)\n"}
    root = install("tenon-blocking", {"blocking": "tenon_blocking"}, files, version="1.5")
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stderr=subprocess.PIPE, text=True
    )
    line = process.stderr.readline()
    assert re.search(r"still importing plugin 'blocking' \(tenon-blocking 1.5\) after 0.4 s.*=blocking", line)
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
    assert process.returncode != 0

    environment["TENON_DISABLE_PLUGINS"] = "blocking"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "True\n" and "importing" not in done.stderr
