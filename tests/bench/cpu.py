"""tenon on a CPU against PyTorch, eager and compiled, with the floor that the hardware sets: ``python tests/bench/cpu.py``.

Rows ``a`` to ``h`` are training steps, inference (``g...``) and an optimizer; ``b16`` and ``d16`` run in bfloat16,
``x-...`` are single ops and parts, ``latency`` is a compilation. Eager is compared with PyTorch's eager mode;
compiled with the best of all that PyTorch offers (``torch.compile``, with and without compiled optimizer, frozen
weights, channels last, and eager); JAX joins where it is installed. Each library has a process of its own and they
take turns; the first losses must agree. A ratio is the other's time over tenon's: above 1, tenon is faster.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from importlib.util import find_spec

import report
from rows import ROWS, chosen
from turns import Worker
from variants import serve


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="a,b,...", help=f"rows, or beginnings of their names: {', '.join(ROWS)}"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--block", type=float, default=0.3, help="seconds of a block of steps")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count processor time, for a busy machine; 1 thread"
    )
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: to see that all of it runs")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    given = parser.parse_args()
    try:
        given.rows = chosen(given.only)
    except KeyError as error:
        parser.error(f"no row begins with {error.args[0]}; there are {', '.join(ROWS)}")
    if given.cpu_time:
        given.threads = 1  # with more, the time that a pool spins while it waits would count too
    return given


class Bench:
    """The workers of one number of threads, what they run on, and how they take turns."""

    def __init__(self, given, threads):
        self.given = given
        self.threads = threads
        libraries = ["tenon", "torch"]
        if not given.eager and find_spec("jax") is not None:
            libraries.append("jax")
        self.workers = {name: Worker(serve, name, threads, given.cpu_time) for name in libraries}
        self.versions = {name: worker.version for name, worker in self.workers.items()}
        found = [self.workers[name].ask("rates") for name in ("tenon", "torch")]
        self.rates = {
            what: max(rates.get(what, 0) for rates in found) for what in ("gemm", "gemm_bf16", "copy")
        }

    def close(self):
        for worker in self.workers.values():
            worker.close()

    def row(self, row):
        """Everything measured of one row."""
        sizes = row.tiny_sizes() if self.given.tiny else dict(row.sizes)
        ways, contestants, losses = {}, [], {}
        for library, way in row.contestants(self.given.eager):
            if library not in self.workers:
                ways[f"{library} {way}"] = {"not_built": f"{library} is not installed"}
                continue
            key = f"{library} {way}"
            ways[key] = self.workers[library].ask("build", key, row.program, row.mode, way, row.half, sizes)
            if "losses" in ways[key]:
                losses[key] = ways[key]["losses"]
        self.compare_losses(row, ways, losses)
        for key in losses:
            if "losses" in ways[key] and "differ" not in ways[key]:
                worker = self.workers[key.split()[0]]
                seconds = worker.ask("time", key, 1)
                contestants.append((key, worker, max(1, round(self.given.block / max(seconds, 1e-9)))))
        times = {key: [] for key, _, _ in contestants}
        for turn in range(self.given.rounds if len(contestants) > 1 else 0):
            start = turn % len(contestants)
            for key, worker, count in contestants[start:] + contestants[:start]:
                times[key].append(worker.ask("time", key, count) / row.repeats)
        for key, seconds in times.items():
            if seconds:
                ways[key]["seconds"] = seconds
        for worker in self.workers.values():
            worker.ask("forget")
        found = {"row": row.key, "what": row.what(), "threads": self.threads, "bars": row.bars, "ways": ways}
        found["floor"] = self.floor(row, sizes)
        found["eager"] = versus(times, row.eager_pair())
        found["compiled"] = versus(times, row.compiled_pair())
        found["jax"] = versus(times, row.jax_pair())
        return found

    def compare_losses(self, row, ways, losses):
        """Mark the ways whose first losses are not those of PyTorch's eager mode."""
        right = losses.get("torch eager")
        for key, mine in losses.items():
            if right is not None and not agree(mine, right, row.tolerance, "eager" not in key):
                ways[key]["differ"] = f"the first losses are {mine}, PyTorch's are {right}"

    def floor(self, row, sizes):
        """Seconds that products and copies take at least, at the measured rates."""
        if not row.has_floor:
            return None
        work = self.workers["torch"].ask("work", row.program, row.mode, sizes)
        rate = self.rates["gemm_bf16" if row.half else "gemm"]
        return work | {"gemm_s": work["flops"] / rate, "copy_s": work["bytes"] / self.rates["copy"]}


def agree(mine, right, tolerance, compiled):
    """Whether two runs train alike.

    The first step of Adam is the sign of the gradient: where that is nearly zero, other roundings of a fused program
    move a weight the other way. So the first loss of a compiled program must agree, its later ones within 5 %.
    """
    allowed = [tolerance] + [max(tolerance, 0.05) if compiled else tolerance] * (len(mine) - 1)
    return all(
        abs(a - b) <= most * max(abs(a), abs(b), 1e-2)
        for a, b, most in zip(mine, right, allowed, strict=True)
    )


def versus(times, pair):
    """Min and median of the best other's time over our best, round by round; None where a side is missing."""
    mine, others = ([key for key in side if times.get(key)] for side in pair)
    if not mine or not others:
        return None
    ours, other = (min(side, key=lambda key: min(times[key])) for side in (mine, others))
    ratios = [b / a for a, b in zip(times[ours], times[other], strict=True)]
    return {
        "tenon": ours,
        "tenon_s": min(times[ours]),
        "other_s": min(times[other]),
        "other": other,
        "min": min(times[other]) / min(times[ours]),
        "median": statistics.median(ratios),
    }


def latency(given):
    """Seconds of the first four compiled steps of row d, when a program runs at the latest, in a fresh process: with
    an empty cache on disk, then a warm one."""
    row = ROWS["d"]
    sizes = row.tiny_sizes() if given.tiny else dict(row.sizes)
    found = {}
    for library in ("tenon", "torch"):
        with tempfile.TemporaryDirectory() as folder:
            for state in ("cold", "warm"):
                places = dict.fromkeys(("TENON_CACHE", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"), folder)
                worker = Worker(serve, library, given.threads, environment=places)
                built = worker.ask("build", "first", row.program, row.mode, "compiled", False, sizes)
                worker.close()
                found[f"{library} {state}"] = built.get("first_calls_s", built)
    return found


def main():
    given = arguments()
    about = {
        "threads": given.threads,
        "clock": "processor time" if given.cpu_time else "wall time",
        "rounds": given.rounds,
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    results, groups = [], {}
    for row in given.rows:
        if row.key != "latency":
            groups.setdefault(min(row.threads, given.threads), []).append(row)
    for threads, members in groups.items():
        bench = Bench(given, threads)
        about |= bench.versions
        about[f"rates on {threads} threads"] = bench.rates
        for row in members:
            print(f"{row.key}: {row.what()}", file=sys.stderr, flush=True)
            results.append(bench.row(row))
            report.line(results[-1])
        bench.close()
    first = latency(given) if any(row.key == "latency" for row in given.rows) and not given.eager else None
    about["load_after"] = round(os.getloadavg()[0], 2)
    report.show(about, results, first)
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"about": about, "results": results, "latency": first}, file, indent=1)
    if any("differ" in way for found in results for way in found["ways"].values()):
        sys.exit("some ways train differently from PyTorch: see above; their times were not taken.")


if __name__ == "__main__":
    main()
