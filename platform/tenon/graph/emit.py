"""Generate straight-line Python from a planned graph: one line per step, over arrays that never move.

The source is meant to be read: ``v12`` is node ``%12`` of the printed graph (``v12_1`` its second output),
``s3`` a scalar of this run; a comment names the op, its module and shapes. For each call the first applicable
form is used: the backend's kernel for a fused cluster; a thunk that the backend prepared;
a NumPy call with ``out=``; the backend's eager kernel and a copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tenon.engine.types import Attrs, Operand
from tenon.errors import NotFusableError
from tenon.graph import numpy_calls, scalars
from tenon.graph.epilogue import epilogue
from tenon.graph.fused import Fused
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.memory_plan import MemoryPlan
from tenon.graph.reorder import reorder
from tenon.kernels.backend import Backend
from tenon.kernels.compiler import Compiler, FusedKernel

#: Returns a tensor's version counter: another list, or another number in it, after its memory has changed; a
#: list of two if the memory may change without incrementing it (``Value._expose``).
Counter: TypeAlias = Callable[[], list[int]]
#: Number of elements up to which a backend caches no packed copy of an operand.
LITTLE = 1 << 12


class Emitted:
    """The source of a program, its global variables, and the call that each line makes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        # Arrays, kernels, ops and readings, to which only the generated code refers.
        self.space: dict[str, Any] = {"sqrt": math.sqrt}
        #: Line number, from 1 -> the call that the line makes.
        self.calls: dict[int, Node] = {}
        #: Line number -> all calls, for lines that make several.
        self.together: dict[int, list[Node]] = {}

    @property
    def source(self) -> str:
        """The whole text."""
        return "\n".join(self.lines) + "\n"

    def add(self, line: str, comment: str = "", node: Node | None = None) -> None:
        """Append a line, which makes the call ``node``, if given."""
        self.lines.append(f"{line}  # {comment}" if comment else line)
        if node is not None:
            self.calls[len(self.lines)] = node


