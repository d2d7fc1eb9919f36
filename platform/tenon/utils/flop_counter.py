"""``torch.utils.flop_counter``: count floating-point operations by module and by operator.

Like PyTorch it counts matrix products, convolutions and attention, forward and backward, a multiplication and
an addition as two operations; other ops are counted if a formula is registered. Built-in figures are those of
the ops (``op.cost``). A counter is the lowest interceptor and counts calls of kernels, so that the cached
results of a selective checkpoint are not counted again.
"""

from __future__ import annotations

import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Self

from tenon.engine.aval import aval_of
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, Kind, Op, cost_of_parts, table
from tenon.engine.running_pass import PASS
from tenon.engine.types import Array, Attrs, Operand
from tenon.engine.value import Value
from tenon.errors import TenonWarning
from tenon.ops.aten import Operator, operator_of
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
    """Counts the floating-point operations within a block, and prints a table at the end if ``display``.

    There is a count for each module that is running, forward or backward, by its path below the class name of
    the outermost one, and for "Global". ``depth``: the number of levels of modules in the table.
    ``custom_mapping``: formulas by operator, which replace registered ones; a formula whose attribute
    ``_get_raw`` is true takes tensors in place of shapes. ``mods`` has no effect.

    >>> import tenon
    >>> model = tenon.nn.Linear(3, 4)
    >>> with FlopCounterMode(display=False) as counter:
    ...     model(tenon.ones(2, 3)).sum().backward()
    >>> counter.get_total_flops(), sorted(counter.get_flop_counts())
    (96, ['Global', 'Linear'])
    """

    #: Interceptors that are added with ``Slot.sink`` stay above this one.
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
        formulas = dict(custom_mapping or {})
        raw = {k: v if getattr(v, "_get_raw", False) else shape_wrapper(v) for k, v in formulas.items()}
        self.flop_registry = {**flop_registry, **raw}
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
        """Return the number of operations of the whole block."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Operator, int]]:
        """Return the counts by path of the module, then by operator, as ``ops.aten.mm``."""
        return {path: dict(counts) for path, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Return the counts as text, with ``depth`` levels of modules, by default those of the counter."""
        depth = self.depth if depth is None else depth
        paths = sorted(p for p in self.flop_counts if p != "Global")
        visible = [p for p in paths if depth is None or p.count(".") < depth]
        total = self.get_total_flops()
        rows = [row for path in visible for row in self._rows(path, path.count("."))]
        if total and all(sum(self.flop_counts[path].values()) < total for path in visible):
            rows = self._rows("Global", 0) + [(f" {name}", *rest) for name, *rest in rows]  # type: ignore[misc]
        return _table_text([("Module", "FLOP", "% Total"), *(rows or [("Global", "0", "0%")])])

    def _rows(self, path: str, indent: int) -> list[tuple[str, str, str]]:
        total, counts = self.get_total_flops(), self.flop_counts[path]
        unit = _unit(total)
        named = [(path, sum(counts.values())), *((f" - {op}", n) for op, n in counts.items())]
        return [
            (" " * indent + name, convert_num_with_suffix(n, unit), convert_to_percent_str(n, total))
            for name, n in named
        ]

    def run(self, op: Op, args: tuple[Operand, ...], attrs: Attrs, compute: Compute | None = None) -> Operand:
        """Run an op, and count it if its kernel was called: see ``dispatch.run`` for ``compute``."""
        below = SLOT.below(self)
        if threading.get_ident() != self._thread or op.view:
            return below(op, args, attrs, compute)
        if isinstance(op, Composite) and not op.differentiable and op.kind not in _PRODUCTS:
            return op.decompose(table, *args, **attrs)
        kernel_called = False

        def counted(kernel: Callable[..., Operand], /, *raw: Array, **options: object) -> Operand:
            def calling(*a: Array, **k: object) -> Operand:
                nonlocal kernel_called
                kernel_called = True
                return kernel(*a, **k)

            return calling(*raw, **options) if compute is None else compute(calling, *raw, **options)

        result = below(op, args, attrs, counted)
        if kernel_called:
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
    """Return PyTorch's operator; for an op over a sequence, that of the product at each step."""
    if op.name in _ATTENTION:
        return Operator(_ATTENTION[op.name])
    if op.name.endswith("_sequence"):
        return Operator("addmm")
    if op.name.endswith("_sequence_grad"):
        return Operator("mm")
    name = operator_of(op, args, attrs)
    if op.kind is Kind.CONVOLVE and PASS.sweep is not None and (not MODE.enabled or PASS.sweep.create_graph):
        return Operator("convolution_backward")  # not the forward pass that a checkpoint repeats
    return name


def _cost(op: Op, avals: list[Operand], attrs: Attrs) -> int:
    if isinstance(op, Composite) and type(op).cost is Composite.cost:
        return int(cost_of_parts(op, tuple(avals), attrs, _PRODUCTS))
    return int(op.cost(*avals, **attrs))


def _unit(number: int) -> str:
    """Return the suffix with which a large number has two to four digits."""
    return _SUFFIXES[max(0, min(len(_SUFFIXES) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: float, suffix: str) -> str:
    """Format ``number`` in the unit of ``suffix``: thousands, millions and so on.

    >>> convert_num_with_suffix(1500, "K")
    '1.500K'
    """
    return f"{number / 1000 ** _SUFFIXES.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: float, denom: float) -> str:
    """Format ``num / denom`` in per cent.

    >>> convert_to_percent_str(1, 8)
    '12.50%'
    """
    return f"{num / denom:.2%}" if denom else "0%"


def _table_text(rows: list[tuple[str, ...]]) -> str:
    """Return rows as a table with headings, the first column aligned to the left, the others to the right."""
    widths = [max(len(rows[0][i]) + 2, *(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    rows = [rows[0], tuple("-" * w for w in widths), *rows[1:]]
    return "\n".join(
        "  ".join(
            (cell.rjust if i else cell.ljust)(w) for i, (cell, w) in enumerate(zip(r, widths, strict=True))
        )
        for r in rows
    )
