"""Weak scaling of data parallel, one thread a rank: tenon eager and compiled, torch with DDP over gloo, in turns.

    python tests/bench/data_parallel.py                                 # 2 ranks: MLP 256 and 64, CNN 64
    python tests/bench/data_parallel.py --models mlp:64 --rounds 40
    python tests/bench/data_parallel.py --parts --repeats 1 --rounds 100    # where a data-parallel step's time goes

Every rank takes a batch of its own of that size. The efficiency is the time of a step of one rank alone, while the
others sleep, over that of a data-parallel step of all of them; next to it stands the time of the same step without
communication on all ranks at once, which shows what the memory that they share costs. All contestants start from the
same weights and data; their losses after some steps must agree, or the bench stops. ``--parts`` also times steps
of tenon's that gather gradients in buckets but do not communicate, and such that wait for each other but do not sum.
"""

import numpy as np
import ranks

WARM = 8
"""Steps before the losses are compared; a compiled program runs from the fourth on."""
DEFAULT = "mlp:256,mlp:64,cnn:64"


def mlp(nn):
    """784-512-512-10."""
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn(nn):
    """Two convolutions on 28 by 28."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )


MODELS = {"mlp": (mlp, (784,)), "cnn": (cnn, (1, 28, 28))}


def make_step(library, build, batch, *, parallel, compiled=False):
    """A training step of tenon or torch, which go by the same names."""
    nn = library.nn
    model = build(nn)
    weights = np.random.default_rng(0)
    with library.no_grad():
        for parameter in model.parameters():
            scale = 0.7 * np.prod(parameter.shape[1:]) ** -0.5 if parameter.ndim > 1 else 0.0
            drawn = weights.standard_normal(tuple(parameter.shape)) * scale
            parameter.copy_(library.tensor(drawn.astype(np.float32)))
    if parallel:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = library.optim.SGD(model.parameters(), lr=0.01)
    x, y = (library.tensor(array) for array in batch)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return library.compile(step) if compiled else step


def make_steps(libraries, build, batch):
    """For each contestant its steps: by itself and data parallel."""
    found = {}
    for name, (library, compiled) in libraries.items():
        for parallel in (False, True):
            step = make_step(library, build, batch, parallel=parallel, compiled=compiled)
            found[f"{name} {'parallel' if parallel else 'local'}"] = step
    return found


def measure_model(options, communicator, libraries, name, size):
    """Seconds a step of every contestant, alone, local and parallel."""
    build, shape = MODELS[name]
    mine = np.random.default_rng(1 + communicator.rank)
    batch = mine.standard_normal((size, *shape)).astype(np.float32), mine.integers(0, 10, size)
    steps = make_steps(libraries, build, batch)
    losses = {key: [float(step().item()) for _ in range(WARM)][-1] for key, step in steps.items()}
    for kind in ("local", "parallel"):
        values = [loss for key, loss in losses.items() if kind in key]
        assert np.allclose(values, values[0], rtol=1e-4), losses

    def alone(step):
        def act():
            if communicator.rank == 0:
                step()

        return act

    ways = {key.replace("local", "alone"): alone(step) for key, step in steps.items() if "local" in key}
    ways |= steps
    if options.parts:
        ways |= parts_of(communicator, steps)
    found = ranks.summary(ranks.in_turns(ways, options.rounds, options.repeats, communicator.barrier))
    return found, losses


def parts_of(communicator, steps):
    """Data-parallel steps without some of their communication; what they train is of no use."""
    calls = ("agree", "expect", "perform_all_reduce")

    def lacking(step, names):
        def act():
            held = {name: getattr(communicator, name) for name in names}
            vars(communicator).update(dict.fromkeys(names, lambda *_: None))
            try:
                step()
            finally:
                vars(communicator).update(held)

        return act

    found = {}
    for key, step in steps.items():
        if key.startswith("tenon") and key.endswith("parallel"):
            found[key.replace("parallel", "bucketed")] = lacking(step, calls)
            found[key.replace("parallel", "unsummed")] = lacking(step, calls[2:])
    return found


def show(title, libraries, found):
    """A line for each contestant."""
    for name in libraries:
        alone, local, parallel = (found[f"{name} {kind}"]["min"] for kind in ("alone", "local", "parallel"))
        print(
            f"{title:10} {name:15} alone {alone * 1e3:7.3f} ms, all without communication {local * 1e3:7.3f},"
            f" data parallel {parallel * 1e3:7.3f}: {alone / parallel:.0%} ({local / parallel:.0%})",
            flush=True,
        )
        if f"{name} bucketed" in found:
            bucketed, unsummed = (found[f"{name} {kind}"]["min"] for kind in ("bucketed", "unsummed"))
            print(
                f"{'':10} of that, in ms: another rank's step beside it"
                f" {(local - alone) * 1e3:+.3f}, hooks and buckets {(bucketed - local) * 1e3:+.3f}, waiting"
                f" {(unsummed - bucketed) * 1e3:+.3f}, the sum {(parallel - unsummed) * 1e3:+.3f}",
                flush=True,
            )


def measure(options):
    """What each rank does."""
    import tenon
    import tenon.distributed as dist

    communicator = dist.get_communicator()
    torch = ranks.join_gloo(communicator.rank, communicator.size, options.rendezvous)
    libraries = {"tenon": (tenon, False), "tenon compiled": (tenon, True)}
    if torch is not None:
        libraries["torch gloo"] = torch, False
    results = []
    for model in options.models.split(","):
        name, _, size = model.partition(":")
        found, losses = measure_model(options, communicator, libraries, name, int(size))
        results.append({"model": model, "ranks": communicator.size, "ways": found, "losses": losses})
        if communicator.rank == 0:
            show(model, libraries, found)
    if communicator.rank == 0:
        ranks.write(options.json, results=results)


if __name__ == "__main__":
    ranks.main(
        __doc__,
        measure,
        models={"default": DEFAULT, "help": "names and batch sizes, NAME:BATCH,..."},
        repeats={"type": int, "default": 10},
        parts={"action": "store_true", "help": "time steps without some of their communication, too"},
    )
