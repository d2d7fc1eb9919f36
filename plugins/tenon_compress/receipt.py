"""``receipt_of``: measure a model and its compressed version side by side.

Nothing here is an estimate. Bytes are those of a file that is written, times are those of alternating runs of
the two models in evaluation mode, and the outputs are compared on the example. Slowdowns are reported in
words.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenon import Tensor, no_grad, save
from tenon.errors import ArgumentError
from tenon.extend import pytree
from tenon.nn.module import Module
from tenon.nn.weights import pipeline_of

#: What a model is called with: one argument, a tuple or list of them, or a mapping of keyword arguments.
Example: TypeAlias = object
#: Positional and keyword arguments.
Call: TypeAlias = tuple[tuple[object, ...], dict[str, object]]
#: What accuracy is measured with: a function of a model, or an iterable of tuples or lists ``(inputs,
#: labels)``.
Data: TypeAlias = Callable[[Module], float] | Iterable[Any]
#: Times whose ratio differs from 1 by at most this much count as equal.
NOISE = 0.1
#: The width of the table without times, and of a column of times, where no terminal sets the width.
_WIDTH, _WIDTH_OF_A_TIME = 92, 28
#: The path shown for a model that is a single layer itself.
_MODEL_PATH = "(model)"


@dataclass(frozen=True, slots=True)
class Change:
    """A number before and after compression."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """``after / before``; 1 if both are 0."""
        return self.after / self.before if self.before else 1.0 if self.after == 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Row:
    """A layer, that is a module without children, or the whole model (with the path "")."""

    path: str
    #: Class names, "Linear -> QuantizedLinear" where they differ; ", only stored" if computed as floats.
    kind: str
    #: The number of elements of parameters, quantized ones included.
    parameters: Change
    #: The bytes of its parameters and buffers; of the whole model those of the file.
    bytes: Change
    #: Seconds of the fastest run, by batch size; empty for a layer that not both models call.
    seconds: Mapping[int, Change]

    @property
    def changed(self) -> bool:
        """Whether the layer's class, parameters or bytes changed."""
        sizes = (self.parameters, self.bytes)
        return not self.path or " -> " in self.kind or any(c.before != c.after for c in sizes)


@dataclass(frozen=True)
class Receipt:
    """The changes, by layer and in total; ``str`` returns a table."""

    rows: tuple[Row, ...]
    total: Row
    #: The largest absolute difference of any output on the example; NaN without an example.
    output_change: float
    #: The accuracy on the data; None without data.
    accuracy: Change | None = None
    #: Remarks, such as which layers were left unchanged and why.
    notes: tuple[str, ...] = field(default=())

    def __getitem__(self, path: str) -> Row:
        """Return the row of the layer at ``path``; "" is the whole model."""
        for row in (self.total, *self.rows):
            if row.path == path:
                return row
        raise KeyError(f"no layer {path!r} in this receipt")

    @property
    def slower(self) -> tuple[str, ...]:
        """A sentence for every changed layer that takes longer than before, the whole model first."""
        return tuple(
            f"{row.path or 'the model'} takes {change.ratio:.2f}x as long as before at batch {batch}:"
            f" {_time_text(change.before)} before, {_time_text(change.after)} now."
            for row in (self.total, *self.rows)
            for batch, change in row.seconds.items()
            if change.ratio > 1 + NOISE and row.changed
        )

    def show(self) -> None:
        """Print the table at the width of the terminal."""
        screen = Console(highlight=False)
        self._print(screen if screen.is_terminal else Console(highlight=False, width=self._width))

    @property
    def _width(self) -> int:
        return _WIDTH + _WIDTH_OF_A_TIME * len(self.total.seconds)

    def __str__(self) -> str:
        text = io.StringIO()
        self._print(Console(file=text, width=self._width, highlight=False))
        return text.getvalue().rstrip("\n")

    def _print(self, console: Console) -> None:
        table = Table()
        table.add_column("Layer", overflow="fold")
        for heading in ("Parameters", "Bytes", *(f"Time, batch {b}" for b in self.total.seconds)):
            table.add_column(heading, justify="right")
        for row in (*self.rows, self.total):
            if row is self.total:
                table.add_section()
            times = (row.seconds.get(batch) for batch in self.total.seconds)
            table.add_row(
                escape(f"{row.path}: {row.kind}") if row.path else "total (bytes: the file)",
                _change_text(row.parameters, lambda n: f"{n:,.0f}"),
                _change_text(row.bytes, _bytes_text),
                *("-" if change is None else _change_text(change, _time_text) for change in times),
            )
        console.print(table)
        if math.isnan(self.output_change):
            console.print("Nothing was run. Give an example for times and the change of the outputs.")
        else:
            console.print(f"Largest change of an output on the example: {self.output_change:.3g}")
        if self.accuracy is not None:
            before, after = self.accuracy.before, self.accuracy.after
            console.print(f"Accuracy: {before:.4f} before, {after:.4f} now ({after - before:+.4f})")
        for note in self.notes:
            console.print(f"Note: {note}", markup=False)
        for sentence in self.slower:
            console.print(f"Slower: {sentence}", markup=False)


