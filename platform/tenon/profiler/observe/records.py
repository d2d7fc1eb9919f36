"""The format of a tap's records: each is a run of items in one flat list and begins with its kind.

A richer structure would take longer than many ops do. Times are ``perf_counter_ns``. A signature has two
items for each argument: shape and dtype of an array, the class and None of anything else; it is None where
shapes are not recorded. Equal signatures are not shared: looking them up takes as long as the rest of a
record.

======== ==========================================================================================
OP       op or factory, begin, end, module, phase, signature, bytes of the output, attrs, stack, the output's
         block or None
NODE     name of a gradient node, begin, end, module, sequence number
SPAN     name, begin, end, category, phase, argument
MODULE   label, begin, end, class name, id of the module, phase, number of the call, number of the caller
COLLECTIVE call, begin, agreed, end, number, ranks, group
PROGRAM  name, its steps by line, [begin, line, end, line, end, ...], phase, end
DEVICE   op, mark before, mark after, index of the device; follows the op's own record
MEMORY   time, bytes, a block that is not an op's only output on the host, op or program's name,
         module, phase, device (host: -1)
RELEASED time, the block; in the thread that allocated it
======== ==========================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, TypeAlias

#: One item of a record; the table above states what each is.
Item: TypeAlias = Any

OP, NODE, SPAN, MODULE, COLLECTIVE, PROGRAM, MEMORY, DEVICE, RELEASED = range(9)
#: The number of items of each kind of record, the kind included.
SIZES = (11, 6, 7, 9, 8, 6, 8, 5, 3)

#: Categories of spans.
ANNOTATION, OPERATOR, WAIT, PROFILER = "user_annotation", "cpu_op", "tenon_wait", "tenon_profiler"


class Factory:
    """Replaces the op in the record of a function that creates arrays without an op."""

    view = False

    def __init__(self, name: str) -> None:
        self.name = name

    def cost(self, *args: object, **attrs: object) -> float:
        """Return 0: the number of operations is unknown."""
        return 0.0


#: Returns the factory of a name, the same object for the same name.
factory = functools.cache(Factory)


def split(items: list[Item]) -> Iterator[list[Item]]:
    """Yield each record of a lane's list."""
    start = 0
    while start < len(items):
        size = SIZES[items[start]]
        yield items[start : start + size]
        start += size
