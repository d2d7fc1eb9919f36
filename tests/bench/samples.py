"""Where the processor's time of an eager row goes: ``python tests/bench/samples.py d g-d-1``.

Every millisecond of the process's time, on one thread, a signal notes the innermost function that runs. What
a library does in C counts for the function of tenon that called it; the parts are packages of tenon.
"""

import argparse
import collections
import json
import signal
import time
from pathlib import Path

import variants
from rich.console import Console
from rich.table import Table
from rows import ROWS
from turns import import_library

#: Functions of a table.
SHOWN = 12
INTERVAL = 0.001
#: The first that a file's path contains.
PARTS = {
    "tenon_cpu/onednn/": "oneDNN",
    "tenon_cpu/": "kernels of the backend",
    "optim": "optimizer",
    "tenon/engine/": "dispatch, tape, sweep",
    "tenon/tensors/": "tensors and their methods",
    "tenon/ops/": "rules of ops, NumPy in them",
    "tenon/nn/": "layers and functions",
    "tenon/": "layers and functions",
}


def main():
    """Print a table for each row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="+", choices=list(ROWS), metavar="ROW", help=" ".join(ROWS))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: to see that it runs")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    given = parser.parse_args()
    T = import_library("tenon", 1)
    found = {}
    for name in given.rows:
        row = ROWS[name]
        program = variants.ALL[row.program](T, **(row.tiny_sizes() if given.tiny else row.sizes))
        step = variants.WAYS[row.mode](T, program, "eager", row.half)
        for _ in range(variants.STEPS):
            step()
        found[name] = sampled(step, given.seconds)
        print_table(f"{name}: {row.what()}, {found[name]['ms']:.3g} ms of processor time", found[name])
    if given.json:
        with open(given.json, "w") as file:
            json.dump(found, file, indent=1)


def sampled(step, seconds):
    """Milliseconds a step, and the shares of parts and of functions."""
    parts, functions = collections.Counter(), collections.Counter()

    def note(number, frame):
        name = frame.f_code.co_filename
        parts[next((part for path, part in PARTS.items() if path in name), "elsewhere")] += 1
        functions[f"{Path(name).parent.name}/{Path(name).name}: {frame.f_code.co_name}"] += 1

    before = signal.signal(signal.SIGPROF, note)
    count, begin = 0, time.process_time()
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        while time.process_time() - begin < seconds:
            step()
            count += 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    ms, all_of_them = (time.process_time() - begin) / count * 1e3, max(sum(parts.values()), 1)
    return {
        "ms": ms,
        "parts": {name: n / all_of_them for name, n in parts.most_common()},
        "functions": {name: n / all_of_them for name, n in functions.most_common()},
    }


def print_table(title, found):
    """Shares of parts, then of functions."""
    table = Table("%", "ms", "where", title=title, title_justify="left")
    for each in (found["parts"], dict(list(found["functions"].items())[:SHOWN])):
        for name, share in each.items():
            table.add_row(f"{100 * share:.1f}", f"{share * found['ms']:.3g}", name)
        table.add_section()
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
