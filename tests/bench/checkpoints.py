"""Checkpoints: what async_save adds to a step of sharded training, and how long save and load take.

    python tests/bench/checkpoints.py              # 2 ranks, an MLP of 50 M parameters, AdamW, ZeRO-3
    python tests/bench/checkpoints.py --only tenon --rounds 3
    python tests/bench/checkpoints.py --folder /scratch/run
    python tests/bench/checkpoints.py -n 1 --one-file yes

Each round makes training steps one after another: plain ones, then one that begins with ``async_save`` and
those that follow until the checkpoint is complete. "stall" is how long the call keeps the caller and then the
optimizer waits for the copy in memory, as a share of a plain step; "more" is how much longer than plain ones the
steps meanwhile take: writing takes processor time, which busy ranks miss. "by default" is the call without a stager,
"copied first" one that copies before the call returns (torch's default), "in background" one that copies while the
next forward and backward pass run. torch's torch.distributed.checkpoint does the same beside it. Model and optimizer
state are saved.

With ``--one-file`` instead, how long ``CheckpointWriter``, which writes one file of states of several sizes, holds up
its caller: the best times of writing in place and of handing over.
"""

import os
import shutil
import statistics
import tempfile
import time

import numpy as np
import ranks
from sharded import arranged, mlp

TENSORS, ROUNDS = 60, 8
"""Of ``--one-file``."""


def make(library, options):
    """A training step, and what is saved."""
    model = arranged(library, mlp(library.nn, options.width, options.layers), "sharded")
    optimizer = library.optim.AdamW(model.parameters(), lr=1e-4)
    own = np.random.default_rng(1)
    shape = options.batch, options.width
    x, y = (library.tensor(own.standard_normal(shape, np.float32)) for _ in range(2))

    def step(before=lambda: None):
        optimizer.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        before()
        optimizer.step()

    def state():
        import importlib

        helpers = importlib.import_module(f"{library.__name__}.distributed.checkpoint.state_dict")
        parts = helpers.get_state_dict(model, optimizer)
        return dict(zip(("model", "optimizer"), parts, strict=True))

    return step, state


def seconds(function, *arguments, **options):
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    result = function(*arguments, **options)
    return time.perf_counter() - start, result


def stager_of(library, way):
    """The argument ``async_stager`` of a way."""
    import importlib

    if way == "by default":
        return None
    staging = importlib.import_module(f"{library.__name__}.distributed.checkpoint.staging")
    return staging.DefaultStager(
        staging.StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=False,
            use_async_staging=way == "in background",
            use_non_blocking_copy=False,
        )
    )


def copies_of(response):
    """The futures of the copies in memory that are being made."""
    from tenon.engine import pending_copies

    announced = set(pending_copies.PENDING.values())  # of tenon
    stated = getattr(response, "staging_completion", None)
    return announced if stated is None else announced | {stated}


def one_round(communicator, save, step):
    """Seconds of a plain step, of the stall, and of the steps until the checkpoint is complete."""
    communicator.barrier()
    plain = statistics.median(seconds(step)[0] for _ in range(3))
    communicator.barrier()
    stall, response = seconds(save)
    copies = copies_of(response)
    written = getattr(response, "upload_completion", response)
    waited, beside, complete = [0.0], [], False
    while not complete:

        def wait():
            waited.append(sum(seconds(copy.result)[0] for copy in copies))

        beside.append(seconds(step, wait)[0])
        complete = bool(communicator.all_reduce(np.array(written.done()), "min").wait())
    written.result()
    stall += sum(waited)
    return plain, stall, sum(beside) - len(beside) * plain - sum(waited), len(beside)


