"""Times of one ``step``, tenon and torch by turns: ``python tests/bench/optimizers.py``.

Best of the rounds, as neighbours on the machine only ever slow a round down. torch runs on one thread, as
the rules over NumPy do.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import tenon

TINY = ((8, 4), (8,), (2, 8), (2,))
CASES: dict[str, tuple[str, Mapping[str, Any], tuple[tuple[int, ...], ...], int]] = {
    "SGD, 4 tiny parameters": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, TINY, 500),
    "AdamW, 4 tiny parameters": ("AdamW", {}, TINY, 500),
    "AdamW, 40 tiny parameters": ("AdamW", {}, TINY * 10, 100),
    "SGD, 100 of 100 000": (
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
        ((100_000,),) * 100,
        1,
    ),
    "AdamW, 100 of 100 000": ("AdamW", {}, ((100_000,),) * 100, 1),
    "AdamW, 4 of 2 000 000": ("AdamW", {}, ((2_000_000,),) * 4, 1),
}


def stepper(framework: Any, case: str) -> Callable[[], None]:
    """``step`` of an optimizer of the case, after three steps."""
    name, options, shapes, _ = CASES[case]
    params = [framework.nn.Parameter(framework.randn(*shape)) for shape in shapes]
    for p in params:
        p.grad = framework.randn(*p.shape)
    optimizer = getattr(framework.optim, name)(params, **options)
    for _ in range(3):
        optimizer.step()
    return optimizer.step


def measure(case: str, torch: Any, rounds: int = 7) -> tuple[float, float]:
    """Seconds per step: ours, torch's."""
    torch.set_num_threads(1)
    number = CASES[case][3]
    best = [float("inf")] * 2
    steps = [stepper(framework, case) for framework in (tenon, torch)]
    for _ in range(rounds):
        for i, step in enumerate(steps):
            start = time.perf_counter()
            for _ in range(number):
                step()
            best[i] = min(best[i], (time.perf_counter() - start) / number)
    return best[0], best[1]


def main() -> None:
    """Measure the cases whose name contains ``--only``, print a line for each."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    given = parser.parse_args()
    results = []
    for case in CASES:
        if given.only in case:
            ours, theirs = measure(case, torch, given.rounds)
            print(f"{case:26} {ours * 1e6:10.1f} us   torch {theirs * 1e6:10.1f} us   {ours / theirs:5.2f}")
            results.append({"case": case, "ours": ours, "torch": theirs})
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"results": results}, file, indent=1)


if __name__ == "__main__":
    main()
