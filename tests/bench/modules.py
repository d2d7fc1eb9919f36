"""What a Module costs besides its forward, beside torch in the same run.

    python tests/bench/modules.py [--number N]

The frameworks take turns; the best of seven rounds of each counts.
"""

import argparse
import timeit

import torch

import tenon

STATEMENTS = {
    "read a parameter": "m.weight",
    "read a buffer": "m.buffer",
    "read a child": "m.child",
    "call, no hooks": "m(1)",
    "call, one forward hook": "hooked(1)",
}


def module(t):
    """A module with one member of each kind, whose forward does nothing."""

    class Same(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = t.nn.Parameter(t.ones(2))
            self.register_buffer("buffer", t.ones(2))
            self.child = t.nn.Module()

        def forward(self, x):
            return x

    return Same()


def names(t):
    """What the statements speak of."""
    hooked = module(t)
    hooked.register_forward_hook(lambda m, args, out: None)
    return {"m": module(t), "hooked": hooked}


def measure(statement, number):
    """Best nanoseconds of tenon and of torch."""
    ours, theirs = (timeit.Timer(statement, globals=names(t)) for t in (tenon, torch))
    rounds = [(ours.timeit(number), theirs.timeit(number)) for _ in range(7)]
    return tuple(min(column) / number * 1e9 for column in zip(*rounds, strict=True))


def main():
    """Print one line a statement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=20000, help="executions a round")
    number = parser.parse_args().number
    print(f"{'':24}{'tenon ns':>10}{'torch ns':>10}{'ratio':>8}")
    for label, statement in STATEMENTS.items():
        ours, theirs = measure(statement, number)
        print(f"{label:24}{ours:10.0f}{theirs:10.0f}{theirs / ours:8.1f}")


if __name__ == "__main__":
    main()
