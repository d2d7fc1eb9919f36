"""Run the command of ``tenon`` that the argument names with each list of arguments that standard input holds, in a process of its own.

The processes are forked from this one, which has imported what they need, so that many take little time.
Written as JSON: for each, its exit status, its output, its errors, and whether there is a folder of runs then.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

import tenon
from tenon.cli import main

importlib.import_module(
    {"train": "tenon.training.command", "compress": "tenon.compress.command"}[sys.argv[1]]
)
tenon.nn.BatchNorm1d(1)  # loads the plugins, and the kernels of the backend
gc.freeze()  # what exists now is not collected, and so its pages are not copied, when each process ends


def run(arguments):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ["tenon", *sys.argv[1:], *arguments]
            main()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return status, *texts, Path("runs").exists()


print(json.dumps([run(arguments) for arguments in json.load(sys.stdin)]))
