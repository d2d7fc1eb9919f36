"""What profiling costs: ``python tests/bench/profiler.py``.

Per op, on arrays too small to matter: microseconds that a profile adds, with nothing, shapes, memory or stacks
recorded, beside torch.profiler's own on torch's op; the least of all turns counts. Per step of a small network: a
step where a profile was open and closed, over one where there never was any, which is what profiles cost while there
is none; the same for two where there never was any, which is how far to trust that; and a step inside of a profile.
These are medians of ratios of neighbouring blocks, plus or minus half of what 95 % of such medians lie within.
Processor time on one thread; all take turns. What torch does after the block, to make events of what it kept, is not
counted, nor here; what a turn left is collected before the next.

``--instructions`` counts what no other process disturbs: see ``instructions.py``.
"""

import argparse
import gc
import json
import os
import statistics
import struct
import time

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and torch load

import instructions

import tenon
import tenon.profiler

#: Turns of the processes of a round.
BLOCKS = 30
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


def ratio(times):
    """The median of paired ratios, second over first, and half the width of its 95 % interval."""
    found = sorted(second / first for first, second in times)
    reach = round(0.98 * len(found) ** 0.5)  # of ranks around the middle, as the binomial distribution has it
    middle = len(found) // 2
    low, high = found[max(middle - reach, 0)], found[min(middle + reach, len(found) - 1)]
    return statistics.median(found), (high - low) / 2


def off(library, step, count, rounds):
    """Ratios of a step in a process that has had a profile, and in one that has not, to one in another that has
    not: what a closed profile costs, and how far this measurement is off.

    The three are forks of this process, anew each round, and take turns block by block.
    """
    had, had_not = [], []
    for _ in range(rounds):
        workers = [_fork(library, step, count, profiled) for profiled in (False, False, True)]
        for turn in range(BLOCKS):
            order = [*enumerate(workers)][:: 1 if turn % 2 else -1]
            took = {place: ask() for place, ask in order}
            had_not.append((took[0], took[1]))
            had.append((took[0], took[2]))
        for ask in workers:
            ask(last=True)
    return ratio(had), ratio(had_not)


def _fork(library, step, count, profiled):
    """A process that times a block of steps each time it is asked: by what is returned."""
    asked, asking = os.pipe()
    answered, answering = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(asking)
        if profiled:
            with library.profiler.profile(record_shapes=True):
                seconds(step, count)
        gc.collect()
        seconds(step, count)
        while os.read(asked, 1) == b"?":
            os.write(answering, struct.pack("d", seconds(step, count)))
        os._exit(0)
    os.close(asked)
    os.close(answering)

    def ask(last=False):
        os.write(asking, b"." if last else b"?")
        if last:
            os.close(asking)
            os.close(answered)
            return os.waitpid(child, 0)
        return struct.unpack("d", os.read(answered, 8))[0]

    return ask


def on(library, step, count, rounds):
    """The ratio of a step inside of a profile with shapes to one before it."""
    times = []
    for _ in range(rounds):
        gc.collect()
        plain = seconds(step, count)
        with library.profiler.profile(record_shapes=True):
            times.append((plain, seconds(step, count)))
    return ratio(times)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="ops of a turn; steps are 1 in 20")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--instructions", action="store_true",
        help="count a hundredth of COUNT steps, and ten times as many ops, with valgrind instead: some minutes",
    )  # fmt: skip
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()
    if options.instructions:
        return write(instructions.main(max(options.count // 100, 1)), options.json)
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
        step = make_step(library)
        block = max(options.count // 100, 1)
        seconds(step, 4 * block)
        (closed, unsure), (same, also) = off(library, step, block, options.rounds)
        inside, about = on(library, step, 5 * block, 3 * options.rounds)
        found[name] = {
            "op_us": plain, "added_us": added, "off": [closed, unsure], "noise": [same, also], "on": [inside, about],
        }  # fmt: skip
        print(f"{name}: an op takes {plain:.2f} us; a profile adds")
        for kind, time_added in added.items():
            print(f"    {time_added:6.2f} us with {kind}")
        print(
            f"    a step takes {closed:.4f} ± {unsure:.4f} of itself after a profile (without one {same:.4f}"
            f" ± {also:.4f}),"
        )
        print(f"    {inside:.2f} ± {about:.2f} in one")
    write(found, options.json)


def write(found, path):
    """Keep the results, if they are asked for."""
    if path:
        with open(path, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
