"""Read the instructions that follow a call: how many values are unpacked, whether the result is asserted."""

from __future__ import annotations

import dis
import itertools
from types import FrameType


def _following(frame: FrameType) -> list[dis.Instruction]:
    """Return the instruction that ``frame`` executes and the next ones."""
    instructions = list(dis.get_instructions(frame.f_code))
    start = next(
        (k for k, each in enumerate(instructions) if each.offset == frame.f_lasti), len(instructions)
    )
    return [each for each in instructions[start : start + 8] if each.opname not in ("CACHE", "NOT_TAKEN")][:4]


def unpacked_count(frame: FrameType) -> int | None:
    """Return the number of names that ``frame`` unpacks a value into (``a, b = value``); None if it does
    not."""
    ahead = _following(frame)
    return int(ahead[0].argval) if ahead and ahead[0].opname == "UNPACK_SEQUENCE" else None


def is_assertion(frame: FrameType) -> bool:
    """Whether ``frame`` evaluates the truth of a value for an ``assert`` statement."""
    ahead = _following(frame)
    for here, after in itertools.pairwise(ahead):
        if here.opname.startswith("POP_JUMP") and here.opname.endswith("IF_TRUE"):
            return "ASSERTION" in after.opname or after.argrepr == "AssertionError"
    return False
