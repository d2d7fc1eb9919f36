"""Training steps with sharded parameters: tenon's fully_shard beside torch's (FSDP2) over gloo, in turns; and
tensor-parallel and pipelined ones.

    python tests/bench/sharded.py                         # 2 ranks, an MLP of 50 M parameters, AdamW
    python tests/bench/sharded.py --width 512 --layers 8 --batch 64
    python tests/bench/sharded.py --ranks 4 --only tenon

One thread a rank. "local" is the same step on every rank without communication, "replicated" is
DistributedDataParallel, "gathered once" keeps parameters from forward to backward (ZeRO-2), "sharded" releases
them after each use (ZeRO-3), for the outermost module too. "tensor" is parallelize_module: layers are split by
columns and by rows in turn, and all ranks have the same batch, so that each computes 1 / N of a step; so it does
in "pipeline", a stage on each rank and 8 microbatches by 1F1B, of which (N - 1) / (N + 7) is idle. All start
from the same weights; losses after some steps have to agree. Bytes are those that a rank sends in a step,
counted, beside the theory: 3 x parameters x (N - 1) / N, and for "tensor" two all-reduces of a batch for each
pair of layers, one less for the input.
"""

import numpy as np
import ranks

WARM = 3
"""Steps before the losses are compared."""
WAYS = ("local", "replicated", "gathered once", "sharded", "tensor", "pipeline")
MICROBATCHES = 8


def mlp(nn, width, layers):
    """Square layers with ReLUs between them."""
    parts = [nn.Linear(width, width) for _ in range(layers)]
    return nn.Sequential(*(part for layer in parts for part in (layer, nn.ReLU())))


