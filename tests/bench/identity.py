"""What it costs to identify and compare a collective call: small tensors, with and without, in turns.

    python tests/bench/identity.py                  # 2 ranks of one node
    python tests/bench/identity.py -n 3 --rounds 60
    python tests/bench/identity.py -n 1 --rounds 300  # busy machines: one process, which is both ranks

"without": ranks meet before each call, as they must, but name no tensor and compare nothing. "added" is the
difference of the two best times; in brackets that of the medians. A way is one collective, called directly
unless the line says otherwise: "wrapped" through two functions, "decorated" through one of ``*args``, "loop"
over four tensors that stay, "fresh" over four new ones, "listed" over a variable of four new ones, "keyed" over
the keys of a dict, "attribute" over those of an object's dict, "numbers" over those of numbers that become
tensors, and "chosen" over four functions. Times are of one call, also where a way makes four.

With one process nothing is sent, and the line of shared memory that is compared is its own: the price of the code alone,
which varies by 0.1 us where that of two processes varies by several.
"""

import contextlib
import gc
import types
import weakref

import numpy as np
import ranks

CALLS = 48
"""Calls between two readings of the clock."""
DEPTH = 4
"""Frames of a call that name it."""
FOURFOLD = ("loop", "fresh", "listed", "keyed", "attribute", "numbers", "chosen")
"""The ways of four calls."""


@contextlib.contextmanager
def without_identity(communicator):
    """Ranks meet, but nobody infers a name, and nothing is compared."""
    from tenon.distributed.messages import identity
    from tenon.distributed.nn import functional
    from tenon.extend import distributed_parts as parts

    kept = identity.name_of, identity.place_name, functional.name_of, parts.place_name, communicator._compare
    barrier = communicator._memory.barrier

    def meet(word, position=-1):
        barrier.wait()
        barrier.common_position = position
        return True

    def unnamed(*arguments, **options):
        return None

    identity.name_of = identity.place_name = functional.name_of = parts.place_name = unnamed
    communicator._compare = meet
    try:
        yield
    finally:
        identity.name_of, identity.place_name, functional.name_of, parts.place_name = kept[:4]
        communicator._compare = kept[4]


def ways(size):
    """The calls to time, by name."""
    import tenon as torch
    import tenon.distributed as dist
    import tenon.distributed.nn.functional as F

    tensor, wide = torch.ones(4), torch.ones(4 * size)
    rows = [torch.ones(4) for _ in range(size)]
    values = [torch.ones(4) for _ in range(4)]
    model = torch.nn.Linear(5, 5)
    list(model.parameters())
    objects = [None] * size

    def inner(each):
        dist.all_reduce(each)

    def outer(each):
        inner(each)

    def loop(make=None):
        for each in values if make is None else [torch.ones(4) for _ in range(4)]:
            dist.all_reduce(each)

    def listed():
        made = [torch.ones(4) for _ in range(4)]
        for each in made:
            dist.all_reduce(each)

    keyed = dict(zip("abcd", values, strict=True))
    owner = types.SimpleNamespace(values=keyed)
    numbers = dict(zip("abcd", range(4), strict=True))

    actions = [lambda: dist.all_reduce(tensor) for _ in range(4)]

    def decorated(*arguments):
        dist.all_reduce(*arguments)

    def by_key():
        for key in "abcd":
            each = keyed[key]
            dist.all_reduce(each)

    def by_attribute():
        for key in "abcd":
            dist.all_reduce(owner.values[key])

    def by_number():
        for key in "abcd":
            dist.all_reduce(torch.tensor(numbers[key]))

    def chosen():
        for each in actions:
            each()

    def named():
        with dist.named("bench"):
            dist.all_reduce(tensor)

    return {
        "all_reduce": lambda: dist.all_reduce(tensor),
        "all_reduce, wrapped": lambda: outer(tensor),
        "all_reduce, decorated": lambda: decorated(tensor),
        "all_reduce, loop": loop,
        "all_reduce, fresh": lambda: loop(True),
        "all_reduce, listed": listed,
        "all_reduce, keyed": by_key,
        "all_reduce, attribute": by_attribute,
        "all_reduce, numbers": by_number,
        "all_reduce, chosen": chosen,
        "all_reduce, named": named,
        "all_reduce, parameter": lambda: dist.all_reduce(model.bias.data),
        "reduce": lambda: dist.reduce(tensor, 0),
        "broadcast": lambda: dist.broadcast(tensor, 0),
        "all_gather": lambda: dist.all_gather(rows, tensor),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(wide, tensor),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(tensor, wide),
        "all_to_all_single": lambda: dist.all_to_all_single(wide, wide.clone()),
        "all_gather_object": lambda: dist.all_gather_object(objects, 1),
        "barrier": dist.barrier,
        "functional.all_reduce": lambda: F.all_reduce(tensor),
        "functional.all_gather": lambda: F.all_gather(tensor),
    }


def repeat(call, calls, levels=DEPTH):
    """Make ``calls`` calls, from so far inside that the frames of a name do not reach this program's own loops,
    whose variables choose what is called."""
    if levels:
        repeat(call, calls, levels - 1)
    else:
        for _ in range(calls):
            call()


def alone():
    """A communicator of two ranks that are both this process, and move no data."""
    from tenon.distributed.communication.local import LocalCommunicator
    from tenon.distributed.communication.world import set_process_communicator
    from tenon.distributed.processes.recent_modules import RECENT_MODULES
    from tenon_mpi.barrier import LINE, SharedBarrier
    from tenon_mpi.communicator import MpiCommunicator

    class Alone(LocalCommunicator):
        agree = MpiCommunicator.agree

        def perform_nothing(self, *arguments):
            pass

        perform_all_reduce = perform_broadcast = perform_all_gather = perform_nothing
        perform_reduce_scatter = perform_all_to_all = perform_nothing

        def perform_all_gather_bytes(self, payload):
            return [payload, payload]

    shared = Alone()
    shared.size, shared.ranks = 2, (0, 1)
    line = np.zeros(LINE, np.uint8).data.cast("q")
    shared._memory = types.SimpleNamespace(barrier=SharedBarrier([line, line], 0, None, False))
    shared._compare = shared._memory.barrier.compare
    shared._closed, shared._calls, shared._position = False, 0, -1
    RECENT_MODULES.modules = weakref.WeakSet()
    set_process_communicator(shared)
    gc.disable()
    return shared


def measure(options):
    """What each rank does."""
    import tenon.distributed as dist

    shared = alone() if options.ranks == 1 else dist.get_communicator()
    results = []
    for name, call in ways(shared.size).items():
        calls = CALLS // 4 if name.endswith(FOURFOLD) else CALLS

        def plain(call=call, calls=calls):
            with without_identity(shared):
                repeat(call, calls)

        def checked(call=call, calls=calls):
            repeat(call, calls)

        found = ranks.summary(
            ranks.in_turns({"without": plain, "with": checked}, options.rounds, 1, shared.barrier)
        )
        us = {
            way: {key: times[key] / CALLS * 1e6 for key in ("min", "median")} for way, times in found.items()
        }
        added = {key: us["with"][key] - us["without"][key] for key in ("min", "median")}
        results.append({"way": name, "ranks": shared.size, "microseconds": us, "added": added})
        if shared.rank == 0:
            print(
                f"{name:<24} without {us['without']['min']:6.2f}  with {us['with']['min']:6.2f}  "
                f"added {added['min']:5.2f} ({added['median']:5.2f}) us",
                flush=True,
            )
    if shared.rank == 0:
        ranks.write(options.json, results=results)


if __name__ == "__main__":
    ranks.main(__doc__, measure)
