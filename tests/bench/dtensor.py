"""What an op takes on a DTensor, in tenon and in torch: ``python tests/bench/dtensor.py``.

One rank and one thread, so that nothing is sent: the difference to a plain tensor is what choosing placements
takes. Both libraries take turns in one process, torch over gloo; the best of all rounds counts.
"""

import argparse
import json
import os
import timeit

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
os.environ.update(dict.fromkeys(POOLS, "1"))

import torch  # noqa: E402 - after the sizes of the thread pools
import torch.distributed  # noqa: E402
import torch.distributed.tensor  # noqa: E402

import tenon  # noqa: E402
import tenon.distributed.tensor  # noqa: E402


def step(t, model, x, y):
    """A forward and backward pass of a model and an update."""

    def run():
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        with t.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
                p.grad = None

    return run


def programs(t, sharded):
    """By name, functions without arguments; on DTensors if ``sharded``."""
    placed = t.distributed.tensor
    mesh = t.distributed.device_mesh.init_device_mesh("cpu", (1,))

    def put(x):
        return placed.distribute_tensor(x, mesh, [placed.Shard(0)]) if sharded else x

    a, b = put(t.ones(4, 4)), put(t.ones(4, 4))
    t.manual_seed(0)
    model = t.nn.Sequential(t.nn.Linear(16, 32), t.nn.ReLU(), t.nn.Linear(32, 8))
    if sharded:
        placed.distribute_module(model, mesh)
    return {
        "add": lambda: a + b,
        "matmul": lambda: a @ b,
        "sum": lambda: a.sum(0),
        "view": lambda: a.view(16),
        "step of an MLP": step(t, model, put(t.ones(8, 16)), put(t.ones(8, 8))),
    }


def measure(rounds, number):
    """By program, the microseconds of tenon and torch, plain and sharded: the best round of each."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    torch.set_num_threads(1)
    sides = {(t.__name__, sharded): programs(t, sharded) for t in (tenon, torch) for sharded in (False, True)}
    best = {}
    for _ in range(rounds + 1):  # the first fills caches
        for side, functions in sides.items():
            for name, function in functions.items():
                count = max(1, number // 20) if "step" in name else number
                took = timeit.timeit(function, number=count) / count * 1e6
                best[name, *side] = min(took, best.get((name, *side), took))
    torch.distributed.destroy_process_group()
    names = list(sides["tenon", True])
    return {
        name: {
            f"{t} {'DTensor' if s else 'plain'}": best[name, t, s]
            for t in ("tenon", "torch")
            for s in (False, True)
        }
        for name in names
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--number", type=int, default=400, help="calls a round; steps are a twentieth")
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    found = measure(options.rounds, options.number)
    print(f"{'microseconds':16}{'plain':>20}{'DTensor':>22}{'torch / tenon':>16}")
    for name, row in found.items():
        plain = f"{row['tenon plain']:.2f}, torch {row['torch plain']:.2f}"
        sharded = f"{row['tenon DTensor']:.1f}, torch {row['torch DTensor']:.1f}"
        print(f"{name:16}{plain:>20}{sharded:>22}{row['torch DTensor'] / row['tenon DTensor']:16.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
