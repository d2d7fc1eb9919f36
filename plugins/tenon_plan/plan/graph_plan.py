"""What a captured graph needs and takes here: memory by the plan of its program, operations by its ops, time
measured. ``tenon plan`` prints it for a bundle or an exported program."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tenon
from tenon.errors import ArgumentError, ConfigError, TenonError
from tenon.extend import Aval, CapturedGraph, CompiledRunner, ExportedProgram, Node, Ref, sources_of
from tenon_plan.plan.quantities import duration, size
from tenon_plan.plan.recorded_calls import Result

#: The most runs and seconds for which a program is measured, after one run that is not.
RUNS, SECONDS = 200, 1.0
#: The kernels that are printed.
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Kernel:
    """One step of the program: the ops that it executes, and its measured median time."""

    ops: tuple[str, ...]
    #: Paths of the modules, and lines of the program, that called these ops.
    modules: tuple[str, ...]
    lines: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """Memory, operations and time of a run of a captured graph, in bytes and seconds."""

    name: str
    sizes: Mapping[str, int]
    calls: int
    #: Bytes of state by its kind ("parameter", "buffer", "optimizer", ...), and of constants.
    state: Mapping[str, int]
    #: The number of elements of parameters.
    parameters: int
    #: Bytes of arguments and results.
    arguments: int
    results: int
    #: The arena of intermediate values, and the most of these bytes that are needed at one time.
    arena: int
    alive: int
    #: Floating-point operations of a run, as far as the ops state them.
    operations: float
    seconds: float
    runs: int
    kernels: tuple[Kernel, ...]

    @classmethod
    def of(cls, graph: CapturedGraph, name: str = "graph", **sizes: int) -> GraphPlan:
        """Compile ``graph`` at ``sizes`` of its symbols, and measure runs on zeros.

        >>> graph = tenon.export.capture(tenon.nn.Linear(4, 2).eval(), tenon.ones(3, 4))
        >>> GraphPlan.of(graph).state
        {'parameter': 40}
        """
        fixed = graph.at(**sizes) if graph.symbols or sizes else graph
        runner = CompiledRunner(fixed)
        program = runner.program()
        examples = [np.zeros(node.avals[0].shape, node.avals[0].dtype) for node in fixed.arguments]
        seconds, kernels = _measured(runner, examples)
        kinds = fixed.signature.states
        state: dict[str, int] = {}
        for node in fixed.nodes:
            kind = "constant" if node.kind == "constant" else kinds.get(node.label)
            if kind is not None:
                state[kind] = state.get(kind, 0) + _bytes(node.avals[0])
        symbol_sizes = {symbol: each.example for symbol, each in graph.symbols.items()} | sizes
        return cls(
            name, symbol_sizes, len(fixed.calls), state,
            sum(math.prod(n.avals[0].shape) for n in fixed.states if kinds[n.label] == "parameter"),
            sum(_bytes(node.avals[0]) for node in fixed.arguments),
            sum(_bytes(ref.aval) for ref in fixed.outputs),
            program.plan.peak_bytes, program.plan.lower_bound,
            sum(map(_operations, fixed.calls)), statistics.median(seconds), len(seconds), kernels,
        )  # fmt: skip

    def plain(self) -> dict[str, object]:
        """Return everything as plain values."""
        return {
            "name": self.name,
            "sizes": dict(self.sizes),
            "calls": self.calls,
            "parameters": self.parameters,
            "memory": {
                "state": dict(self.state),
                "arguments": self.arguments,
                "results": self.results,
                "arena": self.arena,
                "alive": self.alive,
            },
            "operations": self.operations,
            "seconds": self.seconds,
            "runs": self.runs,
            "kernels": [
                {"ops": list(k.ops), "modules": list(k.modules), "lines": list(k.lines), "seconds": k.seconds}
                for k in self.kernels
            ],
        }

    @classmethod
    def read(cls, saved: Result) -> GraphPlan:
        """Restore a plan from ``plain`` after a round trip through JSON."""
        own, memory = {**saved}, saved["memory"]
        del own["memory"]
        kernels = [
            Kernel(tuple(k["ops"]), tuple(k["modules"]), tuple(k["lines"]), k["seconds"])
            for k in own.pop("kernels")
        ]
        return cls(**own, **memory, kernels=tuple(kernels))

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield section titles (with empty cells), and rows of a quantity, its value and a remark."""
        yield "memory", "", ""
        for kind, count in self.state.items():
            yield _TITLES.get(kind, f"{kind}s"), size(count), "counted"
        yield "arguments and results", size(self.arguments + self.results), "counted"
        yield self._arena_row()
        yield "a run", "", ""
        yield "operations", f"{self.operations:,.0f}", "floating point, as far as ops state them"
        yield self._time_row("measured here")
        if self.seconds:
            yield "speed", f"{self.operations / self.seconds / 1e9:.3g} GFLOP/s", ""
        yield from self._kernel_rows()

    def program_rows(self, time_remark: str) -> Iterator[tuple[str, str, str]]:
        """Yield the rows of what only the compiled program says: memory, time, and the largest kernels."""
        yield self._arena_row()
        yield self._time_row(time_remark)
        yield from self._kernel_rows()

    def _arena_row(self) -> tuple[str, str, str]:
        return "intermediate values", size(self.arena), f"planned; {size(self.alive)} are needed at one time"

    def _time_row(self, remark: str) -> tuple[str, str, str]:
        return "time", duration(self.seconds), f"{remark}: median of {self.runs} runs on zeros"

    def _kernel_rows(self) -> Iterator[tuple[str, str, str]]:
        total = sum(kernel.seconds for kernel in self.kernels)
        largest = sorted(self.kernels, key=lambda kernel: -kernel.seconds)[:SHOWN]
        yield f"the largest of {len(self.kernels)} kernels", "", ""
        for kernel in largest:
            share = f"{100 * kernel.seconds / total:.0f} %" if total else ""
            places = ", ".join((*kernel.modules, *kernel.lines))
            yield _shown(kernel.ops), share, places[:100]


