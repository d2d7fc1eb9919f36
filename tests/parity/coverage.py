"""Write ``docs/coverage.md``: every name of torch that users know, and how it is compared with torch.

    python tests/parity/coverage.py --write

The names come from ``tiers/*.toml``, the cases from ``catalogue/*.yaml``; neither needs torch.
"""

from __future__ import annotations

import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tenon

sys.path.append(str(Path(__file__).resolve().parents[1]))

from parity.catalogue import read
from parity.functions import as_method
from parity.sides import find

TIERS = Path(__file__).with_name("tiers")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
COMMAND = "python tests/parity/coverage.py --write"
#: The areas in the order of the page.
AREAS = [
    "layers",
    "functional",
    "tensor",
    "torch",
    "linalg",
    "fft",
    "special",
    "optim",
    "schedulers",
    "init",
    "nn_utils",
    "autograd",
    "data",
    "distributions",
]
HEAD = f"""\
# Coverage of PyTorch's API

Written by `{COMMAND}`; a test fails if this page is out of date.

Tier 1 is what common models need, tier 2 what users expect, tier 3 is rarely used. The number after a name is the
number of cases in `tests/parity/catalogue` whose results equal those of torch 2.13: values, gradients, dtype, shape
and errors, in float32 and float64, contiguous and not; layers with initial weights and state, optimizers
over 20 steps, schedulers over 30. Names that cannot be compared by single calls name the tests that compare them.
"""


@dataclass
class Tier:
    """The names of one tier of one area, by how far they are."""

    title: str
    number: int
    compared: dict[str, int] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    uncompared: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def present(self) -> int:
        return len(self.compared) + len(self.elsewhere) + len(self.uncompared)

    @property
    def total(self) -> int:
        return self.present + len(self.missing)


def areas() -> Iterator[tuple[str, str, dict[int, list[str]]]]:
    """Title, holder and names by tier of every area."""
    for area in AREAS:
        data = tomllib.loads((TIERS / f"{area}.toml").read_text(encoding="utf-8"))
        names = {int(k[-1]): v.split() for k, v in data.items() if k.startswith("tier")}
        yield data["title"], data["holder"], names


def elsewhere() -> dict[str, str]:
    """The tests that compare a name which the catalogue cannot."""
    data = tomllib.loads((TIERS / "elsewhere.toml").read_text(encoding="utf-8"))
    return {name: path for path, names in data.items() for name in names.split()}


def has(name: str, lib: Any = tenon) -> bool:
    """Whether ``lib`` offers ``name``."""
    try:
        find(lib, name)
    except AttributeError:
        return False
    return True


def counted() -> Counter[str]:
    """How many cases compare each name; a function's case is one of the method, too."""
    found: Counter[str] = Counter()
    for case in read():
        found[case.name] += 1
        method = as_method(case.name, case.content, tenon.Tensor)
        if method:
            found[method] += 1
    return found


def table() -> list[Tier]:
    """Every tier of every area."""
    cases, others, tiers = counted(), elsewhere(), []
    for title, holder, names in areas():
        for number, listed in sorted(names.items()):
            tier = Tier(title, number)
            for name in sorted(listed, key=lambda n: (n.lower(), n)):
                full = f"{holder}.{name}" if holder else name
                if not has(full):
                    tier.missing.append(name)
                elif cases[full]:
                    tier.compared[name] = cases[full]
                elif full in others:
                    tier.elsewhere[name] = others[full]
                else:
                    tier.uncompared.append(name)
            tiers.append(tier)
    return tiers


def _row(title: str, tiers: list[Tier]) -> str:
    total, present = (sum(getattr(t, a) for t in tiers) for a in ("total", "present"))
    compared, others, rest = (
        sum(len(getattr(t, a)) for t in tiers) for a in ("compared", "elsewhere", "uncompared")
    )
    cases = sum(sum(t.compared.values()) for t in tiers)
    share = f"{100 * present / total:.0f} %" if total else "-"
    return f"| {title} | {total} | {present} ({share}) | {compared} | {cases} | {others} | {rest} |"


def _listing(label: str, names: list[str]) -> list[str]:
    if not names:
        return []
    text = f"- {label}: {', '.join(names)}"
    return textwrap.wrap(text, 110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def page(tiers: list[Tier]) -> str:
    """The whole page."""
    lines = [HEAD, "| area, tier | names | present | in the catalogue | cases | compared by programs | not |"]
    lines.append("|---|---|---|---|---|---|---|")
    for number in (1, 2, 3):
        lines.append(_row(f"**all, tier {number}**", [t for t in tiers if t.number == number]))
    lines += [_row(f"{t.title}, {t.number}", [t]) for t in tiers]
    for tier in tiers:
        lines += ["", f"## {tier.title}, tier {tier.number}", ""]
        lines += _listing("equal to torch", [f"`{n}` {count}" for n, count in tier.compared.items()])
        for path in sorted(set(tier.elsewhere.values())):
            lines += _listing(f"in {path}", [f"`{n}`" for n, p in tier.elsewhere.items() if p == path])
        lines += _listing("present, no case yet", [f"`{n}`" for n in tier.uncompared])
        lines += _listing("missing", [f"`{n}`" for n in tier.missing])
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(f"Usage: {COMMAND}")
    PAGE.write_text(page(table()), encoding="utf-8")
