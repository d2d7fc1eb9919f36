"""Time of a traced module and of the module itself, in tenon and in torch: ``python tests/bench/traces.py``.

One thread. The four take turns in one process; the best of all rounds of each counts, and the ratio of trace to
module.
"""

import argparse
import json
import os
import warnings

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
os.environ.update(dict.fromkeys(POOLS, "1"))

import torch  # noqa: E402 - after the sizes of the thread pools
from turns import clock_of, timed  # noqa: E402

import tenon  # noqa: E402


def models(t):
    """By name, a module and its argument."""
    nn = t.nn
    encoder = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    cnn = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(8192, 10),
    )  # fmt: skip
    mlp = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return {
        "linear": (nn.Linear(8, 8), t.randn(4, 8)),
        "mlp": (mlp, t.randn(16, 64)),
        "encoder layer": (encoder, t.randn(4, 16, 64)),
        "cnn": (cnn, t.randn(4, 3, 32, 32)),
    }


def ways(t, name, train):
    """What is timed: a call of the module and of its trace, in inference or forward and backward."""
    module, x = models(t)[name]
    module.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = t.jit.trace(
            module, (x,), check_trace=False
        )  # torch takes another path under no_grad, and objects

    def step(m):
        def run():
            m(x).sum().backward()

        return run

    def call(m):
        def run():
            with t.no_grad():
                m(x)

        return run

    make = step if train else call
    return {"module": make(module), "trace": make(traced)}


def measure(name, train, given):
    """Best seconds of each way of each library."""
    works = {(t.__name__, way): work for t in (tenon, torch) for way, work in ways(t, name, train).items()}
    clock = clock_of(given.cpu_time)
    best = dict.fromkeys(works, float("inf"))
    for work in works.values():
        for _ in range(3):
            work()
    for _ in range(given.rounds):
        for key, work in works.items():
            best[key] = min(best[key], timed(work, given.number, clock))
    return best


def main():
    """Print one line a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--number", type=int, default=50, help="calls a round")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, for a busy machine")
    parser.add_argument("--json", help="write the results to this file, too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':32}{'tenon us':>10}{'trace':>10}{'ratio':>7}{'torch us':>12}{'trace':>10}{'ratio':>7}")
    results = []
    for name in models(tenon):
        for train in (False, True):
            best = {key: value * 1e6 for key, value in measure(name, train, given).items()}
            row = [best[library, way] for library in ("tenon", "torch") for way in ("module", "trace")]
            ratios = row[1] / row[0], row[3] / row[2]
            label = f"{name}, {'forward and backward' if train else 'inference'}"
            print(
                f"{label:32}{row[0]:10.1f}{row[1]:10.1f}{ratios[0]:7.2f}{row[2]:12.1f}{row[3]:10.1f}{ratios[1]:7.2f}"
            )
            results.append({"model": name, "train": train, "us": row, "ratios": ratios})
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"results": results}, file, indent=1)


if __name__ == "__main__":
    main()
