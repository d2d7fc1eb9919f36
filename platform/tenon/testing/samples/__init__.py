"""Sample inputs of every op, with references: ``samples.of("add")``, ``samples.everything()``, ``samples.add(...)``."""

from tenon.testing.samples.draw import Draw, boolean, expanded, integer, normal, uniform, values
from tenon.testing.samples.table import Sample, add, everything, of, without

__all__ = [
    "Draw",
    "Sample",
    "add",
    "boolean",
    "everything",
    "expanded",
    "integer",
    "normal",
    "of",
    "uniform",
    "values",
    "without",
]