def one_file(folder):
    """The times of ``CheckpointWriter``."""
    from tenon.serialize.background import CheckpointWriter
    from tenon.serialize.checkpoint import write_checkpoint
    from tenon.tensors.creation.create import from_numpy

    for megabytes in (4, 64, 256):
        count = megabytes * (1 << 18) // TENSORS
        state = {"model": {str(i): from_numpy(np.ones(count, np.float32)) for i in range(TENSORS)}}
        in_place, stall = [], []
        with CheckpointWriter(folder) as writer:
            writer.save(0, state)  # the memory is made here
            writer.wait()
            for step in range(1, ROUNDS):
                path = os.path.join(folder, "in-place.safetensors")
                in_place.append(seconds(write_checkpoint, path, state)[0])
                stall.append(seconds(writer.save, step, state)[0])
                writer.wait()
        print(f"{megabytes:>4} MB  in place {min(in_place) * 1e3:8.1f} ms  stall {min(stall) * 1e3:7.1f} ms")


def measure(options):
    """What each rank does."""
    if options.one_file:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            one_file(folder)
        return
    import tenon
    import tenon.distributed.checkpoint
    import tenon.distributed.fsdp
    from tenon.distributed import get_communicator

    communicator = get_communicator()
    libraries = {"tenon": tenon}
    if options.only != "tenon":
        torch = ranks.join_gloo(communicator.rank, communicator.size, options.rendezvous)
        if torch is not None:
            import torch.distributed.checkpoint
            import torch.distributed.fsdp

            libraries["torch"] = torch
    names = communicator.all_gather_bytes(tempfile.mkdtemp(dir=options.folder).encode())
    top = names[0].decode()
    made = {name: make(library, options) for name, library in libraries.items()}
    for step, _ in made.values():
        step()
    ways = [
        (name, way)
        for name in libraries
        for way in ("by default", "copied first", "in background")
        if (name, way) != ("torch", "by default")
    ]
    stagers = {each: stager_of(libraries[each[0]], each[1]) for each in ways}
    # torch's thread would use the group of the training steps at the same time, which gloo cannot.
    groups = {
        name: {} if name == "tenon" else {"process_group": library.distributed.new_group()}
        for name, library in libraries.items()
    }
    found = {each: [] for each in ways}
    times = {}
    for number in range(options.rounds):
        for name, way in ways if number % 2 else reversed(ways):
            dcp = libraries[name].distributed.checkpoint
            step, state = made[name]
            folder = os.path.join(top, f"{name}-{way.split()[0]}")
            arguments = {"checkpoint_id": folder, "async_stager": stagers[name, way], **groups[name]}

            def save(dcp=dcp, state=state, arguments=arguments):
                return dcp.async_save(state(), **arguments)

            once = one_round(communicator, save, step)
            if number:  # the first one makes the memory of the copies
                found[name, way].append(once)
        for name, library in libraries.items():
            dcp, (_, state), folder = library.distributed.checkpoint, made[name], os.path.join(top, name)
            communicator.barrier()
            times.setdefault((name, "save"), []).append(seconds(dcp.save, state(), checkpoint_id=folder)[0])
            communicator.barrier()
            times.setdefault((name, "load"), []).append(seconds(dcp.load, state(), checkpoint_id=folder)[0])
    communicator.barrier()
    if communicator.rank == 0:
        show(options, communicator.size, found, times)
    for name in names:
        shutil.rmtree(name, ignore_errors=True)


def show(options, size, found, times):
    """A line for each contestant."""
    parameters = options.layers * options.width * (options.width + 1)
    print(f"{parameters / 1e6:.1f} M parameters and AdamW's state on {size} ranks", flush=True)
    for (name, way), rounds in found.items():
        plain, stall, added, steps = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(
            f"{name:6} async_save, {way:13}  step {plain * 1e3:7.1f} ms  stall {stall * 1e3:7.1f} ms"
            f" = {stall / plain:6.1%} of a step  then {added:5.2f} s more in {steps:.0f} steps",
            flush=True,
        )
    for (name, what), each in times.items():
        print(f"{name:6} {what:28}  {min(each):7.2f} s", flush=True)


if __name__ == "__main__":
    ranks.main(
        __doc__,
        measure,
        width={"type": int, "default": 2048},
        layers={"type": int, "default": 12},
        batch={"type": int, "default": 128},
        folder={"help": "where checkpoints are written, by default a temporary folder"},
        **{"one-file": {"help": "measure CheckpointWriter instead"}},
        only={"choices": ["tenon"], "help": "without torch"},
    )
