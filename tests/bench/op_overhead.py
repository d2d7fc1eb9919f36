"""What one op costs on arrays too small to matter, forward and backward: ``python tests/bench/op_overhead.py``.

tenon and PyTorch take turns in one process, on one thread; the best of all turns counts, as it changes least from
run to run. ``ratio`` is PyTorch's time over tenon's: above 1, tenon is faster.
"""

import argparse
import json
import os
import time
import timeit

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and torch load

import tenon

SETUP = {
    "x": lambda t: t.ones(4, 4),
    "y": lambda t: t.full((4, 4), 0.5),
    "w": lambda t: t.full((4, 4), 0.5).requires_grad_(),
    "v": lambda t: t.full((4,), 0.5),
}

#: What is timed, with the names of ``SETUP`` and the library as ``t``.
STATEMENTS = {
    "add": "x + y",
    "add, taped": "x + w",
    "add a number": "x + 2",
    "multiply, taped": "x * w",
    "matmul": "x @ y",
    "matmul, taped": "x @ w",
    "vector @ matrix, taped": "v @ w",
    "exp, taped": "w.exp()",
    "sum, taped": "w.sum()",
    "index, taped": "w[1]",
    "reshape, taped": "w.reshape(16)",
    "add in place": "y.add_(x)",
    "backward of a sum": "w.sum().backward()",
    "backward of 3 ops": "((x @ w).relu() + y).sum().backward()",
    "grad, twice": "t.autograd.grad(t.autograd.grad((w * w * w).sum(), w, create_graph=True)[0].sum(), w)",
    "no_grad": "with t.no_grad(): pass",
}


def measure(statement, libraries, number, rounds):
    """Seconds of ``statement`` per library: the best of interleaved rounds."""
    timers = [
        timeit.Timer(
            statement,
            timer=time.process_time,
            globals={"t": t} | {name: made(t) for name, made in SETUP.items()},
        )
        for t in libraries
    ]
    turns = [[timer.timeit(number) / number for timer in timers] for _ in range(rounds)]
    return [min(column) for column in zip(*turns, strict=True)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=2000, help="calls in a turn")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    results = []
    print(f"{'':24}{'tenon us':>10}{'torch us':>10}{'ratio':>8}")
    for name, statement in STATEMENTS.items():
        ours, theirs = measure(statement, (tenon, torch), given.number, given.rounds)
        results.append({"op": name, "tenon": ours, "torch": theirs, "ratio": theirs / ours})
        print(f"{name:24}{ours * 1e6:10.2f}{theirs * 1e6:10.2f}{theirs / ours:8.2f}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"results": results}, file, indent=1)


if __name__ == "__main__":
    main()
