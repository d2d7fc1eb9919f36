"""torch's ``torch.utils.flop_counter``: floating-point operations of what runs, by module and by operator.

As torch does it counts products only: matrix products, convolutions and attention, forward and backward, a
multiplication and an addition each; everything else has no formula until one is registered. The figures are
the ops' own (``op.cost``). A counter stands at the bottom of the interceptors' slot and counts when a kernel
is called: a result that a checkpoint kept costs nothing the second time.
"""

from __future__ import annotations

import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Self

from tenon.engine.aval import aval_of
from tenon.engine.backward_end import PASS
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, Kind, Op, cost_of_parts, table
from tenon.engine.types import Array, Attrs, Operand
from tenon.engine.value import Value
from tenon.errors import TenonWarning
from tenon.ops.aten import Operator, called
from tenon.utils.flop_formulas import (
    OWN,
    Formula,
    addmm_flop,
    baddbmm_flop,
    bmm_flop,
    conv_backward_flop,
    conv_flop,
    conv_flop_count,
    flop_registry,
    get_shape,
    mm_flop,
    register_flop_formula,
    sdpa_backward_flop,
    sdpa_backward_flop_count,
    sdpa_flop,
    sdpa_flop_count,
    shape_wrapper,
)
from tenon.utils.module_tracker import ModuleTracker

__all__ = [
    "FlopCounterMode",
    "addmm_flop",
    "baddbmm_flop",
    "bmm_flop",
    "conv_backward_flop",
    "conv_flop",
    "conv_flop_count",
    "convert_num_with_suffix",
    "convert_to_percent_str",
    "flop_registry",
    "get_shape",
    "mm_flop",
    "register_flop_formula",
    "sdpa_backward_flop",
    "sdpa_backward_flop_count",
    "sdpa_flop",
    "sdpa_flop_count",
]

_PRODUCTS = frozenset((Kind.CONTRACT, Kind.CONVOLVE))
_ATTENTION = {
    "attention": "_scaled_dot_product_flash_attention",
    "attention_grad": "_scaled_dot_product_flash_attention_backward",
}
_SUFFIXES = ("", "K", "M", "B", "T")


#: Calls a kernel with its arrays and options; see ``dispatch.run``.
Compute = Callable[..., Operand]


