"""The cases of ``catalogue/*.yaml``: which public names are compared with torch, and how.

One key per public name and a list of cases under it: for a function its positional arguments, a last mapping
holds keyword arguments; for a layer ``make`` and ``call``; for an optimizer its options. A function's case
that needs more than its arguments is a mapping with ``call`` and ``up_to: sign`` (values and gradients are
compared without their signs), ``gradients: false`` or ``dtypes: [float64]`` or
``shapes: given`` (not also run with empty and 0-d tensors), and says ``why``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).with_name("catalogue")


@dataclass(frozen=True, slots=True)
class Case:
    """One case of one name."""

    name: str
    number: int
    content: Any
    file: str

    def __str__(self) -> str:
        return f"{self.name}-{self.number}"

    @property
    def kind(self) -> str:
        """Which of the tests runs it."""
        if self.name.startswith("optim.lr_scheduler.") or self.name == "optim.swa_utils.SWALR":
            return "scheduler"
        if self.name.startswith("optim."):
            return "optimizer"
        if self.name.startswith("nn.init."):
            return "initialiser"
        if isinstance(self.content, dict) and "make" in self.content and self.name.startswith("nn."):
            return "layer"
        return "function"


@functools.cache
def read() -> tuple[Case, ...]:
    """Every case, in the order of files and lines; a name may have cases in several files."""
    cases: list[Case] = []
    counts: dict[str, int] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for name, contents in _load(path).items():
            for content in contents or ():
                counts[name] = counts.get(name, -1) + 1
                cases.append(Case(name, counts[name], content, path.name))
    return tuple(cases)


class _Loader(yaml.CSafeLoader):
    """Refuses a key that is there twice: the first one's cases would be lost."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep=deep)
        if len(made) < len(node.value):
            names = [self.construct_object(key) for key, _ in node.value]
            twice = sorted({str(n) for n in names if names.count(n) > 1})
            raise ValueError(f"{node.start_mark}: {', '.join(twice)} twice")
        return made


def _load(path: Path) -> dict[str, Any]:
    return yaml.load(path.read_text(encoding="utf-8"), _Loader) or {}