def arranged(library, model, way):
    """``model``, distributed in this way."""
    if way == "local":
        return model
    if way == "tensor":
        parallel = library.distributed.tensor.parallel
        styles = parallel.ColwiseParallel, parallel.RowwiseParallel
        plan = {str(2 * i): styles[i % 2]() for i in range(len(model) // 2)}
        mesh = library.distributed.device_mesh.init_device_mesh(
            "cpu", (library.distributed.get_world_size(),)
        )
        return parallel.parallelize_module(model, mesh, plan)
    if way == "replicated":
        return library.nn.parallel.DistributedDataParallel(model)
    fully_shard = library.distributed.fsdp.fully_shard
    release = way == "sharded"
    mesh = library.distributed.device_mesh.init_device_mesh("cpu", (library.distributed.get_world_size(),))
    for layer in model:
        if next(layer.parameters(), None) is not None:
            fully_shard(layer, mesh=mesh, reshard_after_forward=release)
    return fully_shard(model, mesh=mesh, reshard_after_forward=release)


def batch_of(options, seed):
    """Inputs and targets."""
    own = np.random.default_rng(seed)
    shape = options.batch, options.width
    return own.standard_normal(shape, np.float32), own.standard_normal(shape, np.float32)


def make_step(library, options, way, rank):
    """A training step of tenon or torch, which go by the same names."""
    nn = library.nn
    weights = np.random.default_rng(0)
    model = mlp(nn, options.width, options.layers)
    with library.no_grad():
        for parameter in model.parameters():
            scale = 1.4 * parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.0
            drawn = weights.standard_normal(tuple(parameter.shape), np.float32) * np.float32(scale)
            parameter.copy_(library.tensor(drawn))
    if way == "pipeline":
        return pipelined_step(library, options, model, rank)
    model = arranged(library, model, way)
    optimizer = library.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = (library.tensor(array) for array in batch_of(options, 1 if way == "tensor" else 1 + rank))

    def step():
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def pipelined_step(library, options, model, rank):
    """A training step of which this rank computes its stage; its loss on the last one, 0 elsewhere."""
    size, pipelining = library.distributed.get_world_size(), library.distributed.pipelining
    count = len(model) // size
    own = library.nn.Sequential(*list(model)[rank * count : (rank + 1) * count])
    stage = pipelining.PipelineStage(own, rank, size, library.device("cpu"))
    schedule = pipelining.Schedule1F1B(stage, MICROBATCHES, loss_fn=library.nn.functional.mse_loss)
    optimizer = library.optim.AdamW(own.parameters(), lr=1e-4)
    x, y = (library.tensor(array) for array in batch_of(options, 1))

    def step():
        optimizer.zero_grad()
        losses = []
        arguments = [x] if rank == 0 else []
        schedule.step(*arguments, target=y if rank == size - 1 else None, losses=losses, return_outputs=False)
        optimizer.step()
        return library.stack(losses).mean() if losses else library.tensor(0.0)

    return step


def counted_bytes(communicator, step):
    """The bytes of data that this rank sends in a step: what each rank's part of every collective is, once
    for each other rank."""
    from tenon.distributed.communication import communicator as module

    sent = 0

    def count(group, call, perform, args):
        nonlocal sent
        others = group.size - 1
        if call.kind == "all_gather" and call.dtype == "bytes":
            sent += call.shape[0] * others
        elif call.kind == "reduce_scatter":
            sent += call.shape[1] * np.dtype(call.dtype).itemsize * others
        elif call.kind == "all_reduce":  # reduce-scatter, then all-gather
            sent += 2 * int(np.prod(call.shape)) * np.dtype(call.dtype).itemsize * others // group.size
        group.agree(call)
        return perform(*args)

    before, module.around_call = module.around_call, count
    try:
        step()
    finally:
        module.around_call = before
    return sent


def measure(options):
    """What each rank does."""
    import tenon
    import tenon.distributed.fsdp
    import tenon.distributed.pipelining
    import tenon.distributed.tensor.parallel
    from tenon.distributed import get_communicator

    communicator = get_communicator()
    libraries = {"tenon": tenon}
    if options.only != "tenon":
        torch = ranks.join_gloo(communicator.rank, communicator.size, options.rendezvous)
        if torch is not None:
            import torch.distributed.fsdp
            import torch.distributed.pipelining
            import torch.distributed.tensor.parallel

            libraries["torch"] = torch
    chosen = options.ways.split(",") if options.ways else WAYS
    steps = {
        f"{name} {way}": make_step(library, options, way, communicator.rank)
        for name, library in libraries.items()
        for way in chosen
    }
    losses = {key: [float(step().item()) for _ in range(WARM)][-1] for key, step in steps.items()}
    kinds = {"tensor": [], "pipeline": [], "data": []}
    for key, loss in losses.items():
        way = key.split(maxsplit=1)[1]
        kinds.get(way, [] if way == "local" else kinds["data"]).append(loss)
    for equal in kinds.values():
        assert not equal or np.allclose(equal, equal[0], rtol=1e-3), losses
    parameters = sum(p.numel() for p in mlp(tenon.nn, options.width, options.layers).parameters())
    sent = {key: counted_bytes(communicator, step) for key, step in steps.items() if key.startswith("tenon")}
    found = ranks.summary(ranks.in_turns(steps, options.rounds, options.repeats, communicator.barrier))
    if communicator.rank == 0:
        show(options, communicator.size, parameters, found, sent)
        ranks.write(options.json, ways=found, parameters=parameters, sent=sent, losses=losses)


def show(options, size, parameters, found, sent):
    """A line for each contestant."""
    share = 4 * (size - 1) / size
    pairs = options.layers // 2
    theory = {
        True: 2 * share * options.batch * options.width * (2 * pairs - 1),
        False: 3 * share * parameters,
    }
    print(f"{parameters / 1e6:.1f} M parameters, batch {options.batch} on each of {size} ranks", flush=True)
    for key, times in found.items():
        base = found.get(f"{key.split()[0]} local", times)
        text = f"{key:22} {times['min'] * 1e3:9.1f} ms (median {times['median'] * 1e3:9.1f})"
        text += f", {times['min'] / base['min']:5.2f} of local"
        if key.startswith("tenon") and "pipeline" not in key:
            text += f", {sent[key] / 1e6:8.1f} MB sent ({sent[key] / theory['tensor' in key]:.4f} of theory)"
        if key.startswith("tenon"):
            peer = found.get(key.replace("tenon", "torch"))
            if peer is not None:
                text += f", torch / tenon {peer['min'] / times['min']:.2f}"
        print(text, flush=True)


if __name__ == "__main__":
    ranks.main(
        __doc__,
        measure,
        width={"type": int, "default": 2048},
        layers={"type": int, "default": 12},
        batch={"type": int, "default": 128},
        repeats={"type": int, "default": 1},
        ways={"help": "some of " + ", ".join(WAYS)},
        only={"choices": ["tenon"], "help": "without torch"},
    )
