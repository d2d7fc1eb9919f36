"""``tenon.summary(model, example)``: parameters, memory and FLOPs of a model, module by module.

The model runs once on the meta device, where only shape rules are evaluated: nothing is computed or
allocated, no buffer changes, no random number is drawn. A forward that reads values, or creates tensors on
another device, runs on its real device instead, with buffers and random state restored. FLOPs are those of
``op.cost``.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenon.engine.aval import aval_of
from tenon.engine.interceptor import SLOT
from tenon.engine.op import NotInferable
from tenon.engine.types import Arguments
from tenon.errors import DeviceError, UnsupportedError
from tenon.nn.functional_call import functional_call
from tenon.nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from tenon.nn.module import Module
from tenon.nn.parameter import is_lazy
from tenon.random import fork_rng
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.pytree import tree_leaves, tree_map_only
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.engine.types import Attrs, Nested

__all__ = ["Row", "Summary", "summary"]


#: Width of the table, in characters, if the output is not a terminal.
_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Row:
    """One module, including its children; a module used in several places has one row."""

    path: str
    kind: str
    parameters: int
    parameter_bytes: int
    #: Shapes of the tensors returned by its last call; empty if it was not called.
    output_shapes: tuple[tuple[int, ...], ...]
    #: Bytes of the returned tensors, summed over all calls.
    output_bytes: int
    flops: float
    calls: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The rows in the order of ``named_modules()``, and totals; ``str`` returns the table."""

    rows: tuple[Row, ...]
    parameters: int
    trainable: int
    parameter_bytes: int
    buffer_bytes: int
    flops: float
    #: Total size of the outputs of modules without children.
    output_bytes: int

    def __getitem__(self, path: str) -> Row:
        """Return the row of the module at ``path``."""
        for row in self.rows:
            if row.path == path:
                return row
        raise KeyError(f"no module {path!r} in this summary")

    def __repr__(self) -> str:
        return f"<Summary of {self.rows[0].kind}: {self.parameters:,} parameters, {_short(self.flops)}FLOPs>"

    def __str__(self) -> str:
        text = io.StringIO()
        _print(self, Console(file=text, width=_WIDTH, highlight=False))
        return text.getvalue().rstrip("\n")


class _Counts:
    """Counters of one module."""

    def __init__(self) -> None:
        self.shapes: tuple[tuple[int, ...], ...] = ()
        self.bytes = 0
        self.flops = 0.0
        self.calls = 0


