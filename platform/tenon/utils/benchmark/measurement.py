"""``Measurement``: the times of a task, their median and spread; ``TaskSpec``: the description of the
task."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from tenon.functions.settings import get_num_threads, set_num_threads

#: Ratios of interquartile range to median from which a measurement warns, and from which the warning is
#: stronger.
SUSPECT, BAD = 0.1, 0.25
_MOST_DIGITS = 4
#: The resolution of measured times in seconds.
_FLOOR = 25e-9
_UNITS = {
    "ns": ("nanosecond", 1e-9),
    "us": ("microsecond", 1e-6),
    "ms": ("millisecond", 1e-3),
    "s": ("second", 1),
}


@dataclass(frozen=True, repr=False)
class TaskSpec:
    """The arguments of a ``Timer``, without its globals."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or else the statement."""
        name = self.stmt if self.label is None else self.label
        if self.label is not None or "\n" not in self.stmt:
            return f"{name}: {self.sub_label}" if self.sub_label else name
        part = f" ({self.sub_label})" if self.sub_label else ""
        return f"stmt:{part}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """Return the setup as text; "" if there is none."""
        if not self.setup or self.setup == "pass":
            return ""
        if "\n" in self.setup:
            return f"setup:\n{textwrap.indent(self.setup, '  ')}"
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """Return title, description and setup, each on lines of its own."""
        parts = [part for part in (self.title, self.description, self.setup_str()) if part]
        return "\n".join(part + "\n" if "\n" in part else part for part in parts)


_OF_TASKS = frozenset(f.name for f in fields(TaskSpec))


@dataclass(repr=False)
class Measurement:
    """Times of one task: ``raw_times`` in seconds, each of ``number_per_run`` executions.

    The fields of its ``task_spec`` are attributes of it too.
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[object, object] | None = None

    def __getattr__(self, name: str) -> Any:  # a field of TaskSpec
        if name in _OF_TASKS:
            return getattr(self.task_spec, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds per execution, in the order of measurement."""
        return [t / self.number_per_run for t in self.raw_times]

    def _quantile(self, q: float) -> float:
        return float(np.quantile(self.times, q)) if self.raw_times else -1.0

    @property
    def median(self) -> float:
        """The median of the seconds per execution."""
        return self._quantile(0.5)

    @property
    def mean(self) -> float:
        """The mean of the seconds per execution."""
        return float(np.mean(self.times)) if self.raw_times else -1.0

    @property
    def iqr(self) -> float:
        """The interquartile range in seconds."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """The number of significant digits of the median: 1 to 4, from the spread between the quartiles."""
        ordered = sorted(self.times)
        inner = ordered[len(ordered) // 4 : math.ceil(3 * len(ordered) / 4)]
        # 90 % of a normal distribution lie within 1.645 standard deviations.
        interval = max(1.645 * float(np.std(inner)) / math.sqrt(len(inner)), _FLOOR)
        return min(max(math.floor(math.log10(self.median / interval)), 1), _MOST_DIGITS)

    def meets_confidence(self, threshold: float = SUSPECT) -> bool:
        """Whether the interquartile range is below ``threshold`` times the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        """Whether the times spread suspiciously."""
        return bool(self.raw_times) and not self.meets_confidence()

    @property
    def title(self) -> str:
        """The title of the task."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """The name of its row in tables."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        count, threads = len(self.raw_times), self.task_spec.num_threads
        unit, scale = select_unit(self.median)
        name = f"<{type(self).__module__}.{type(self).__name__} object at {id(self):#x}>"
        lines = [name, self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if count > 1 else ''}{self.median / scale:.2f} {unit}")
        if count >= 4:
            low, high = self._quantile(0.25) / scale, self._quantile(0.75) / scale
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        runs = f"{self.number_per_run} runs" + (" per measurement" if count > 1 else "")
        lines.append(f"  {_plural(count, 'measurement')}, {runs}, {_plural(threads, 'thread')}")
        if self.has_warnings:
            why = "could indicate system fluctuation"
            if not self.meets_confidence(BAD):
                why = "suggests significant environmental influence"
            spread = self.iqr / self.median * 100
            lines.append(f"  WARNING: Interquartile range is {spread:.1f}% of the median measurement.")
            lines.append(f"           This {why}.")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Return one measurement per task, of the times per execution."""
        times: dict[TaskSpec, list[float]] = {}
        for m in measurements:
            times.setdefault(m.task_spec, []).extend(m.times)
        return [Measurement(1, merged, task) for task, merged in times.items()]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("s" if count > 1 else "")


def select_unit(t: float) -> tuple[str, float]:
    """Return a unit for ``t`` seconds, and its length in seconds.

    >>> select_unit(2e-4)
    ('us', 1e-06)
    """
    power = math.floor(math.log10(t) / 3) if t > 0 else 0
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(power, "s")
    return unit, _UNITS[unit][1]


def unit_to_english(u: str) -> str:
    """Return the name of a unit: ``"microsecond"`` for ``"us"``."""
    return _UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """Round ``x`` to ``n`` significant digits.

    >>> trim_sigfig(3.14159, 2)
    3.1
    """
    if n != int(n):
        raise AssertionError(f"Number of significant figures must be an integer, got {n!r}.")
    return float(f"{x:.{max(int(n) - 1, 0)}e}")


H = TypeVar("H", bound=Hashable)


def ordered_unique(elements: Iterable[H]) -> list[H]:
    """Return ``elements`` without duplicates, in order."""
    return list(dict.fromkeys(elements))


@contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Set the number of threads of kernels to ``n`` within a block."""
    before = get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)