#: Errors that ``Op.cost`` raises if shapes alone do not determine it.
_UNKNOWN = (TenonError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
_TITLES = {"parameter": "parameters", "optimizer": "optimizer state", "tensor": "other tensors"}


def _shown(ops: Sequence[str]) -> str:
    """Return the names of ops as text, the first ones and the number of the others if they are many.

    >>> _shown(["mul", "sub", "mul", "add", "mul"])
    'mul, sub, mul + 2 more'
    """
    return ", ".join(ops) if len(ops) <= 4 else f"{', '.join(ops[:3])} + {len(ops) - 3} more"


def is_graph(what: str) -> bool:
    """Whether ``what`` is the folder of a bundle or the file of an exported program."""
    return (Path(what) / "manifest.json").is_file() or (Path(what).is_file() and what.endswith(".pt2"))


def plan_file(what: str, sizes: Sequence[str]) -> GraphPlan:
    """Return the plan of a bundle or program at ``sizes``, such as ``batch=64``."""
    loaded = tenon.export.load(what)
    graph = loaded.captured if isinstance(loaded, ExportedProgram) else loaded.graph
    chosen: dict[str, int] = {}
    for text in sizes:
        name, _, number = text.partition("=")
        if not number.isdecimal():
            raise ConfigError(f"--size {text!r} does not name a size. Write e.g. --size batch=64.")
        chosen[name] = int(number)
    if chosen and not graph.symbols:
        raise ArgumentError(
            f"all sizes of {what} are fixed. Export it with --any-batch-size, or leave out --size."
        )
    return GraphPlan.of(graph, what, **chosen)


def _measured(runner: CompiledRunner, examples: list[np.ndarray]) -> tuple[list[float], tuple[Kernel, ...]]:
    """Return the seconds of runs, and the kernels with their median seconds."""
    program = runner.program()
    runner.run(examples)
    seconds: list[float] = []
    ends = time.perf_counter() + SECONDS / 2
    while len(seconds) < RUNS and (len(seconds) < 3 or time.perf_counter() < ends):
        began = time.perf_counter()
        runner.run(examples)
        seconds.append(time.perf_counter() - began)
    marks: list[tuple[int, float]] = []
    program.timed(lambda line: marks.append((line, time.perf_counter())))
    try:
        for _ in range(min(len(seconds), 30)):
            runner.run(examples)
    finally:
        program.timed(None)
    times: dict[int, list[float]] = {}
    for (_, before), (line, after) in itertools.pairwise(marks):
        if line > 0:
            times.setdefault(line, []).append(after - before)
    steps = program.steps()
    return seconds, tuple(_kernel(steps[line], statistics.median(own)) for line, own in times.items())


def _kernel(nodes: Sequence[Node], seconds: float) -> Kernel:
    sources = sources_of(*nodes)

    def distinct(texts: Iterator[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for text in texts if text))

    return Kernel(
        tuple(each.op for each in sources),
        distinct(each.module for each in sources),
        distinct(Path(each.where).name for each in sources),
        seconds,
    )


def _operations(node: Node) -> float:
    operands = [a if not isinstance(a, Ref) else 1.0 if a.scalar else a.aval for a in node.args]
    try:
        return float(node.op.cost(*operands, **node.attrs))
    except _UNKNOWN:
        return 0.0


def _bytes(aval: Aval) -> int:
    return int(math.prod(aval.shape)) * aval.dtype.itemsize
