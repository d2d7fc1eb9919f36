"""A training step of data parallel on several ranks, one thread each: tenon eager and compiled, torch with gloo.

    python tests/bench/data_parallel.py                   # 2 ranks, MLP 784-512-512-10
    python tests/bench/data_parallel.py --batch 256 --rounds 20

Every rank takes its own batch, as in weak scaling: the time without communication ("local", all ranks at once;
"alone", one rank while the others sleep) over the time with it is the efficiency. All contestants start from the same
weights and data; their losses after the rounds must agree, or the bench stops.
"""

import argparse
import sys

import numpy as np
import ranks


def tenon_steps(rank, draw, batch):
    """tenon's steps: without communication, and data parallel, eager and compiled."""
    import tenon
    from tenon import nn

    def make(wrap, compile_it):
        model = nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        with tenon.no_grad():
            for parameter, value in zip(model.parameters(), draw, strict=True):
                parameter.copy_(tenon.tensor(value))
        model = nn.parallel.DistributedDataParallel(model) if wrap else model
        optimizer = tenon.optim.SGD(model.parameters(), lr=0.01)
        x, y = (tenon.tensor(a) for a in batch)

        def step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return tenon.compile(step) if compile_it else step

    return {
        "tenon local": make(False, False),
        "tenon DDP": make(True, False),
        "tenon local compiled": make(False, True),
        "tenon DDP compiled": make(True, True),
    }


def torch_steps(torch, draw, batch):
    """torch's steps: without communication, and data parallel over gloo."""
    nn = torch.nn

    def make(wrap):
        model = nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), draw, strict=True):
                parameter.copy_(torch.from_numpy(value))
        model = nn.parallel.DistributedDataParallel(model) if wrap else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x, y = (torch.from_numpy(a) for a in batch)

        def step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    return {"torch local": make(False), "torch DDP gloo": make(True)}


def alone(communicator, steps, rounds):
    """Seconds a step on rank 0 while the others sleep."""
    found = {}
    for name, step in steps.items():
        if "local" in name:
            communicator.barrier()
            if communicator.rank == 0:
                found[name] = min(ranks.in_turns({name: step}, rounds, 5, lambda: None)[name])
            communicator.barrier()  # Ranks that wait long sleep.
    return found


def measure(options):
    """What each rank does."""
    import tenon.distributed as dist

    communicator = dist.get_communicator()
    torch = ranks.join_gloo(communicator.rank, communicator.size, options.rendezvous)
    weights = np.random.default_rng(0)
    draw = []
    for rows, columns in ((512, 784), (512, 512), (10, 512)):
        draw.append((weights.standard_normal((rows, columns)) * rows**-0.5 * 0.7).astype(np.float32))
        draw.append(np.zeros(rows, np.float32))
    mine = np.random.default_rng(1 + communicator.rank)
    batch = (
        mine.standard_normal((options.batch, 784)).astype(np.float32),
        mine.integers(0, 10, options.batch).astype(np.int64),
    )
    steps = tenon_steps(communicator.rank, draw, batch)
    if torch is not None:
        steps |= torch_steps(torch, draw, batch)
    for step in steps.values():
        for _ in range(4):
            step()
    found = ranks.summary(ranks.in_turns(steps, options.rounds, options.repeats, communicator.barrier))
    losses = {name: float(step().item()) for name, step in steps.items()}
    for kind in ("local", "DDP"):
        values = [loss for name, loss in losses.items() if kind in name]
        assert np.allclose(values, values[0], rtol=1e-3), losses
    by_itself = alone(communicator, steps, options.rounds)
    if communicator.rank == 0:
        for name, times in found.items():
            base = "torch local" if "torch" in name else "tenon local" + " compiled" * ("compiled" in name)
            line = f"{name:22} {times['min'] * 1e3:8.3f} ms, median {times['median'] * 1e3:8.3f}"
            if "DDP" in name:
                pair = found[base]["min"] / times["min"], by_itself[base] / times["min"]
                line += f"; {pair[0]:.0%} of all ranks without communication, {pair[1]:.0%} of one alone"
            print(line, flush=True)
        ranks.write(options.json, ways=found, alone=by_itself, losses=losses)


def main():
    """Start the ranks, or be one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json")
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not ranks.launched():
        raise SystemExit(ranks.start(options.ranks, sys.argv[1:]))
    measure(options)


if __name__ == "__main__":
    main()
