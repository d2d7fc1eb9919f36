"""What a tap leaves per event: a plain tuple, as making anything better would take longer than many ops.

The first item is the kind; times are ``perf_counter_ns``. A signature has one entry per argument:
``(shape, dtype)`` of an array, the class of anything else; it is None where shapes are not recorded.

======== ==========================================================================================
OP       op, begin, end, module, phase, signature, bytes of the output, attrs, stack
NODE     name of a gradient node, begin, end, module, sequence number
SPAN     name, begin, end, category, phase, argument
MODULE   label, begin, end, class name, id of the module, phase, number of the call, of the caller's
COLLECTIVE call, begin, agreed, end, number, ranks
PROGRAM  name, its steps by line, [begin, line, end, line, end, ...], phase, end
MEMORY   time, bytes (negative: released), address, op, module, phase
======== ==========================================================================================
"""

from __future__ import annotations

OP, NODE, SPAN, MODULE, COLLECTIVE, PROGRAM, MEMORY = range(7)

#: Categories of spans.
ANNOTATION, OPERATOR, WAIT, PROFILER = "user_annotation", "cpu_op", "tenon_wait", "tenon_profiler"