def receipt_of(
    before: Module,
    after: Module,
    example: Example,
    *,
    batch_sizes: Sequence[int] = (),
    data: Data | None = None,
    notes: Sequence[str] = (),
    seconds: float = 0.2,
) -> Receipt:
    """Run ``before`` and ``after`` alternately and compare their costs and outputs.

    ``example`` is what both are called with: one argument, a tuple or list of them, or a mapping of keyword
    arguments; with None they are run on ``data`` alone. ``batch_sizes`` are measured by repeating or cutting
    its tensors along the first axis; without them the example is run as it is. ``data`` is an iterable of
    ``(inputs, labels)``, to measure the accuracy of the largest output, or a function ``model -> float``.
    ``seconds`` are spent per model and batch size. Modes and gradients of the models are not changed.
    """
    if (
        isinstance(batch_sizes, (str, bytes))
        or not isinstance(batch_sizes, Collection)
        or any(isinstance(b, bool) or not isinstance(b, int) or b < 1 for b in batch_sizes)
    ):
        raise ArgumentError(
            f"batch_sizes: batch sizes are whole numbers from 1 on, got {batch_sizes!r}: give [1, 32]."
        )
    data = list(data) if isinstance(data, Iterator) else data  # it is iterated over twice
    change = math.nan
    totals: dict[int, Change] = {}
    layers: dict[int, dict[str, Change]] = {}
    with evaluating(before), evaluating(after), no_grad():
        if example is not None:
            args, kwargs = call = call_of(example)
            change = difference(before(*args, **kwargs), after(*args, **kwargs))
            batch = next(
                (t.shape[0] for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.dim()),
                1,
            )
            for size in batch_sizes or (batch,):
                resized = call if size == batch else _with_batch_size(call, batch, size)
                totals[size] = _fastest_runs(before, after, resized, seconds)
                layers[size] = _layer_times(before, after, resized, seconds)
        accuracy = None if data is None else Change(_accuracy(before, data), _accuracy(after, data))
    old, new = _layers(before), _layers(after)
    folded = {p: m for p, m in after.named_modules() if not (m._modules or m._parameters or m._buffers)}
    new |= {path: folded[path] for path in old if path in folded}
    rows = tuple(
        _row(
            path, old.get(path), new.get(path), {size: by[path] for size, by in layers.items() if path in by}
        )
        for path in {**old, **new}
    )
    count = Change(_parameters(before), _parameters(after))
    total = Row("", type(after).__name__, count, Change(_file_bytes(before), _file_bytes(after)), totals)
    return Receipt(rows, total, change, accuracy, tuple(notes))


def call_of(example: Example) -> Call:
    """Return the positional and keyword arguments of a call with ``example``."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example) if isinstance(example, (tuple, list)) else (example,)), {}


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """Put every module of ``model`` into evaluation mode inside the block."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def difference(one: Tensor | Sequence[Tensor | None], other: Tensor | Sequence[Tensor | None]) -> float:
    """Return the largest absolute difference of the tensors in two nests; infinite if shapes differ."""
    pairs = [[t for t in pytree.tree_leaves(nest) if isinstance(t, Tensor)] for nest in (one, other)]
    if [t.shape for t in pairs[0]] != [t.shape for t in pairs[1]]:
        return float("inf")
    differences = [
        float((a.double() - b.double()).abs().max()) for a, b in zip(*pairs, strict=True) if a.numel()
    ]
    return float("inf") if any(d != d for d in differences) else max(differences, default=0.0)


def _with_batch_size(call: Call, batch: int, size: int) -> Call:
    """Repeat or cut tensors of ``batch`` rows to ``size`` rows."""

    def resize(tensor: Tensor) -> Tensor:
        if not tensor.dim() or tensor.shape[0] != batch:
            return tensor
        return tensor[[i % batch for i in range(size)]]

    return pytree.tree_map_only(Tensor, resize, call)


def _fastest_runs(before: Module, after: Module, call: Call, seconds: float) -> Change:
    """Return the times of the fastest of alternating runs during ``seconds`` per model, five at least."""
    args, kwargs = call
    times: tuple[list[float], list[float]] = ([], [])
    for model in (before, after):
        model(*args, **kwargs)
    while len(times[0]) < 5 or sum(times[0]) + sum(times[1]) < 2 * seconds:
        for model, spent in zip((before, after), times, strict=True):
            start = time.perf_counter()
            model(*args, **kwargs)
            spent.append(time.perf_counter() - start)
    return Change(min(times[0]), min(times[1]))


