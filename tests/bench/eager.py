"""Time training steps of tenon and PyTorch side by side: ``python tests/bench/eager.py``.

Each library has a process of its own, with the same number of threads, so that neither the waiting threads nor the
allocator of one disturbs the other. Both run the same program on the same numbers (the first losses must agree)
in turns: a round is a block of steps of the one, then of the other, in changing order, while the other process
sleeps. A ratio is PyTorch's time over tenon's: above 1, tenon is faster. ``min`` compares the best blocks of
both, and says most about the code; ``median`` is the median of the rounds' ratios, and says what to expect.
"""

import argparse
import json
import os
import platform
import statistics
import sys

import programs
from turns import Worker, clock_of, import_library, received, timed

#: The least that a ratio may be, where a bar has been set.
BARS = {"note": 2.0, "mlp": 0.7, "gpt": 0.7, "cnn": 0.3}
#: Threads of the one program whose arrays are too small for two.
THREADS = {"note": 1}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "only", nargs="*", metavar="program", help=f"of {', '.join(programs.PROGRAMS)}; all if none"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--block", type=float, default=0.3, help="seconds of a block of steps")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count processor time, for a busy machine; 1 thread"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: to see that all of it runs")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    given = parser.parse_args()
    unknown = [name for name in given.only if name not in programs.PROGRAMS]
    if unknown:
        parser.error(f"no program called {', '.join(unknown)}; there are {', '.join(programs.PROGRAMS)}")
    if given.cpu_time:
        given.threads = 1  # with more, the time that a pool spins while it waits would count too
    return given


def serve(library, threads, cpu_time, pipe):
    """In the child: build what is asked for, and answer with losses and times."""
    T, clock = import_library(library, threads), clock_of(cpu_time)
    pipe.send(T.__version__)
    step = None
    while order := received(pipe):
        what, *rest = order
        if what == "build":
            name, sizes = rest
            step = programs.PROGRAMS[name](T, **sizes).step
            pipe.send([step().item() for _ in range(4)])
        else:
            pipe.send(timed(step, rest[0], clock))


def agree(name, losses):
    """SystemExit where the libraries train differently."""
    pairs = list(zip(*losses, strict=True))
    for a, b in pairs:
        if not abs(a - b) <= 1e-4 * max(abs(a), abs(b), 1e-2):
            sys.exit(f"{name}: the losses differ, so the times mean nothing: {pairs} (tenon, torch)")
    return pairs


def compare(name, given, workers):
    """One program: its agreement, then rounds of blocks in changing order."""
    sizes = programs.TINY.get(name, {}) if given.tiny else {}
    losses = agree(name, [worker.ask("build", name, sizes) for worker in workers])
    counts = [max(1, round(given.block / worker.ask("time", 1))) for worker in workers]
    times = [[], []]
    for turn in range(given.rounds):
        for i in (0, 1) if turn % 2 else (1, 0):
            times[i].append(workers[i].ask("time", counts[i]))
    ours, theirs = times
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    return {
        "program": name,
        "what": programs.PROGRAMS[name].__doc__,
        "tenon_ms": {"min": min(ours) * 1e3, "median": statistics.median(ours) * 1e3},
        "torch_ms": {"min": min(theirs) * 1e3, "median": statistics.median(theirs) * 1e3},
        "ratio": {"min": min(theirs) / min(ours), "median": statistics.median(ratios)},
        "bar": BARS.get(name),
        "first_losses": losses,
    }


def row(found):
    """One line of the table."""
    bar = "" if found["bar"] is None else f"{found['bar']:.1f}"
    ours, theirs, ratio = found["tenon_ms"], found["torch_ms"], found["ratio"]
    return (
        f"{found['program']:8}{ours['min']:10.3f}{ours['median']:10.3f}{theirs['min']:10.3f}{theirs['median']:10.3f}"
        f"{ratio['min']:9.2f}{ratio['median']:9.2f}{bar:>6}"
    )


def main():
    given = arguments()
    names = [name for name in programs.PROGRAMS if not given.only or name in given.only]
    groups = {}
    for name in names:
        groups.setdefault(min(THREADS.get(name, given.threads), given.threads), []).append(name)
    about = {
        "threads": given.threads,
        "clock": "processor time" if given.cpu_time else "wall time",
        "rounds": given.rounds,
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }
    results = []
    for threads, members in groups.items():
        workers = [Worker(serve, library, threads, given.cpu_time) for library in ("tenon", "torch")]
        if not results:
            about |= {"tenon": workers[0].version, "torch": workers[1].version}
            print(", ".join(f"{key} {value}" for key, value in about.items()))
            print(f"{'':8}{'tenon ms':>20}{'torch ms':>20}{'torch / tenon':>18}")
            print(
                f"{'program':8}{'min':>10}{'median':>10}{'min':>10}{'median':>10}{'min':>9}{'median':>9}{'bar':>6}"
            )
        for name in members:
            results.append(compare(name, given, workers))
            print(row(results[-1]), flush=True)
        for worker in workers:
            worker.close()
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"about": about, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
