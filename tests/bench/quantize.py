"""Time dynamic int8 layers beside float32 and PyTorch's: ``python tests/bench/quantize.py``.

Linear 1024 x 1024 at several batch sizes: tenon in float32, tenon after ``tenon.quantize(..., "int8-dynamic")``,
the same compiled, and PyTorch after ``torch.ao.quantization.quantize_dynamic``. Each library has a process of its
own and they take turns (see ``README.md``). With ``--cnn`` a small image network instead: float32 and static int8;
with ``--lstm`` an LSTM over 32 steps.
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import warnings

import numpy as np
from turns import Worker, clock_of, import_library, received, timed

#: The least that a ratio may be: float32 over int8, PyTorch's int8 over tenon's.
BARS = {1: (1.5, 1.1), 32: (2.5, 1.1), 128: (3.0, 1.1)}
CNN_BAR = 1.5


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--batches", default="1,32,128")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--block", type=float, default=0.1, help="seconds of a block")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count processor time, for a busy machine; 1 thread"
    )
    parser.add_argument("--cnn", action="store_true", help="a small image network, static int8")
    parser.add_argument("--lstm", action="store_true", help="an LSTM of width --size over 32 steps")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    given = parser.parse_args()
    if given.cpu_time:
        given.threads = 1  # with more, the time that a pool spins while it waits would count too
    return given


def dynamic(library, name, size, x):
    """The ways to run the layer ``name``."""
    if library == "torch":
        import torch

        kind = getattr(torch.nn, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small = torch.ao.quantization.quantize_dynamic(
                torch.nn.Sequential(kind(size, size)), {kind}, dtype=torch.qint8
            )
        return {"torch int8": (small, torch.from_numpy(x))}
    import tenon

    model = tenon.nn.Sequential(getattr(tenon.nn, name)(size, size))
    with contextlib.redirect_stdout(io.StringIO()):  # its receipt has sizes only
        small = tenon.quantize(model, "int8-dynamic").model
    x = tenon.from_numpy(x)
    return {"float32": (model, x), "int8": (small, x), "compiled": (tenon.compile(small), x)}


def linear(library, size, batch):
    """A layer of ``size`` x ``size`` for one batch."""
    x = np.random.default_rng(0).standard_normal((batch, size)).astype(np.float32)
    return dynamic(library, "Linear", size, x)


def lstm(library, size, batch):
    """32 steps of a batch."""
    x = np.random.default_rng(0).standard_normal((32, batch, size)).astype(np.float32)
    return dynamic(library, "LSTM", size, x)


def cnn(library, size, batch):
    """Three convolutions, each with a rectifier, and a product."""
    import tenon
    from tenon import nn

    tenon.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * (size // 4) ** 2, 10),
    ).eval()  # fmt: skip
    x = tenon.randn(batch, 3, size, size)
    with contextlib.redirect_stdout(io.StringIO()):
        small = tenon.quantize(model, "int8", [x]).model
    return {
        "float32": (model, x),
        "int8": (small, x),
        "float32 compiled": (tenon.compile(model), x),
        "compiled": (tenon.compile(small), x),
    }


def serve(library, threads, cpu_time, pipe):
    """In the child: build what is asked for, and answer with times."""
    T, clock = import_library(library, threads), clock_of(cpu_time)
    pipe.send(T.__version__)
    ways = {}
    while order := received(pipe):
        what, *rest = order
        if what == "build":
            program, size, batch = rest
            with T.no_grad():
                ways = {"linear": linear, "lstm": lstm, "cnn": cnn}[program](library, size, batch)
            pipe.send(list(ways))
        else:
            (model, x), count = ways[rest[0]], rest[1]
            with T.no_grad():
                pipe.send(timed(lambda: model(x), count, clock))


def measure(given, workers, program, size, batch):
    """Best and median seconds of each way; the ways take turns."""
    names = [(worker, way) for worker in workers for way in worker.ask("build", program, size, batch)]
    for worker, way in names:
        worker.ask("time", way, 10)
    counts = [max(3, round(given.block / worker.ask("time", way, 10))) for worker, way in names]
    times = {way: [] for _, way in names}
    for turn in range(given.rounds):
        pairs = list(zip(names, counts, strict=True))
        for (worker, way), count in pairs if turn % 2 else pairs[::-1]:
            times[way].append(worker.ask("time", way, count))
    return times


def ratio(times, above, below):
    """Of the best times, and the median of those within a round."""
    pairs = zip(times[above], times[below], strict=True)
    return min(times[above]) / min(times[below]), statistics.median(a / b for a, b in pairs)


def main():
    given = arguments()
    libraries = ("tenon",) if given.cnn else ("tenon", "torch")
    workers = [Worker(serve, library, given.threads, given.cpu_time) for library in libraries]
    print(
        f"threads {given.threads}, load {os.getloadavg()[0]:.1f}, ratios: of the best times (median of"
        " rounds), bar"
    )
    results = []
    for batch in map(int, given.batches.split(",")):
        program = "cnn" if given.cnn else "lstm" if given.lstm else "linear"
        times = measure(given, workers, program, given.size, batch)
        found = {way: min(spent) * 1e6 for way, spent in times.items()}
        pairs = [("float32", "int8", CNN_BAR), ("float32 compiled", "compiled", CNN_BAR)]
        if not given.cnn:
            mine, theirs = (None, None) if given.lstm else BARS.get(batch, (None, None))
            pairs = [("float32", "int8", mine), ("torch int8", "int8", theirs), ("int8", "compiled", None)]
        shown = []
        for above, below, bar in pairs:
            best, usual = ratio(times, above, below)
            results.append(
                {"batch": batch, "of": above, "to": below, "min": best, "median": usual, "bar": bar}
            )
            shown.append(f"{above} / {below} {best:.2f} ({usual:.2f}){'' if bar is None else f', bar {bar}'}")
        print(
            f"batch {batch:4}: "
            + ", ".join(f"{w} {us:.0f} us" for w, us in found.items())
            + "; "
            + "; ".join(shown)
        )
    for worker in workers:
        worker.close()
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"threads": given.threads, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
