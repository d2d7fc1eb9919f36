"""Time every operation of a model with a subclass of Interpreter.

    python examples/fx_profiler.py

PyTorch's program for ``torch.fx``, with another import at the top.
"""

import statistics
import time

import tenon as torch
import tenon.fx as fx
from tenon import nn


class ProfilingInterpreter(fx.Interpreter):
    """Runs a traced model and records the time of the whole and of each node."""

    def __init__(self, model):
        super().__init__(fx.symbolic_trace(model))
        self.total_runtime_sec = []
        self.runtimes_sec = {}

    def run(self, *args):
        start = time.perf_counter()
        result = super().run(*args)
        self.total_runtime_sec.append(time.perf_counter() - start)
        return result

    def run_node(self, n):
        start = time.perf_counter()
        result = super().run_node(n)
        self.runtimes_sec.setdefault(n, []).append(time.perf_counter() - start)
        return result

    def summary(self):
        """Return a row per node, the slowest first: kind, name, milliseconds, share of the total."""
        total = statistics.median(self.total_runtime_sec)
        medians = {node: statistics.median(times) for node, times in self.runtimes_sec.items()}
        rows = sorted(medians.items(), key=lambda row: -row[1])
        lines = [f"{node.op:15} {node.name:12} {1e3 * t:8.3f} ms {t / total:6.1%}" for node, t in rows]
        return "\n".join(lines)


def main():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    interpreter = ProfilingInterpreter(model)
    x = torch.randn(64, 256)
    with torch.no_grad():
        for _ in range(5):
            result = interpreter.run(x)
    torch.testing.assert_close(result, model(x))
    print(interpreter.summary())


if __name__ == "__main__":
    main()