class _Counter:
    """Observer of all module calls and ops."""

    def __init__(self) -> None:
        self.counts_by_module: dict[int, _Counts] = {}
        self.running: list[_Counts] = []

    def enter(self, module: Module, args: Sequence[Tensor]) -> None:
        """Called before a module's forward."""
        self.running.append(self.counts_by_module.setdefault(id(module), _Counts()))

    def leave(self, module: Module, args: Sequence[Tensor], output: Nested) -> None:
        """Called after a module's forward."""
        counts = self.running.pop()
        avals = [aval_of(t.raw) for t in tree_leaves(output) if isinstance(t, Tensor)]
        counts.shapes = tuple(tuple(a.shape) for a in avals)
        counts.bytes += sum(a.size * a.dtype.itemsize for a in avals)
        counts.calls += 1

    def run(self, op: Op, args: Arguments, attrs: Attrs) -> Nested:
        """Count an op for every module that is running, once even for modules that run recursively."""
        result = SLOT.below(self)(op, args, attrs)
        avals = [aval_of(a.raw) if isinstance(a, Tensor) else a for a in args]
        with contextlib.suppress(NotInferable):
            flops = op.cost(*avals, **attrs)
            for counts in dict.fromkeys(self.running):
                counts.flops += flops
        return result

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Context manager: count calls and ops inside."""
        handles = [
            register_module_forward_pre_hook(self.enter),
            register_module_forward_hook(self.leave),
        ]
        SLOT.push(self)
        try:
            yield
        finally:
            SLOT.pop(self)
            for handle in handles:
                handle.remove()


def summary(model: Module, example: Nested) -> Summary:
    """Print a table of ``model``'s modules, and return it as a ``Summary``.

    ``example`` is the input of the model: one argument, a tuple or list of arguments, or a mapping of keyword
    arguments. Its tensors may be on the meta device. The model keeps its mode, buffers and gradients;
    lazy modules stay lazy.

    >>> import tenon
    >>> from tenon import nn
    >>> result = tenon.summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), tenon.ones(2, 4))  # doctest: +SKIP
    >>> result.parameters, result["0"].flops  # doctest: +SKIP
    (40, 128.0)
    """
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    kwargs: dict[str, Nested] = {}
    if isinstance(example, Mapping):
        args, kwargs = (), dict(example)
    lazy = any(is_lazy(p) for p in (*model.parameters(), *model.buffers()))
    counted = copy.deepcopy(model) if lazy else model
    with no_grad():
        counter = _count(counted, args, kwargs, lazy)
    result = _summary_of(counted, counter)
    screen = Console(highlight=False)
    _print(result, screen if screen.is_terminal else Console(highlight=False, width=_WIDTH))
    return result


def _count(model: Module, args: tuple[Nested, ...], kwargs: dict[str, Nested], lazy: bool) -> _Counter:
    """Run ``model`` once, on the meta device if possible; return the counts."""
    counter = _Counter()
    if not lazy:
        try:
            state = {name: t.to("meta") for name, t in (*model.named_parameters(), *model.named_buffers())}
            inputs = tree_map_only(Tensor, lambda t: t.to("meta"), (args, kwargs))
            with counter.listening():
                functional_call(model, state, *inputs)
            return counter
        except (NotInferable, DeviceError, UnsupportedError):
            if any(
                t.device.type == "meta"
                for t in (*model.parameters(), *tree_leaves((args, kwargs)))
                if isinstance(t, Tensor)
            ):
                raise
            counter = _Counter()
    buffers = [(b, b.clone()) for b in model.buffers() if not is_lazy(b)]
    try:
        with fork_rng(), counter.listening():
            model(*args, **kwargs)
    finally:
        for buffer, before in buffers:
            buffer.copy_(before)
    return counter


def _summary_of(model: Module, counter: _Counter) -> Summary:
    """Return the rows and totals of ``model`` from the counts of one run."""
    rows = []
    for path, module in model.named_modules():
        counts = counter.counts_by_module.get(id(module), _Counts())
        parameters = list(module.parameters())
        rows.append(
            Row(
                path,
                type(module).__name__,
                sum(p.numel() for p in parameters),
                sum(p.nbytes for p in parameters),
                counts.shapes,
                counts.bytes,
                counts.flops,
                counts.calls,
            )
        )
    leaves = [r for r, m in zip(rows, model.modules(), strict=True) if not any(True for _ in m.children())]
    return Summary(
        tuple(rows),
        rows[0].parameters,
        sum(p.numel() for p in model.parameters() if p.requires_grad),
        rows[0].parameter_bytes,
        sum(b.nbytes for b in model.buffers()),
        rows[0].flops,
        sum(r.output_bytes for r in leaves),
    )


def _short(number: float, base: float = 1000.0) -> str:
    """Format ``number`` with three digits and an SI prefix."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(number) < base:
            return f"{number:.3g} {prefix}"
        number /= base
    return f"{number:.3g} P"


def _print(result: Summary, console: Console) -> None:
    """Print the table and the totals."""
    table = Table()
    table.add_column("Module", no_wrap=True)
    for heading in ("Parameters", "Output", "FLOPs", "Weights", "Outputs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.rows:
        depth = row.path.count(".") + bool(row.path)
        name = "  " * depth + (f"{row.path.rpartition('.')[2]}: " if row.path else "") + row.kind
        table.add_row(
            escape(f"{name} x{row.calls}" if row.calls > 1 else name),
            f"{row.parameters:,}" if row.parameters else "-",
            " ".join(str(list(s)) for s in row.output_shapes) or "-",
            _short(row.flops).strip() if row.calls else "-",
            f"{_short(row.parameter_bytes)}B" if row.parameters else "-",
            f"{_short(row.output_bytes)}B" if row.calls else "-",
        )
    console.print(table)
    console.print(
        f"{result.parameters:,} parameters ({result.trainable:,} trainable),"
        f" {_short(result.parameter_bytes)}B; buffers {_short(result.buffer_bytes)}B;"
        f" outputs of innermost modules {_short(result.output_bytes)}B; {_short(result.flops)}FLOPs"
    )
