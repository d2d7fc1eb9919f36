"""Peak memory of a training step of a 20-layer MLP, tenon and PyTorch: ``python tests/bench/memory.py``.

Each library runs in a process of its own. After its import, and one step of a tiny network that makes it load
what it loads late (thread pools, BLAS buffers, the optimizer), the process's resident memory is the base.
Then the network is built and trained for some steps, and the highest resident memory since the base counts:
weights, gradients, optimizer state, activations and every temporary. It is the kernel that measures
(``VmHWM``, reset at the base through ``/proc/self/clear_refs``; where that is not allowed, ``ru_maxrss``,
which cannot be reset), so it does not matter whose allocator or whose language the memory belongs to.

Two shapes: ``activations`` (wide batch: what backward frees, and when, decides) and ``weights`` (small batch:
parameters, gradients and optimizer state decide).
"""

import argparse
import json
import os
import resource
import subprocess
import sys

BAR = 1.3
LAYERS = 20
#: Name -> (batch, width). 20 activations of 16 MiB; 20 weights of 4 MiB.
SHAPES = {"activations": (8192, 512), "weights": (32, 1024)}
TINY = {"activations": (64, 16), "weights": (4, 32)}


def resident(field):
    """``VmRSS`` or ``VmHWM`` of this process in bytes."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; this bench needs Linux.")


def highest():
    """The highest resident memory since the last reset."""
    return max(resident("VmHWM"), resident("VmRSS"))


def reset_highest():
    """Start a new high-water mark at the present; False where the kernel does not allow it."""
    try:
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
    except OSError:
        return False
    return highest() <= resident("VmRSS") + (1 << 20)


def train(T, batch, width, layers, steps):
    """``steps`` steps of Adam on an MLP."""
    nn = T.nn
    body = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    net = nn.Sequential(*body)
    optimizer = T.optim.Adam(net.parameters())
    x, y = T.randn(batch, width), T.randn(batch, width)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def measure(library, batch, width, steps):
    """In the child: bytes from the base to the peak."""
    if library == "torch":
        import torch as T

        T.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    else:
        import tenon as T
    train(T, 8, 8, 2, 2)
    was_reset = reset_highest()
    base = resident("VmRSS")
    T.manual_seed(0)
    loss = train(T, batch, width, LAYERS, steps)
    peak = highest() if was_reset else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"bytes": peak - base, "base": base, "loss": loss, "reset": was_reset}


def child(library, batch, width, given):
    """``measure`` in a process of its own."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(given.threads))
    command = [
        sys.executable,
        __file__,
        "--child",
        library,
        str(batch),
        str(width),
        "--steps",
        str(given.steps),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: to see that all of it runs")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        library, batch, width = given.child
        print(json.dumps(measure(library, int(batch), int(width), given.steps)))
        return
    results = []
    print(f"{'shape':14}{'tenon MiB':>11}{'torch MiB':>11}{'tenon / torch':>15}   bar {BAR}")
    for name, (batch, width) in (TINY if given.tiny else SHAPES).items():
        ours, theirs = (child(library, batch, width, given) for library in ("tenon", "torch"))
        if not abs(ours["loss"] - theirs["loss"]) <= 1e-4 * abs(theirs["loss"]):
            sys.exit(f"{name}: the losses differ: {ours['loss']} (tenon), {theirs['loss']} (torch)")
        ratio = ours["bytes"] / theirs["bytes"] if theirs["bytes"] else float("nan")
        results.append(
            {"shape": name, "batch": batch, "width": width, "tenon": ours, "torch": theirs, "ratio": ratio}
        )
        print(f"{name:14}{ours['bytes'] / 2**20:11.1f}{theirs['bytes'] / 2**20:11.1f}{ratio:15.2f}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"bar": BAR, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
