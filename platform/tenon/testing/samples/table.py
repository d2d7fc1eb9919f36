"""The table of samples: per op, named inputs with tags, and a reference.

All checks use this table: values against the reference, gradients against finite differences, shape rules
against results, one backend against another. A new op gets its samples with ``add``, in the
family module that mirrors its op file (list new modules in ``FAMILIES``), or in a module that a plugin
names in its ``tenon_samples`` hook.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tenon.engine.op import table as ops
from tenon.plugins import registry
from tenon.testing.samples.draw import Draw

#: Computes the expected result of an op from arrays and the attrs of the call.
Reference = Callable[..., Any]

TAGS = frozenset(
    {"broadcast", "empty", "scalar", "strided", "expanded", "extreme", "non-smooth", "integer", "large"}
)

#: Modules of this package with samples.
FAMILIES = (
    "elementwise", "compare", "reduce", "movement", "indexing", "contraction", "memory", "activations", "losses", "layers",
    "numeric", "bessel", "linalg", "fft", "recurrent", "spatial", "quantized", "attention",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of an op. ``reference(*arrays, **attrs)`` returns the expected result; None without one."""

    op: str
    name: str
    inputs: tuple[object, ...]
    attrs: Mapping[str, object] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    reference: Reference | None = None
    #: Positions of floating inputs without a gradient.
    constant: tuple[int, ...] = ()
    #: The order up to which gradients are checked; 0 for none.
    order: int = 2
    #: The number of outputs whose gradients are checked; 0 for all.
    graded: int = 0
    #: Factor on the tolerances of the dtype.
    loose: float = 1.0
    #: Whether 16-bit floats are checked too.
    narrow: bool = True

    # Arguments that are not arrays have the type that the op takes.
    def arrays(self, dtype: DTypeLike = np.float64) -> list[Any]:
        """Return the arguments: arrays generated from draws, and other values unchanged."""
        return [d.make(dtype, 17 + i) if isinstance(d, Draw) else d for i, d in enumerate(self.inputs)]

    def expected(self, arrays: Sequence[object]) -> np.ndarray | tuple[np.ndarray, ...]:
        """Return the result of the reference, one array or a tuple."""
        assert self.reference is not None
        with np.errstate(all="ignore"):
            return self.reference(*arrays, **self.attrs)

    @property
    def active(self) -> tuple[int, ...]:
        """Positions of the inputs that gradients are checked for."""
        op = ops[self.op]
        if not op.differentiable or not self.order or "non-smooth" in self.tags or "extreme" in self.tags:
            return ()
        positions = []
        for i, d in enumerate(self.inputs):
            rule = op.joint or op.rules[min(i, len(op.rules) - 1)]
            if isinstance(d, Draw) and d.floating and rule is not None and i not in self.constant:
                positions.append(i)
        return tuple(positions)

    def __str__(self) -> str:
        return f"{self.op}-{self.name}"


_TABLE: dict[str, list[Sample]] = {}


def add(
    op: str,
    name: str,
    *inputs: object,
    reference: Reference | None = None,
    tags: str = "",
    attrs: Mapping[str, object] | None = None,
    **more: object,
) -> None:
    """Add one sample of ``op``; ``tags`` is a space-separated list."""
    tag_set = frozenset(tags.split())
    if not tag_set <= TAGS:
        raise ValueError(
            f"sample {op}-{name}: unknown tags {sorted(tag_set - TAGS)}; known: {', '.join(sorted(TAGS))}."
        )
    entries = _TABLE.setdefault(op, [])
    if any(s.name == name for s in entries):
        raise ValueError(f"sample {op}-{name} exists twice. Give it another name.")
    entries.append(Sample(op, name, inputs, dict(attrs or {}), tag_set, reference, **more))


@functools.cache
def _load() -> None:
    for family in FAMILIES:
        importlib.import_module(f"tenon.testing.samples.{family}")
    for name in registry.names("samples"):
        registry.resolve("samples", name)


def of(op: str) -> list[Sample]:
    """Return all samples of ``op``; an empty list if there are none."""
    _load()
    return list(_TABLE.get(op, ()))


def everything() -> list[Sample]:
    """Return all samples of all ops."""
    _load()
    return [s for entries in _TABLE.values() for s in entries]


def without(names: Iterable[str]) -> list[str]:
    """Return the op ``names`` without samples, sorted."""
    _load()
    return sorted(n for n in names if not _TABLE.get(n))
