"""Find the calls whose results for some operand dtypes differ from torch's, and write ``docs/dtype-differences.md``.

``python tests/parity/dtype_table.py --write`` makes 235,000 calls in each library (five minutes of CPU) and writes the
page; ``--every 20`` makes every 20th of them and prints what no rule explains. A difference without a rule is a defect.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from parity.catalogue import Case, read
from parity.dtype_rules import RULES, Difference, rule_of
from parity.dtype_sweep import DTYPES, Operand, compare, variations

PAGE = Path(__file__).parents[2] / "docs" / "dtype-differences.md"
HEAD = f"""# Where dtypes differ from PyTorch

Written by `python tests/parity/dtype_table.py --write`; a test fails if this page is out of date.

Every function of `tests/parity/catalogue` is called in tenon and in torch 2.13 on the CPU with operands of
{", ".join(DTYPES)},
of all pairs of them, with 0-d tensors, with Python numbers and NumPy scalars in place of each operand, and with numbers
whose squares overflow the dtype. Results, gradients and second derivatives are compared (dtype, shape, values), and the
kinds of exceptions (`TypeError`, `ValueError`, ...). Of zeros of both signs, which compare equal, `maximum` and `minimum` return
either: torch does too, by the place in memory. `fmod` and `remainder` by a subnormal float32 are exact: torch's vectors give NaN.
What differs, by reason, with the first call of each:

| what | reason | e.g. |
|---|---|---|
"""


def calls(part: int = 0, every: int = 1) -> Iterator[tuple[Case, tuple[Operand | None, ...]]]:
    """Every ``every``-th call of the sweep, from number ``part`` on."""
    everything = (
        (case, operands) for case in read() if case.kind == "function" for operands in variations(case)
    )
    return itertools.islice(everything, part, None, every)


def difference(case: Case, operands: tuple[Operand | None, ...], compiled: bool = False) -> Difference | None:
    """What differs between both libraries in a call."""
    import torch

    found = compare(torch, case, operands, compiled)
    return None if found is None else Difference(case, operands, *found)


def described(case: Case, operands: tuple[Operand | None, ...]) -> str:
    """A call as the page names it: a case of the catalogue, and each operand."""
    return f"`{case}` of " + ", ".join("its own" if o is None else str(o) for o in operands)


def page(examples: dict[str, str]) -> str:
    """The page, with an example for each rule that has one."""
    rows = [f"| {r.what} | {r.reason} | {examples[r.key]} |" for r in RULES if r.key in examples]
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page, from all calls")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--part", type=int, default=0)
    options = parser.parse_args()
    examples: dict[str, str] = {}
    counts: dict[str, int] = {}
    made = without = 0
    for case, operands in calls(options.part, options.every):
        made += 1
        found = difference(case, operands)
        if found is None:
            continue
        rule = rule_of(found)
        if rule is None:
            without += 1
            print(found, flush=True)
            continue
        examples.setdefault(rule.key, described(case, operands))
        counts[rule.key] = counts.get(rule.key, 0) + 1
    print(
        f"{made} calls, {sum(counts.values())} differ by a known reason: {counts}; {without} without a reason"
    )
    if options.write:
        PAGE.write_text(page(examples))
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main())
