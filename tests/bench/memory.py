"""Peak memory of training steps, tenon and PyTorch, eager and compiled: ``python tests/bench/memory.py``.

Each library runs in a process of its own. After its import, and one step of a tiny network that makes it load
what it loads late (thread pools, BLAS buffers, the optimizer), the process's resident memory is the base.
Then the network is built and trained for some steps, and the highest resident memory since the base counts:
weights, gradients, optimizer state, activations and every temporary. It is the kernel that measures
(``VmHWM``, reset at the base through ``/proc/self/clear_refs``; where that is not allowed, ``ru_maxrss``,
which cannot be reset), so it does not matter whose allocator or whose language the memory belongs to.

Two shapes of a 20-layer MLP, eager: ``activations`` (wide batch: what backward frees, and when, decides) and
``weights`` (small batch: parameters, gradients and optimizer state decide). Then rows b, c and d of ``cpu.py``,
compiled: there the mark starts when the programs are made, since compilers need memory of their own, and PyTorch
counts with the smaller of its eager and its compiled step. Before the base and before the steps both libraries
give back what they have freed (``malloc_trim``): it is what steps need that counts, not what a compiler left, and
memory that was free at the base would otherwise be counted for nothing.
"""

import argparse
import ctypes
import gc
import json
import os
import resource
import subprocess
import sys

import programs

#: Most that tenon may need of PyTorch's bytes: eager, compiled.
BAR, COMPILED_BAR = 1.3, 1.0
#: Rows of ``cpu.py`` and their programs.
COMPILED = {"b": "mlp", "c": "cnn", "d": "gpt"}
#: What runs before, so that libraries, thread pools and code generators are loaded: programs and sizes.
WARM = {"mlp": {"batch": 64, "width": 128}, "cnn": {"batch": 4, "channels": 8}}
#: Calls until a compiled step has its program.
CALLS = 5
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
    train(T, 256, 256, 2, 2)  # large enough for every kind of kernel
    was_reset = reset_highest()
    base = resident("VmRSS")
    T.manual_seed(0)
    loss = train(T, batch, width, LAYERS, steps)
    peak = highest() if was_reset else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"bytes": peak - base, "base": base, "loss": loss, "reset": was_reset}


def measure_program(library, name, way, tiny, steps):
    """In the child: bytes from before the network is built to the peak of steps that run as they always will."""
    if library == "torch":
        import torch as T

        T.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    else:
        import tenon as T
    for early, sizes in WARM.items():
        run_program(T, early, way, programs.TINY[early] if tiny else sizes, CALLS)
    give_back()
    base = resident("VmRSS")
    step, loss = run_program(T, name, way, programs.TINY[name] if tiny else {}, CALLS)
    give_back()
    was_reset = reset_highest()
    for _ in range(steps):
        step()
    peak = highest() if was_reset else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"bytes": peak - base, "base": base, "loss": loss, "reset": was_reset}


def give_back():
    """Drop what nobody refers to, and return free memory to the system."""
    gc.collect()
    c_library = ctypes.CDLL(None)
    if hasattr(c_library, "malloc_trim"):
        c_library.malloc_trim(0)


def run_program(T, name, way, sizes, calls):
    """A step of a program, and its loss after some calls."""
    program = programs.PROGRAMS[name](T, **sizes)
    step = program.step
    if way == "compiled" and T.__name__ == "torch":
        program.loss = T.compile(program.loss)
    elif way == "compiled":
        compiled = T.compile(program.step_on)
        step = lambda: compiled(*program.batch)  # noqa: E731
    for _ in range(calls):
        loss = step().item()
    return step, loss


def child(library, given, *what):
    """``measure`` or ``measure_program`` in a process of its own."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(given.threads))
    command = [sys.executable, __file__, "--child", library, *map(str, what), "--steps", str(given.steps)]
    command += ["--tiny"] * given.tiny
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
        library, what, how = given.child
        if what in programs.PROGRAMS:
            print(json.dumps(measure_program(library, what, how, given.tiny, given.steps)))
        else:
            print(json.dumps(measure(library, int(what), int(how), given.steps)))
        return
    results = []
    print(f"{'shape':14}{'tenon MiB':>11}{'torch MiB':>11}{'tenon / torch':>15}   bars {BAR}, {COMPILED_BAR}")
    for name, (batch, width) in (TINY if given.tiny else SHAPES).items():
        ours, theirs = (child(library, given, batch, width) for library in ("tenon", "torch"))
        results.append(compared(name, BAR, ours, theirs))
    for row, name in list(COMPILED.items())[: 1 if given.tiny else None]:
        ours = child("tenon", given, name, "compiled")
        others = [child("torch", given, name, way) for way in ("eager", "compiled")[: 1 if given.tiny else 2]]
        results.append(compared(f"{row} compiled", COMPILED_BAR, ours, min(others, key=lambda o: o["bytes"])))
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"results": results}, file, indent=1)


def compared(name, bar, ours, theirs):
    """A line of the table."""
    if not abs(ours["loss"] - theirs["loss"]) <= 1e-2 * abs(theirs["loss"]):
        sys.exit(f"{name}: the losses differ: {ours['loss']} (tenon), {theirs['loss']} (torch)")
    ratio = ours["bytes"] / theirs["bytes"] if theirs["bytes"] else float("nan")
    print(f"{name:14}{ours['bytes'] / 2**20:11.1f}{theirs['bytes'] / 2**20:11.1f}{ratio:15.2f}", flush=True)
    return {"shape": name, "tenon": ours, "torch": theirs, "ratio": ratio, "bar": bar}


if __name__ == "__main__":
    main()
