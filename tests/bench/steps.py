"""Where the time of a compiled program goes, step by step: ``python tests/bench/steps.py d g-d-1``.

Each line of the emitted program is timed by a trace function, in runs of its own; what the quickest line takes
is taken for what tracing adds, and left out. Products go by their shapes,
everything else by the ops of its kernel.
"""

import argparse
import collections
import json
import linecache
import re
import sys
import time

import variants
from rich.console import Console
from rich.table import Table
from rows import ROWS
from turns import import_library

#: Lines of a table.
SHOWN = 20
#: Ops that multiply matrices, alone or with what was folded into them.
PRODUCTS = ("matmul", "linear", "addmm", "conv", "convolution", "epilogue")


def main():
    """Print a table for each row."""
    given = arguments()
    T = import_library("tenon", given.threads)
    found = {}
    for name in given.rows:
        row = ROWS[name]
        step = variants.WAYS[row.mode](
            T,
            variants.ALL[row.program](T, **(row.tiny_sizes() if given.tiny else row.sizes)),
            "compiled",
            row.half,
        )
        for _ in range(variants.STEPS + given.runs):
            step()
        found[name] = profile(step, given.runs)
        print_table(name, row.what(), found[name])
    if given.json:
        with open(given.json, "w") as file:
            json.dump(found, file, indent=1)


def arguments():
    """What to profile, and how long."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="+", choices=list(ROWS), metavar="ROW", help=" ".join(ROWS))
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: to see that it runs")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    return parser.parse_args()


def profile(step, runs):
    """Milliseconds of a whole run, and of each kind of step: least of ``runs``, with the number of steps."""
    clock = time.perf_counter
    whole = []
    for _ in range(runs):
        begin = clock()
        step()
        whole.append(clock() - begin)
    lines = collections.defaultdict(list)
    for _ in range(runs):
        tracer = Tracer(clock)
        sys.settrace(tracer)
        try:
            step()
        finally:
            sys.settrace(None)
        for line, seconds in tracer.spent.items():
            lines[line].append(seconds)
    least = {line: min(seconds) for line, seconds in lines.items()}
    added = min(least.values(), default=0.0)
    kinds = collections.defaultdict(lambda: [0, 0.0])
    for (_, _, text), seconds in least.items():
        kinds[text][0] += 1
        kinds[text][1] += (seconds - added) * 1e3
    return {
        "ms": min(whole) * 1e3,
        "steps": sorted(([k, *v] for k, v in kinds.items()), key=lambda s: -s[2]),
    }


class Tracer:
    """A trace function that adds up the time between one line of a program and the next."""

    def __init__(self, clock):
        self.clock, self.spent = clock, {}

    def __call__(self, frame, event, argument):
        """Follow the functions that are programs, and no others."""
        name = frame.f_code.co_filename
        if not name.startswith("<tenon program"):
            return None
        frame.f_trace_lines = True
        self.last = None
        return self.line

    def line(self, frame, event, argument):
        """One line ends, perhaps another begins."""
        now = self.clock()
        if self.last is not None:
            place, begin = self.last
            self.spent[place] = self.spent.get(place, 0.0) + now - begin
        name, number = frame.f_code.co_filename, frame.f_lineno
        self.last = None if event == "return" else ((name, number, what(name, number)), self.clock())
        return self.line


def what(name, number):
    """The ops of a line of a program, from its comment; of products also the shapes."""
    comment = linecache.getline(name, number).partition("# ")[2].strip()
    if together := re.match(r"the (\d+) steps above", comment):
        return " ".join(dict.fromkeys(what(name, number - 1 - i) for i in range(int(together[1]))))
    comment = re.sub(r"^\w+\(\): ", "", comment)  # a step of several that run as one
    ops, _, shapes = comment.partition(": ")
    ops = ops.split(" [")[0]
    return f"{ops} {shapes}" if ops in PRODUCTS else ops or "numbers"


def print_table(name, words, found):
    """The steps that take the most time."""
    table = Table(
        "ms", "%", "calls", "step", title=f"{name}: {words}, {found['ms']:.3g} ms", title_justify="left"
    )
    for text, calls, ms in found["steps"][:SHOWN]:
        table.add_row(f"{ms:.3f}", f"{100 * ms / found['ms']:.1f}", str(calls), text)
    rest = found["steps"][SHOWN:]
    if rest:
        table.add_row(f"{sum(s[2] for s in rest):.3f}", "", str(sum(s[1] for s in rest)), "all others")
    between = found["ms"] - sum(s[2] for s in found["steps"])
    table.add_row(
        f"{between:.3f}", f"{100 * between / found['ms']:.1f}", "", "between steps, guards, outputs"
    )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
