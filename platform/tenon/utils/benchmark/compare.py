"""``Compare``: measurements as a table, rows by sub-label and columns by description."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable

from tenon.utils.benchmark.measurement import (
    Measurement,
    ordered_unique,
    select_unit,
    trim_sigfig,
    unit_to_english,
)

_BEST, _GOOD, _POOR, _WORST = "\033[92m\033[1m", "\033[34m\033[1m", "\033[2m\033[91m", "\033[31m\033[1m"
_END = "\033[0m\033[0m"
_NOTE = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100."


class Colorize(enum.Enum):
    """To which times the colors are relative: none, those of the column, or those of the row."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


#: Of a row: number of threads, environment and name.
RowKey = tuple[int, str, str]


class Compare:
    """Tables of measurements, one per label: ``print(Compare(measurements))``.

    Rows are sub-labels (or statements), grouped by number of threads; columns are descriptions. Measurements
    of one task are merged.
    """

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trim = self._warn = False
        self._colors = Colorize.NONE
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements to the tables; ValueError for anything else."""
        added = list(results)
        for r in added:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
        self._results.extend(added)

    def trim_significant_figures(self) -> None:
        """Print only the significant digits of times from now on."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Color times relative to the best one of their column within the group, or with ``rowwise`` of their
        row."""
        self._colors = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Print the spread beside times that have a large one."""
        self._warn = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        labels: dict[str | None, list[Measurement]] = {}
        for each in Measurement.merge(self._results):
            labels.setdefault(each.task_spec.label, []).append(each)
        return "\n".join(self._table(label, group) for label, group in labels.items())

    def _table(self, label: str | None, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(r.median for r in results))
        keys = ordered_unique(
            (r.task_spec.num_threads, r.task_spec.env or "", r.as_row_name) for r in results
        )
        keys.sort(key=lambda key: key[:2])
        columns = ordered_unique(r.task_spec.description for r in results)
        cells = {
            (r.task_spec.num_threads, r.task_spec.env or "", r.as_row_name, r.task_spec.description): r
            for r in results
        }
        rows = [[cells.get((*key, column)) for column in columns] for key in keys]
        digits = [self._digits([row[c] for row in rows], scale) for c in range(len(columns))]
        several = len({env for _, env, _ in keys}) > 1
        names = _row_names(keys, several)
        texts = [[self._text(m, digits[c], scale) for c, m in enumerate(row)] for row in rows]
        widths = [
            max(len(t) for t in (column or "", *(row[c] for row in texts)))
            for c, column in enumerate(columns)
        ]
        first = max(map(len, names))
        lines = [
            "  |  ".join([" " * first, *((c or "").center(w) for c, w in zip(columns, widths, strict=True))])
        ]
        whole = len(lines[0])
        threads = None
        for i, (key, name) in enumerate(zip(keys, names, strict=True)):
            if key[0] != threads:
                threads = key[0]
                lines.append(f"{threads} threads: ".ljust(whole, "-"))
            centered = [t.center(w) for t, w in zip(texts[i], widths, strict=True)]
            best = self._best(rows, keys, i)
            colored = [_colored(s, m, b) for s, m, b in zip(centered, rows[i], best, strict=True)]
            lines.append("  |  ".join([name.ljust(first), *colored]))
        title = f" {label or ''} ".center(whole - 2, "-")
        lines = [f"[{title}]", *lines, "", f"Times are in {unit_to_english(unit)}s ({unit}).", ""]
        if self._warn and any(r.has_warnings for r in results):
            lines[-1:] = [_NOTE, ""]
        return "\n".join(lines)

    def _digits(self, column: list[Measurement | None], scale: float) -> tuple[int, int, bool]:
        """Return width and decimals of the numbers of a column, and whether their spreads are printed."""
        measured = [m for m in column if m is not None]
        leading = [math.ceil(math.log10(m.median / scale)) for m in measured]
        decimals = 1
        if self._trim:
            decimals = min(max(m.significant_figures - n, 0) for m, n in zip(measured, leading, strict=True))
        return (
            max(leading) + decimals + bool(decimals),
            decimals,
            self._warn and any(m.has_warnings for m in measured),
        )

    def _text(self, m: Measurement | None, digits: tuple[int, int, bool], scale: float) -> str:
        width, decimals, spreads = digits
        if m is None:
            return " " * (width + 7 * spreads)
        value = m.median / scale
        value = trim_sigfig(value, m.significant_figures) if self._trim else value
        spread = f" (! {m.iqr / m.median * 100:.0f}%)" if spreads and m.has_warnings else ""
        return f"{value:>{width}.{decimals}f}" + (spread.rjust(7) if spreads else "")

    def _best(self, rows: list[list[Measurement | None]], keys: list[RowKey], i: int) -> list[float | None]:
        """Return the median that each cell of row ``i`` is compared with for its color."""
        if self._colors is Colorize.NONE:
            return [None] * len(rows[i])
        if self._colors is Colorize.ROWWISE:
            return [min(m.median for m in rows[i] if m is not None)] * len(rows[i])
        group = [row for row, key in zip(rows, keys, strict=True) if key[0] == keys[i][0]]
        columns = [[row[c] for row in group] for c in range(len(rows[i]))]
        return [min((m.median for m in column if m is not None), default=None) for column in columns]


def _row_names(keys: list[RowKey], several: bool) -> list[str]:
    """Return the names of rows, with the environment in the first row of each, if there are several."""
    lines, before = [], None
    width = max(len(env) for _, env, _ in keys) if several else 0
    for threads, env, name in keys:
        is_first = several and (threads, env) != before
        lines.append("  " + (f"({env})" if is_first else "").ljust(width + 4) + name)
        before = threads, env
    return lines


def _colored(text: str, m: Measurement | None, best: float | None) -> str:
    """Return ``text`` in the color for the ratio of its median to ``best``."""
    if m is None or best is None:
        return text
    if m.median <= max(best * 1.01, best + 100e-9):
        return f"{_BEST}{text}{_END}"
    if m.median <= best * 1.1:
        return f"{_GOOD}{text}{_END}"
    if m.median >= best * 5:
        return f"{_WORST}{text}{_END}"
    return f"{_POOR}{text}\033[0m" if m.median >= best * 2 else text