class Emitter:
    """Generates the program of ``graph`` on the memory of ``plan``, for ``backend``."""

    def __init__(
        self, graph: Graph, plan: MemoryPlan, backend: Backend, counters: Mapping[Node, Counter]
    ) -> None:
        self.graph, self.plan, self.backend = graph, plan, backend
        self.compiler: Compiler = backend.compiler or Compiler()
        written = {write.target for write in graph.writes}
        #: Version counters of external memory that the program does not write.
        self.counters = {node: counter for node, counter in counters.items() if node not in written}
        self.numbers = {node: i for i, node in enumerate(graph.nodes)}
        self.scalars = {n: f"s{i}" for n, i in self.numbers.items() if n.kind == "scalar"}
        #: Scalars that are outputs, and the 0-d arrays in which they are returned.
        self.scalar_outputs: dict[Ref, np.ndarray] = {}
        #: Scalars that bound kernels read, and the 0-d views of ``table`` in which they find them.
        self.slots: dict[Node, np.ndarray] = {}
        self.table = np.zeros(max(len(self.scalars), 1))
        #: Clusters that the backend could not bind, with the reason.
        self.unfused: list[str] = []
        self.out = Emitted()
        #: Bound steps that are not written yet: the call's text, its comment, its node.
        self.run: list[tuple[str, str, Node]] = []

    def emit(self) -> Emitted:
        """Return the program."""
        for node in self.graph.inputs:
            self.out.add(f"# {self.name(node.out())} = {node.label or 'input'}: {node.avals[0]!r}")
        parameters = [self.scalars[n] for n in self.scalars if n.function == "input"]
        self.out.add(f"def run({', '.join(parameters)}):")
        start = place = len(self.out.lines)
        for node, name in self.scalars.items():
            if node.function != "input":
                self.out.add(f"    {name} = {scalars.expression(node, self.scalars)}")
                place = len(self.out.lines)
        head, self.out.lines = self.out.lines[:place], self.out.lines[place:]
        for node in self.plan.steps:
            self._step(node)
        self._chained()
        if self.slots:
            self.out.space["numbers"] = self.table[: len(self.slots)]
            head.append(f"    numbers[:] = {', '.join(self.scalars[n] for n in self.slots)},")
        self.out.lines = [*head, *self.out.lines]
        self.out.calls = {line + len(head): node for line, node in self.out.calls.items()}
        self.out.together = {line + len(head): nodes for line, nodes in self.out.together.items()}
        self._end()
        if len(self.out.lines) == start:
            self.out.add("    pass")
        return self.out

    def name(self, ref: Ref) -> str:
        """Return the name of a value in the source."""
        if ref.scalar:
            return self.scalars[ref.node]
        name = f"v{self.numbers[ref.node]}" + (f"_{ref.index}" if ref.index else "")
        self.out.space[name] = self.plan.arrays[ref]
        return name

    def _step(self, node: Node) -> None:
        ins: list[Operand] = []
        names: list[str] = []
        for a in node.args:
            if a.__class__ is Ref:
                ins.append(a.node if a.scalar else self.plan.arrays[a])
                names.append(self.name(a))
            else:
                ins.append(a)
                names.append(self._literal(a))
        made = [self.name(node.out(i)) for i in range(len(node.avals))]
        outs = [self.plan.arrays[node.out(i)] for i in range(len(node.avals))]
        step = numpy_calls.Step(node, ins, outs, names, made)
        statements = self._statements(step)
        self.out.space.update(step.space)
        comment = described(node)
        if len(statements) == 1 and statements[0].endswith("()") and statements[0][:-2] in step.space:
            self.run.append((statements[0], comment, node))
            return
        self._chained()
        for line in statements:
            self.out.add(f"    {line}", comment, node)
            comment = ""

    def _chained(self) -> None:
        """Write the pending bound steps, several as one call where the backend can chain them."""
        run, self.run = self.run, []
        done = 0
        for count, together in self.compiler.chain([self.out.space[call[:-2]] for call, _, _ in run]):
            part = run[done : done + count]
            done += count
            if count == 1:
                call, comment, node = part[0]
                self.out.add(f"    {call}", comment, node)
                continue
            for call, comment, _ in part:
                self.out.add(f"    # {call}: {comment}")
            name = f"together_{len(self.out.space)}"
            self.out.space[name] = together
            self.out.add(f"    {name}()", f"the {count} steps above", part[-1][2])
            self.out.together[len(self.out.lines)] = [node for _, _, node in part]

    def _statements(self, step: numpy_calls.Step) -> list[str]:
        """Return the statements of one call."""
        node, op = step.node, step.node.op
        cluster = node.attrs.get("cluster")
        if op is reorder:
            rules = self.compiler.layouts()
            assert rules is not None  # else no pass had inserted the node
            source, target = node.attrs["source"], node.attrs["target"]
            return [f"{step.bind(rules.reorder(step.ins[0], source, step.outs[0], target), 'reorder')}()"]
        if cluster is not None:
            return self._fused(step, self.compiler.fuse(cluster))
        if not any(isinstance(value, Node) for value in step.ins):
            thunk = self.compiler.prepare(op, step.ins, self._attrs(node), step.outs)
            if thunk is not None:
                return [f"{step.bind(thunk, op.name)}()"]
        statements = numpy_calls.lines(step)
        if statements is not None:
            return statements
        if op is epilogue:
            return self._kernel_call(
                step, step.bind(functools.partial(op.forward, self.backend, **node.attrs), "epilogue")
            )
        kernel = self.backend.kernel_for(op, step.ins)
        return self._kernel_call(
            step, step.bind(functools.partial(kernel, **node.attrs) if node.attrs else kernel, op.name)
        )

    def _attrs(self, node: Node) -> Attrs:
        """Return the attrs of a call, for a product with the version counters of its large operands."""
        if not node.op.packable:
            return node.attrs
        counters = {}
        for position, ref in enumerate(node.args):
            counter = self.counters.get(_origin(ref)) if ref.__class__ is Ref else None
            if counter is not None and ref.aval.size > LITTLE:
                counters[position] = counter
        return {**node.attrs, "counters": counters} if counters else node.attrs

    def _fused(self, step: numpy_calls.Step, kernel: FusedKernel | None) -> list[str]:
        """Return the call of a cluster's kernel, bound to its arrays if it has ``bind``."""
        if kernel is not None:
            if not hasattr(kernel, "bind"):
                return [f"{step.bind(kernel, 'fused')}({', '.join([*step.names, *step.made])})"]
            ins = [self.number(v) if isinstance(v, Node) else v for v in step.ins]
            try:
                return [f"{step.bind(kernel.bind(*ins, *step.outs), 'fused')}()"]
            except NotFusableError as error:
                self.unfused.append(f"{described(step.node)}: {error}")
        attrs = step.node.attrs
        assert isinstance(step.node.op, Fused)
        return self._kernel_call(
            step, step.bind(functools.partial(step.node.op.forward, self.backend, **attrs), "unfused")
        )

    def number(self, scalar: Node) -> np.ndarray:
        """Return the 0-d array in which bound kernels find a scalar."""
        slot = self.slots.get(scalar)
        if slot is None:
            index = len(self.slots)
            slot = self.slots[scalar] = self.table[index : index + 1].reshape(())
        return slot

    def _kernel_call(self, step: numpy_calls.Step, call: str) -> list[str]:
        """Return a call of a kernel that returns new arrays, and the copies into the planned arrays."""
        copy, made = step.function("copyto"), step.made
        args = ", ".join(step.names)
        if not made:
            return [f"{call}({args})"]
        op = step.node.op
        if op.outputs == 1 and not op.residuals:
            return [f"{copy}({made[0]}, {call}({args}), 'unsafe')"]
        several = [f"{copy}({m}, made[{i}], 'unsafe')" for i, m in enumerate(made)]
        return [f"made = {call}({args})", *several]

    def _literal(self, value: object) -> str:
        """Return an argument that is not a value of the graph as a literal, or the name of a variable."""
        if value is None or value.__class__ in (bool, int):
            return repr(value)
        if isinstance(value, float) and value.__class__ is float and math.isfinite(value):
            return repr(value)
        name = f"c{len(self.out.space)}"
        self.out.space[name] = value
        return name

    def _end(self) -> None:
        """Append the copies into external memory, and those of scalars that are outputs."""
        self.out.space["copyto"] = np.copyto
        for array, value in self.plan.copies:
            name = f"to_{len(self.out.space)}"
            self.out.space[name] = array
            self.out.add(f"    copyto({name}, {self.name(value)}, 'unsafe')", "write")
        for ref in self.graph.outputs:
            if ref.scalar and ref not in self.scalar_outputs:
                self.scalar_outputs[ref] = np.zeros(())
                name = f"kept_{self.scalars[ref.node]}"
                self.out.space[name] = self.scalar_outputs[ref]
                self.out.add(f"    copyto({name}, {self.scalars[ref.node]})", "output")


def _origin(ref: Ref) -> Node:
    """Return the node that owns the memory of ``ref``, which may be a view."""
    node = ref.node
    while node.kind == "call" and node.op.view and node.args[0].__class__ is Ref:
        node = node.args[0].node
    return node


def described(node: Node) -> str:
    """Return the comment of a step: op, module path, shapes."""
    title = str(node.label or node.op.name)
    where = f" [{node.module}]" if node.module else ""
    ins = ", ".join(repr(a.aval) if a.__class__ is Ref else repr(a) for a in node.args)
    return f"{title}{where}: {ins} -> {', '.join(map(repr, node.avals))}"
