"""PyTorch's ``torch.utils.benchmark``: measure the time of small pieces of code, and print tables of times.

Instruction counts (Callgrind) and C++ are not measured here.
"""

from tenon.utils.benchmark.compare import Colorize, Compare
from tenon.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from tenon.utils.benchmark.timing import Language, Timer, timer

__all__ = [
    "Colorize",
    "Compare",
    "Language",
    "Measurement",
    "TaskSpec",
    "Timer",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]
