"""Convert a tap's records to ``Event``s."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import CodeType

from tenon.extend import Attrs, Op
from tenon.extend import observe as o
from tenon_profiler.events import INSTANT, Arguments, Event
from tenon_profiler.programs import Programs, Record
from tenon_profiler.shapes import TYPES, Signature, dims, flops, itemsize

#: The largest number of cached arguments: some ops have different attributes at every call.
_MANY = 20_000
#: The first external id of launches, above those that a writer assigns.
_LAUNCHES = 1_000_000_000


class Converter:
    """Converts records to events; caches arguments that events share, and tracks the allocated memory."""

    def __init__(self, clock: o.Clock) -> None:
        self._wall = clock.wall
        self._args: dict[tuple[object, ...], Arguments] = {}
        self._stacks: dict[object, str] = {}
        self._modules: dict[int, int] = {}
        self._of_class: dict[str, int] = {}
        self._names: dict[int, str] = {}
        #: Whether any record has been converted.
        self.converted = False
        #: Bytes allocated at present, by device.
        self.allocated: Counter[int] = Counter()
        #: Live blocks by id: a number, and the fields of the block's MEMORY record, which keep it alive.
        self._live: dict[int, tuple[int, Record]] = {}
        self._count = itertools.count(1)
        #: Releases recorded by another thread before their allocations were converted.
        self._early: list[tuple[int, int, Record]] = []
        self._launches = 0
        self._programs = Programs(clock.wall)

    def forget(self) -> None:
        """Stop tracking live blocks."""
        self._live.clear()

    def convert(self, taken: Iterable[tuple[int, list[object]]]) -> list[Event]:
        """Return the events of all threads: memory events in order of time, others as they ended."""
        if len(self._args) > _MANY:
            self._args.clear()
        events: list[Event] = []
        memory, self._early = self._early, []
        makers: dict[int, Callable[[int, Record], Event]] = {
            o.OP: self._op, o.NODE: self._node, o.SPAN: self._span, o.MODULE: self._module,
        }  # fmt: skip
        for tid, records in taken:
            for record in o.split(records):
                kind = record[0]
                maker = makers.get(kind)
                if maker is not None:
                    events.append(maker(tid, record))
                    if kind == o.OP and record[-1] is not None:
                        _, op, _, end, module, phase, _, size, *_, block = record
                        memory.append((end, tid, (size, block, op, module, phase, -1)))
                elif kind == o.MEMORY or kind == o.RELEASED:
                    memory.append((record[1], tid, record[2:]))
                elif kind == o.DEVICE:
                    events += self._device(tid, record, events[-1] if events else None)
                elif kind == o.COLLECTIVE:
                    events += self._collective(tid, record)
                else:
                    events += self._programs.events(tid, record)
        self.converted = self.converted or bool(events or memory)
        memory.sort(key=lambda each: each[0])
        for change in memory:
            events += self._memory(*change)
        return events

    def _event(
        self,
        category: str,
        name: str,
        tid: int,
        begin: int,
        end: int,
        args: Arguments,
        own: Arguments | None = None,
    ) -> Event:
        wall = self._wall
        return Event(category, name, tid, begin + wall, end + wall, args, own)

    def _op(self, tid: int, record: Record) -> Event:
        _, op, begin, end, module, phase, signature, size, attrs, stack, _ = record
        attrs = attrs or {}
        key = (op, module, phase, signature, size, _hashable(attrs) if signature is not None else None)
        args = self._args.get(key)
        if args is None:
            args = self._args[key] = self._arguments(op, module, phase, signature, size, attrs)
        own = None if stack is None else {"Call stack": self._stack(stack)}
        return self._event("cpu_op", f"tenon::{op.name}", tid, begin, end, args, own)

    def _arguments(
        self, op: Op, module: str, phase: str, signature: Signature | None, size: int, attrs: Attrs
    ) -> Arguments:
        args: Arguments = {"Phase": phase}
        if module:
            args["Module"] = module
        if signature is not None:
            arguments = list(zip(signature[::2], signature[1::2], strict=True))
            args |= dims(arguments)
            cost = flops(op, arguments, attrs)
            if cost:
                args["FLOPs"] = cost
            args["Bytes"] = size + sum(math.prod(s) * t.itemsize for s, t in arguments if t is not None)
        return args

    def _stack(self, frames: tuple[tuple[CodeType, int], ...]) -> str:
        text = self._stacks.get(frames)
        if text is None:
            text = self._stacks[frames] = ";".join(
                f"{code.co_filename}({line}): {code.co_name}" for code, line in frames
            )
        return text

    def _node(self, tid: int, record: Record) -> Event:
        _, name, begin, end, module, sequence = record
        key = ("node", module)
        args = self._args.get(key)
        if args is None:
            args = self._args[key] = {"Phase": "backward", "Node": 1}
            if module:
                args["Module"] = module
        return self._event("cpu_op", name, tid, begin, end, args, {"Sequence number": sequence})

    def _span(self, tid: int, record: Record) -> Event:
        _, name, begin, end, category, phase, argument = record
        args = self._args.setdefault(("span", phase), {"Phase": phase})
        own = None if argument is None else {"Args": argument}
        return self._event(category, name, tid, begin, end, args, own)

    def _module(self, tid: int, record: Record) -> Event:
        _, label, begin, end, kind, identity, phase, number, caller = record
        module = self._modules.get(identity)
        if module is None:
            module = self._modules[identity] = len(self._modules)
            count = self._of_class[kind] = self._of_class.get(kind, -1) + 1
            self._names[module] = f"nn.Module: {kind}_{count}"
        args = self._args.setdefault(
            ("module", module, label, phase), {"Python module id": module, "Module": label, "Phase": phase}
        )
        own = {"Python id": number, "Python parent id": caller}
        return self._event("python_function", self._names[module], tid, begin, end, args, own)

    def _collective(self, tid: int, record: Record) -> list[Event]:
        _, call, begin, agreed, end, number, ranks, group = record
        key = ("collective", call, ranks, group)
        args = self._args.get(key)
        group_args = self._args.setdefault(("group", ranks, group), {"Group": group_name(ranks, group)})
        if args is None:
            size = math.prod(call.shape) * itemsize(call.dtype)
            args = self._args[key] = {
                "Input Dims": [list(call.shape)], "Input type": [TYPES.get(call.dtype, call.dtype)],
                "Bytes": size, "Detail": call.detail, "Ranks": list(ranks), **group_args,
            }  # fmt: skip
            if call.name is not None:
                args["Label"] = str(call.label)
        own = {"Wait us": (agreed - begin) / 1000, "Transfer us": (end - agreed) / 1000, "Number": number}
        numbered, transferred = {"Number": number}, {"Number": number, "Bytes": args["Bytes"]}
        return [
            self._event("tenon_wait", f"wait: {call.kind}", tid, begin, agreed, group_args, numbered),
            self._event(
                "tenon_transfer", f"transfer: {call.kind}", tid, agreed, end, group_args, transferred
            ),
            self._event("user_annotation", f"gloo:{call.kind}", tid, begin, end, args, own),
        ]

    def _device(self, tid: int, record: Record, launched: Event | None) -> list[Event]:
        """Return a launch and its kernel; the kernel alone if the op's record went with an earlier flush."""
        _, op, begin, end, index = record
        self._launches += 1
        ids = {"External id": _LAUNCHES + self._launches, "correlation": self._launches}
        own = {**ids, "device": index, "stream": 0}
        kernel = self._event("kernel", f"tenon::{op.name}", 0, int(begin), int(end), {}, own)
        if launched is None:
            return [kernel]
        launched.own = {**(launched.own or {}), "External id": ids["External id"]}
        return [Event("runtime", "cudaLaunchKernel", tid, launched.begin, launched.end, {}, ids), kernel]

    def _memory(self, when: int, tid: int, fields: Record) -> list[Event]:
        """Return the event of an allocation or, if ``fields`` are the block alone, of its release."""
        if len(fields) == 1:
            live = self._live.pop(id(fields[0]), None)
            if live is None:  # its allocation has not been converted yet
                self._early.append((when, tid, fields))
                return []
            number, (size, _, op, module, phase, device) = live
            size = -size
        else:
            size, block, op, module, phase, device = fields
            number = next(self._count)
            self._live[id(block)] = number, fields
        self.allocated[device] += size
        total = self.allocated[device]
        key = ("memory", op, module, phase, device)
        args = self._args.get(key)
        if args is None:
            args = self._args[key] = {
                "Device Type": int(device >= 0), "Device Id": device,
                "Op": f"tenon::{getattr(op, 'name', 'program')}", "Module": module, "Phase": phase,
            }  # fmt: skip
            if op.__class__ is str:
                args["Program"] = op
        own = {"Bytes": size, "Addr": number, "Total Allocated": total, "Total Reserved": total}
        return [self._event(INSTANT, "[memory]", tid, when, when, args, own)]


def group_name(ranks: Sequence[int], before: int) -> str:
    """Return a name for a group of ranks, of which ``before`` older groups have the same ranks.

    >>> group_name((0, 1, 2, 7), 0), group_name((4,), 1)
    ('0-2,7', '4 #2')
    """
    runs = itertools.groupby(enumerate(ranks), lambda each: each[1] - each[0])
    ends = [[rank for _, rank in run] for _, run in runs]
    name = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)
    return f"{name} #{before + 1}" if before else name


def _hashable(attrs: Attrs) -> object:
    try:
        key = tuple(attrs.items())
        hash(key)
    except TypeError:
        return repr(attrs)
    return key