def _layer_times(before: Module, after: Module, call: Call, seconds: float) -> dict[str, Change]:
    """Return the fastest time of each layer that both models call, summed over its calls in a run."""
    args, kwargs = call
    end = time.perf_counter() + seconds
    clocks = _Clock(before), _Clock(after)
    try:
        while len(clocks[0].runs) < 5 or time.perf_counter() < end:
            for model, clock in zip((before, after), clocks, strict=True):
                model(*args, **kwargs)
                clock.end()
    finally:
        for clock in clocks:
            clock.remove()
    old, new = (clock.fastest() for clock in clocks)
    return {path: Change(old[path], new[path]) for path in old if path in new}


class _Clock:
    """Hooks that sum up the time of each layer of a model in a run."""

    def __init__(self, model: Module) -> None:
        self.runs: list[dict[str, float]] = []
        self.run: dict[str, float] = {}
        self.starts: dict[str, float] = {}
        self.handles = [h for path, module in _layers(model).items() for h in self._watch(path, module)]

    def _watch(self, path: str, module: Module) -> tuple[Any, Any]:  # two handles
        def enter(module: Module, args: Sequence[Tensor]) -> None:
            self.starts[path] = time.perf_counter()

        def leave(module: Module, args: Sequence[Tensor], output: Tensor) -> None:
            self.run[path] = self.run.get(path, 0.0) + time.perf_counter() - self.starts[path]

        return module.register_forward_pre_hook(enter), module.register_forward_hook(leave)

    def end(self) -> None:
        """Finish a run."""
        self.runs.append(self.run)
        self.run = {}

    def fastest(self) -> dict[str, float]:
        """Return the fastest time of each layer that every run called."""
        return {p: min(r[p] for r in self.runs) for p in self.runs[0] if all(p in r for r in self.runs)}

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()


def _layers(model: Module) -> dict[str, Module]:
    """Return the layers by path: the outermost modules with parameters or buffers of their own.

    Attention and other layers that read the parameters of their children are one layer with them.
    """
    layers: dict[str, Module] = {}
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{above}.") for above in layers if above)
        if not inside and (module._parameters or module._buffers) and path:
            layers[path] = module
    return layers or {_MODEL_PATH: model}


def _row(path: str, old: Module | None, new: Module | None, seconds: Mapping[int, Change]) -> Row:
    from tenon_compress.quantize.scheme import only_stored  # imports this module

    kinds = [type(module).__name__ for module in (old, new) if module is not None]
    stored = ", only stored" if new is not None and any(map(only_stored, new.modules())) else ""
    parameters, stored_bytes = (
        Change(*(0 if module is None else count(module) for module in (old, new)))
        for count in (_parameters, _stored_bytes)
    )
    return Row(path, " -> ".join(dict.fromkeys(kinds)) + stored, parameters, stored_bytes, seconds)


def _parameters(module: Module) -> int:
    """Return the number of elements of parameters, with the quantized tensors that replaced some of them."""
    from tenon_compress.quantize.layers import QuantizedLayer
    from tenon_compress.quantize.scheme import Decoded

    count: int = sum(p.numel() for p in module.parameters())
    quantized: dict[int, int] = {}  # by the id of the tensor, which tied layers share
    for each in module.modules():
        if isinstance(each, QuantizedLayer):
            buffers = ((name, tensor) for name, tensor in each._buffers.items() if tensor is not None)
            named = (
                (n, t) for n, t in buffers if n.startswith(("weight", "bias")) and not n.endswith("scale")
            )
            quantized |= {id(tensor): tensor.numel() for _, tensor in named}
        pipelines = (pipeline_of(each, name) for name in vars(each).get("_weights", ()))
        for pipeline in pipelines:
            if pipeline is not None and isinstance(pipeline.steps[0], Decoded):
                quantized[id(pipeline.originals(each)[0])] = math.prod(pipeline.steps[0].shape)
    return count + sum(quantized.values())


def _stored_bytes(module: Module) -> int:
    return sum(t.nbytes for t in (*module.parameters(), *module.buffers()))


def _file_bytes(model: Module) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        save(model.state_dict(), path)
        return os.path.getsize(path)


def _accuracy(model: Module, data: Data) -> float:
    if callable(data) and not isinstance(data, Iterable):
        return float(data(model))
    right = seen = 0
    for inputs, labels in data:
        right += int((model(inputs).argmax(-1) == labels).sum())
        seen += labels.numel()
    if not seen:
        raise ArgumentError("the data for the accuracy has no labels in it. Give at least one batch.")
    return right / seen


def _change_text(change: Change, text: Callable[[float], str]) -> str:
    if change.before == change.after:
        return text(change.after)
    return f"{text(change.before)} -> {text(change.after)} ({change.ratio:.2f}x)"


def _bytes_text(number: float) -> str:
    for unit in ("B", "kB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.2f} MB"


def _time_text(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
