"""All-reduce of float32 arrays, in place: tenon's engines, a plain MPI call, gloo, and a copy of as many bytes.

    python tests/bench/collectives.py                     # 2 ranks, 4 KB to 64 MB
    python tests/bench/collectives.py -n 4 --sizes 1024,16384 --rounds 30

Columns: microseconds, or GB of array a second; best of the rounds, in brackets the median. "window": the array lies
where ``Communicator.allocate`` made it, as gradients do; "private": anywhere else; "messages": no shared memory;
"hierarchy": each rank a node of its own is plain messages, so with 4 ranks 2 nodes of 2. "unchecked" is "window" by
ranks that meet without comparing their calls; "check" and "meet" are such meetings alone, so "check" less "meet" is
what the comparison adds to "window": the last column, next to its share.
"""

import numpy as np
import ranks

SIZES = (4, 64, 1024, 4096, 16384, 65536)


def without_comparing(communicator):
    """``communicator``, whose ranks still meet before each call, as they must."""
    barrier = communicator._memory.barrier

    def meet(word, position=-1):
        barrier.wait()
        barrier.common_position = position
        return True

    communicator._compare = meet
    return communicator


def contestants(communicators, plain, torch, size):
    """The ways to sum ``size`` bytes over the ranks, by name."""
    mpi, shared, unchecked, messages, hierarchy = communicators
    array, other = np.zeros(size // 4, np.float32), np.zeros(size // 4, np.float32)
    window = shared.allocate(size // 4, array.dtype)
    unwatched = unchecked.allocate(size // 4, array.dtype)
    found = {
        "MPI": lambda: plain.Allreduce(mpi.IN_PLACE, array),
        "window": lambda: shared.all_reduce(window, "sum", window, name="bench"),
        "unchecked": lambda: unchecked.all_reduce(unwatched, "sum", unwatched, name="bench"),
        "private": lambda: shared.all_reduce(array, "sum", array, name="bench"),
        "messages": lambda: messages.all_reduce(array, "sum", array, name="bench"),
        "check": shared.barrier,
        "meet": unchecked.barrier,
        "copy": lambda: np.copyto(other, array),
    }
    if hierarchy is not None:
        inside = hierarchy.allocate(size // 4, array.dtype)
        found["hierarchy"] = lambda: hierarchy.all_reduce(inside, "sum", inside, name="bench")
    if torch is not None:
        tensor = torch.from_numpy(array)
        found["gloo"] = lambda: torch.distributed.all_reduce(tensor)
    return found


def shown(size, found):
    """One line of the table."""
    parts = [f"{size // 1024:>7} KB"]
    for name, times in found.items():
        best, median = times["min"], times["median"]
        if size < 1 << 20 or name in ("check", "meet"):
            parts.append(f"{name} {best * 1e6:.1f} ({median * 1e6:.1f}) us")
        else:
            parts.append(f"{name} {size / best / 1e9:.2f} ({size / median / 1e9:.2f}) GB/s")
    added = found["check"]["min"] - found["meet"]["min"]
    parts.append(f"comparing {added * 1e6:.1f} us, {added / found['window']['min']:.1%}")
    return "  ".join(parts)


def measure(options):
    """What each rank does."""
    from mpi4py import MPI

    import tenon.distributed as dist
    from tenon_mpi import communicator as made

    shared = dist.get_communicator()
    plain = MPI.COMM_WORLD.Dup()
    hierarchy = made.HierarchicalCommunicator(nodes=2) if shared.size > 2 and shared.size % 2 == 0 else None
    unchecked = without_comparing(made.SharedCommunicator())
    communicators = (MPI, shared, unchecked, made.MessageCommunicator(), hierarchy)
    torch = ranks.join_gloo(shared.rank, shared.size, options.rendezvous)
    results = []
    for kilobytes in options.sizes:
        size = kilobytes << 10
        repeats = max(1, min(20, (1 << 20) // size))  # short, to fit between what else runs
        ways = contestants(communicators, plain, torch, size)
        found = ranks.summary(ranks.in_turns(ways, options.rounds, repeats, shared.barrier))
        results.append({"bytes": size, "ranks": shared.size, "ways": found})
        if shared.rank == 0:
            print(shown(size, found), flush=True)
    if shared.rank == 0:
        ranks.write(options.json, results=results)


if __name__ == "__main__":
    sizes = {"type": lambda text: [int(part) for part in text.split(",")], "default": SIZES}
    ranks.main(__doc__, measure, sizes=sizes)
