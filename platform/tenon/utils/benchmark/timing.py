"""``Timer``: times a statement repeatedly."""

from __future__ import annotations

import enum
import statistics
import sys
import textwrap
import timeit
from collections.abc import Callable
from typing import NoReturn

from tenon import cuda
from tenon.errors import ArgumentError, UnsupportedError
from tenon.utils.benchmark.measurement import Measurement, TaskSpec, set_torch_threads

#: The shortest time in seconds: reading the clock alone takes about 50 ns.
_LEAST = 1e-9
_MOST_RUNS = 2**31 - 1
Callback = Callable[[int, float], object]


def timer() -> float:
    """Return the clock in seconds, after pending work of the GPU, if there is one."""
    if cuda.is_available():
        cuda.synchronize()
    return timeit.default_timer()


class Language(enum.Enum):
    """The languages of statements."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Measures the time of ``stmt``, a string of Python, which is executed repeatedly after ``setup``.

    Unlike ``timeit.Timer`` it warms up, runs with ``num_threads`` threads, waits for GPUs, and returns a
    ``Measurement`` with a median and a spread. In the statement ``tenon`` and ``torch`` are tenon, beside
    ``globals``. ``label``, ``sub_label``, ``description`` and ``env`` name rows and columns of ``Compare``.
    UnsupportedError for statements in C++.

    >>> import tenon
    >>> timer = Timer("x.add_(1)", globals={"x": tenon.zeros(3)}, label="add_")
    >>> timer.timeit(100).median > 0
    True
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, object] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise ArgumentError(f"Currently only a `str` stmt is supported, got {type(stmt).__name__}.")
        if language in (Language.CPP, "cpp", "c++"):
            raise UnsupportedError("Timer: C++ is not compiled here; call it from Python through bindings.")
        if language not in (Language.PYTHON, "py", "python"):
            raise ArgumentError(f"Invalid language `{language}`.")
        if global_setup:
            raise ArgumentError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved"
                " to `setup`."
            )
        stmt, setup = _tidy(stmt), _tidy(setup)
        tenon = sys.modules["tenon"]
        space = {"torch": tenon, "tenon": tenon, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer, space)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _seconds(self, number: int) -> float:
        return max(self._timer.timeit(number), _LEAST)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Time ``number`` executions once, after a hundredth as many to warm up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._seconds(max(number // 100, 2))
            return Measurement(number, [self._seconds(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """Raise NotImplementedError, as in PyTorch: use ``blocked_autorange``."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callback | None = None) -> NoReturn:
        """Raise NotImplementedError, as in PyTorch: use ``blocked_autorange``."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def collect_callgrind(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise an error: instructions are not counted."""
        raise UnsupportedError(
            "Timer.collect_callgrind: instructions are not counted here. Run the script under"
            " `valgrind --tool=callgrind`, or take times with blocked_autorange()."
        )

    def blocked_autorange(self, callback: Callback | None = None, min_run_time: float = 0.2) -> Measurement:
        """Time blocks of executions for at least ``min_run_time`` seconds.

        A block is so long that reading the clock does not matter; ``callback(executions, seconds)`` is called
        after each.
        """
        return self._measured(min_run_time, None, lambda times: True, callback)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callback | None = None,
    ) -> Measurement:
        """Time blocks, as ``blocked_autorange`` does, until the times are steady.

        That is when their interquartile range is below ``threshold`` times the median, or after
        ``max_run_time`` seconds.
        """

        def steady(times: list[float]) -> bool:
            return len(times) > 3 and Measurement(1, times, self._task_spec).meets_confidence(threshold)

        return self._measured(min_run_time, max_run_time, steady, callback)

    def _measured(
        self,
        least: float,
        most: float | None,
        enough: Callable[[list[float]], bool],
        callback: Callback | None,
    ) -> Measurement:
        times: list[float] = []
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block(least)
            total = 0.0
            while total < least or not enough(times):
                times.append(self._seconds(number))
                total += times[-1]
                if callback is not None:
                    callback(number, times[-1])
                if most is not None and total > most:
                    break
        return Measurement(number, times, self._task_spec)

    def _block(self, least: float) -> int:
        """Return the number of executions for which reading the clock takes at most 0.01 % of the time."""
        clock = statistics.median(self._seconds(0) for _ in range(5))
        number = 1
        while True:
            seconds = self._seconds(number)
            long = clock / seconds <= 1e-4 and seconds >= least / 1000
            if long or seconds > least or number * 10 > _MOST_RUNS:
                return number
            number *= 10


def _tidy(code: str) -> str:
    """Return ``code`` dedented, without an empty first line."""
    return textwrap.dedent(code).removeprefix("\n").rstrip()
