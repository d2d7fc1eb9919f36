"""Time to capture and to trace a model, and to write the trace, in tenon and in torch:
``python tests/bench/tracing.py``.

One thread. All ways take turns in one process; the best of all rounds of each counts. The ratios are those to
torch's way of the same line.
"""

import argparse
import io
import json
import os
import warnings

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
os.environ.update(dict.fromkeys(POOLS, "1"))

import torch  # noqa: E402 - after the sizes of the thread pools
from turns import clock_of  # noqa: E402

import tenon  # noqa: E402


def residual_network(t, blocks):
    """A ResNet of ``blocks`` blocks in four stages of 8 to 64 channels."""
    nn = t.nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU()
            self.down = None
            if stride != 1 or inputs != outputs:
                self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            return self.relu(y + (x if self.down is None else self.down(x)))

    layers, channels = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()], 8
    for number in range(blocks):
        own = 8 << (4 * number // blocks)
        layers.append(Block(channels, own, 1 if own == channels else 2))
        channels = own
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def models(t, depth):
    """By name, a module and its argument; ``depth`` is a fraction of the full one."""
    layer = t.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = t.nn.TransformerEncoder(layer, max(1, int(6 * depth)), enable_nested_tensor=False)
    return {
        "resnet of 8 blocks": (residual_network(t, max(1, int(8 * depth))), t.randn(2, 3, 32, 32)),
        "encoder of 6 layers": (encoder, t.randn(2, 8, 32)),
    }


def saved(trace):
    """Write a trace to memory."""
    trace.save(io.BytesIO()) if isinstance(trace, tenon.jit.ScriptModule) else trace.save_to_buffer()


def ways(t, name, depth):
    """What is timed, by line of the table."""
    module, x = models(t, depth)[name]
    module.eval()
    batch = t.export.Dim("batch")
    found = {
        "jit.trace": lambda: t.jit.trace(module, (x,), check_trace=False),
        "jit.trace, checked": lambda: t.jit.trace(module, (x,)),
        "jit.trace, and save": lambda: saved(t.jit.trace(module, (x,))),
        "export": lambda: t.export.export(module, (x,)),
        "export, any batch": lambda: t.export.export(module, (x,), dynamic_shapes=({0: batch},)),
    }
    if t is tenon:
        found["jit.trace, fixed sizes"] = lambda: t.jit.trace(module, (x,), check_trace=False, dynamic={})
        found["capture"] = lambda: t.export.capture(module, x)
    return found


def measure(name, given):
    """Best seconds of each way of each library."""
    libraries = (tenon,) if given.alone else (tenon, torch)
    works = {(t.__name__, way): work for t in libraries for way, work in ways(t, name, given.depth).items()}
    clock = clock_of(given.cpu_time)
    best = dict.fromkeys(works, float("inf"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(given.rounds + 1):  # the first one compiles kernels
            for key, work in works.items():
                begin = clock()
                work()
                best[key] = min(best[key], clock() - begin)
    return best


def main():
    """Print one line a model and way."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depth", type=float, default=1.0, help="a fraction of the blocks and layers")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, for a busy machine")
    parser.add_argument("--alone", action="store_true", help="without torch")
    parser.add_argument("--json", help="write the results to this file, too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # torch's own check of its traces fails with it
    print(f"{'':44}{'tenon ms':>10}{'torch ms':>10}{'ratio':>7}")
    results = []
    for name in models(tenon, given.depth):
        best = measure(name, given)
        for library, way in best:
            if library != "tenon":
                continue
            own, other = best["tenon", way] * 1e3, best.get(("torch", way), float("nan")) * 1e3
            row = f"{own:10.1f}{other:10.1f}{own / other:7.2f}" if other == other else f"{own:10.1f}"
            print(f"{name + ', ' + way:44}{row}")
            results.append(
                {"model": name, "way": way, "ms": own, "torch ms": other if other == other else None}
            )
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"results": results}, file, indent=1)


if __name__ == "__main__":
    main()
