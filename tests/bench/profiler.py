"""What profiling costs: ``python tests/bench/profiler.py``.

Per op, on arrays too small to matter: microseconds that a profile adds, with nothing, shapes, memory or stacks
recorded, beside torch.profiler's own on torch's op. Per step of a small network: a step after a profile was open
and closed, over one before, which is what profiles cost while there is none; and a step inside of one, over that.
Processor time on one thread; the two libraries, and with and without, take turns, and the least of all turns
counts. What torch does after the block, to make events of what it kept, is not counted, nor here; what a turn
left is collected before the next.
"""

import argparse
import gc
import json
import os
import time

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and torch load

import tenon
import tenon.profiler

KINDS = {
    "nothing": {},
    "shapes": {"record_shapes": True},
    "shapes and memory": {"record_shapes": True, "profile_memory": True},
    "stacks": {"with_stack": True},
}


def seconds(work, count):
    """Processor time of one ``work()``."""
    begin = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - begin) / count


def per_op(library, count, rounds):
    """Microseconds of an addition, and what each kind of profile adds to it."""
    x = library.ones(4, 4)
    seconds(lambda: x + x, count)
    plain, watched = [], {kind: [] for kind in KINDS}
    for _ in range(rounds):
        plain.append(seconds(lambda: x + x, count))
        for kind, options in KINDS.items():
            gc.collect()
            with library.profiler.profile(**options):
                watched[kind].append(seconds(lambda: x + x, count))
    return min(plain) * 1e6, {kind: (min(times) - min(plain)) * 1e6 for kind, times in watched.items()}


def make_step(library):
    """A training step of three small layers."""
    nn = library.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = library.optim.SGD(model.parameters(), lr=0.01)
    x, y = library.randn(8, 16), library.randint(0, 4, (8,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def per_step(library, count, rounds):
    """Microseconds of a step before any profile, after one, and inside of one with shapes."""
    step = make_step(library)
    seconds(step, count)
    before = min(seconds(step, count) for _ in range(rounds))
    after, inside = [], []
    for _ in range(rounds):
        with library.profiler.profile(record_shapes=True):
            inside.append(seconds(step, count))
        after.append(seconds(step, count))
    return before * 1e6, min(after) * 1e6, min(inside) * 1e6


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="ops of a turn; steps are 1 in 20")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()
    libraries = {"tenon": tenon}
    try:
        import torch
        import torch.profiler
    except ImportError:
        print("torch is not installed: tenon alone")
    else:
        torch.set_num_threads(1)
        libraries["torch"] = torch
    found = {}
    for name, library in libraries.items():
        plain, added = per_op(library, options.count, options.rounds)
        before, after, inside = per_step(library, max(options.count // 20, 1), options.rounds)
        found[name] = {
            "op_us": plain, "added_us": added, "step_us": before, "off": after / before, "on": inside / before
        }  # fmt: skip
        print(f"{name}: an op takes {plain:.2f} us; a profile adds")
        for kind, time_added in added.items():
            print(f"    {time_added:6.2f} us with {kind}")
        print(
            f"    a step takes {before:.1f} us, {after / before:.3f} of it after a profile,"
            f" {inside / before:.2f} in one"
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
