"""A model of several times the memory limit of a rank, trained with fully_shard; beside it the whole on one rank.

    python tests/bench/sharded_memory.py                              # 805 M parameters, 4 ranks, 3 times the limit
    python tests/bench/sharded_memory.py --width 1024 --layers 8 --times 0.3

The limit is one of address space (``ulimit -v``): parameters, gradients and the two states of AdamW take ``--times``
as much. Each rank has one thread and a batch of its own. The whole model is trained by one rank without a limit,
alone; throughput is that of a core, so with fewer cores than ranks these share them. Needs about 4 x 4 bytes x
parameters of memory, first for the whole, then for all ranks together.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time

import ranks


def build(width, layers):
    """Square layers with ReLUs between them."""
    from tenon import nn

    parts = [nn.Linear(width, width) for _ in range(layers)]
    return nn.Sequential(*(part for layer in parts for part in (layer, nn.ReLU())))


def sharded(model, limit):
    """``model``, which is on the meta device, sharded layer by layer, below the limit from here on."""
    from tenon.distributed.fsdp import fully_shard

    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for layer in model:
        if next(layer.parameters(), None) is not None:
            fully_shard(layer, reshard_after_forward=True)
    return fully_shard(model, reshard_after_forward=True)


def train(options):
    """What each rank does: steps, and their seconds and losses."""
    import tenon
    from tenon import nn
    from tenon.distributed import get_communicator

    communicator = get_communicator()
    with tenon.device("meta"):
        model = build(options.width, options.layers)
    needed = 4 * 4 * sum(p.numel() for p in model.parameters())
    limit = int(needed / options.times)
    if options.role == "sharded":
        model = sharded(model, limit)
    model.to_empty(device="cpu")
    tenon.manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=(2 / options.width) ** 0.5)
        else:
            nn.init.zeros_(parameter)
    optimizer = tenon.optim.AdamW(model.parameters(), lr=1e-5)
    generator = tenon.Generator().manual_seed(communicator.rank)
    x = tenon.randn(options.batch, options.width, generator=generator)
    seconds, losses = [], []
    for _ in range(options.rounds + 1):
        communicator.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = (model(x) - 0.1).pow(2).mean()
        loss.backward()
        optimizer.step()
        communicator.barrier()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    if communicator.rank == 0:
        found = {
            "limit": limit, "needed": needed, "seconds": min(seconds[1:]), "losses": losses,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        }  # fmt: skip
        with open(options.found, "w", encoding="utf-8") as out:
            json.dump(found, out)


def started(role, count, folder):
    """Run ``train`` on ``count`` ranks; return what rank 0 found."""
    file = os.path.join(folder, f"{role}.json")
    status = ranks.start(count, [*sys.argv[1:], "--role", role, "--found", file])
    if status:
        raise SystemExit(status)
    with open(file, encoding="utf-8") as found:
        return json.load(found)


def main():
    """Start both, or be a rank of one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--times", type=float, default=3.0)
    parser.add_argument("-n", "--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--found", help=argparse.SUPPRESS)
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        train(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        whole = started("whole", 1, folder)
        parts = started("sharded", options.ranks, folder)
    cores = min(options.ranks, os.cpu_count() or 1)
    alone = options.batch / whole["seconds"]
    each = options.batch * options.ranks / parts["seconds"] / cores
    print(
        f"{parts['needed'] / parts['limit']:.2f} times the limit of {parts['limit'] >> 20} MiB trains on"
        f" {options.ranks} ranks, peak {parts['peak'] >> 20} MiB each; losses {parts['losses'][0]:.4f} to"
        f" {parts['losses'][-1]:.4f}"
    )
    print(
        f"whole on one rank {alone:.1f} samples a second and core (peak {whole['peak'] >> 20} MiB), sharded"
        f" {each:.1f}: {each / alone:.0%}"
    )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"whole": whole, "sharded": parts, "share": each / alone}, out, indent=1)


if __name__ == "__main__":
    main()