class FlopCounterMode:
    """Counts the floating-point operations of what runs inside, and prints a table at the end if ``display``.

    Counts are kept by the path of each module that is running, forward or backward, under the class of the
    outermost one, and under "Global". ``depth``: how many levels of modules the table shows.
    ``custom_mapping``: further formulas by operator, which replace those that are registered; as for
    ``register_flop_formula``, where a formula with a true attribute ``_get_raw`` takes tensors. ``mods`` is
    not needed.

    >>> import tenon
    >>> model = tenon.nn.Linear(3, 4)
    >>> with FlopCounterMode(display=False) as counter:
    ...     model(tenon.ones(2, 3)).sum().backward()
    >>> counter.get_total_flops(), sorted(counter.get_flop_counts())
    (96, ['Global', 'Linear'])
    """

    #: What is sunk in the slot stands above it: see ``Slot.sink``.
    lowest = True

    def __init__(
        self,
        mods: object = None,
        depth: int | None = 2,
        display: bool = True,
        custom_mapping: Mapping[Operator, Formula] | None = None,
    ) -> None:
        if mods is not None:
            warnings.warn(
                "mods argument is not needed anymore, you can stop passing it", TenonWarning, stacklevel=2
            )
        self.depth = depth
        self.display = display
        self.flop_counts: dict[str, dict[Operator, int]] = defaultdict(lambda: defaultdict(int))
        given = dict(custom_mapping or {})
        own = {k: v if getattr(v, "_get_raw", False) else shape_wrapper(v) for k, v in given.items()}
        self.flop_registry = {**flop_registry, **own}
        self.mod_tracker = ModuleTracker()
        self._thread = 0

    def __enter__(self) -> Self:
        self.flop_counts.clear()
        self._thread = threading.get_ident()
        self.mod_tracker.__enter__()
        SLOT.sink(self)
        return self

    def __exit__(self, *exc: object) -> None:
        SLOT.pop(self)
        self.mod_tracker.__exit__()
        if self.display:
            print(self.get_table(self.depth))

    def get_total_flops(self) -> int:
        """Of everything that ran inside."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Operator, int]]:
        """By path of a module, then by operator: ``ops.aten.mm`` finds one."""
        return {path: dict(counts) for path, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, ``depth`` levels of modules deep, or as many as the counter shows."""
        depth = self.depth if depth is None else depth
        paths = sorted(p for p in self.flop_counts if p != "Global")
        shown = [p for p in paths if depth is None or p.count(".") < depth]
        whole = self.get_total_flops()
        rows = [row for path in shown for row in self._rows(path, path.count("."))]
        if whole and all(sum(self.flop_counts[path].values()) < whole for path in shown):
            rows = self._rows("Global", 0) + [(f" {name}", *rest) for name, *rest in rows]  # type: ignore[misc]
        return _laid_out([("Module", "FLOP", "% Total"), *(rows or [("Global", "0", "0%")])])

    def _rows(self, path: str, indent: int) -> list[tuple[str, str, str]]:
        whole, counts = self.get_total_flops(), self.flop_counts[path]
        unit = _unit(whole)
        named = [(path, sum(counts.values())), *((f" - {op}", n) for op, n in counts.items())]
        return [
            (" " * indent + name, convert_num_with_suffix(n, unit), convert_to_percent_str(n, whole))
            for name, n in named
        ]

    def run(self, op: Op, args: tuple[Operand, ...], attrs: Attrs, compute: Compute | None = None) -> Operand:
        """Run an op, and count it if its kernel was called: see ``dispatch.run`` for ``compute``."""
        below = SLOT.below(self)
        if threading.get_ident() != self._thread or op.view:
            return below(op, args, attrs, compute)
        if isinstance(op, Composite) and not op.differentiable and op.kind not in _PRODUCTS:
            return op.decompose(table, *args, **attrs)
        called_it = False

        def counted(kernel: Callable[..., Operand], /, *raw: Array, **options: Any) -> Operand:
            def calling(*a: Array, **k: Any) -> Operand:
                nonlocal called_it
                called_it = True
                return kernel(*a, **k)

            return calling(*raw, **options) if compute is None else compute(calling, *raw, **options)

        result = below(op, args, attrs, counted)
        if called_it:
            self._count(op, args, attrs, result)
        return result

    def _count(self, op: Op, args: tuple[Operand, ...], attrs: Attrs, result: Operand) -> None:
        name = _name(op, args, attrs)
        formula = self.flop_registry.get(name)
        if formula is None:
            return
        if formula in OWN:
            count = _cost(op, [aval_of(a.raw) if isinstance(a, Value) else a for a in args], attrs)
        else:
            count = formula(*args, **attrs, out_val=result)
        for path in self.mod_tracker.parents:
            self.flop_counts[path][name] += count


def _name(op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operator:
    """torch's operator; of one that walks through a sequence, the product at each step."""
    if op.name in _ATTENTION:
        return Operator(_ATTENTION[op.name])
    if op.name.endswith("_sequence"):
        return Operator("addmm")
    if op.name.endswith("_sequence_grad"):
        return Operator("mm")
    name = called(op, args, attrs)
    if op.kind is Kind.CONVOLVE and PASS.inside and (not MODE.enabled or PASS.sweep.create_graph):
        return Operator("convolution_backward")  # and not a part that a checkpoint runs again
    return name


def _cost(op: Op, avals: list[Operand], attrs: Attrs) -> int:
    if isinstance(op, Composite) and type(op).cost is Composite.cost:
        return int(cost_of_parts(op, tuple(avals), attrs, _PRODUCTS))
    return int(op.cost(*avals, **attrs))


def _unit(number: int) -> str:
    """The suffix that leaves two to four digits of a large number."""
    return _SUFFIXES[max(0, min(len(_SUFFIXES) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: float, suffix: str) -> str:
    """``number`` in thousands, millions and so on, as ``suffix`` says.

    >>> convert_num_with_suffix(1500, "K")
    '1.500K'
    """
    return f"{number / 1000 ** _SUFFIXES.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: float, denom: float) -> str:
    """A part in per cent.

    >>> convert_to_percent_str(1, 8)
    '12.50%'
    """
    return f"{num / denom:.2%}" if denom else "0%"


def _laid_out(rows: list[tuple[str, ...]]) -> str:
    """Columns, the first to the left and the others to the right, under headings."""
    widths = [max(len(rows[0][i]) + 2, *(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    rows = [rows[0], tuple("-" * w for w in widths), *rows[1:]]
    return "\n".join(
        "  ".join(
            (cell.rjust if i else cell.ljust)(w) for i, (cell, w) in enumerate(zip(r, widths, strict=True))
        )
        for r in rows
    )
