"""``Program``: a graph bound to memory, ready to be run again and again.

``bind`` plans memory for the given arrays of the inputs, emits source and compiles it; ``run`` replays it.
Outputs lie in buffers of the program until its next run: callers copy what they keep. Nothing is allocated
by a run, apart from what kernels without ``out=`` do inside.
"""

from __future__ import annotations

import ast
import itertools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from tenon.engine import dispatch
from tenon.engine.quiet import IGNORE, enter, leave
from tenon.errors import GraphError, TenonError
from tenon.graph.emit import Counter, Emitter, described
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.memory_plan import MemoryPlan
from tenon.graph.passes import Pass
from tenon.graph.passes import run as run_passes
from tenon.graph.passes.copy_overwritten import copy_overwritten
from tenon.graph.source_cache import forget_with, remember

_COUNT = itertools.count()
#: Programs that are bound to memory.
LIVING: weakref.WeakSet[Program] = weakref.WeakSet()
#: Called with every program when it is bound to memory; None while nobody listens.
on_bind: Callable[[Any], None] | None = None
KERNEL_ERRORS = (
    ValueError, TypeError, IndexError, AttributeError, RuntimeError, OverflowError, ArithmeticError,
)  # fmt: skip


class Program:
    """What replays ``graph`` on ``backend``'s arrays, after ``passes`` have rewritten it.

    ``bind`` it to arrays, ``run`` it with the numbers of the run, and look at ``value`` of its outputs.
    """

    def __init__(self, graph: Graph, backend: Any, passes: Sequence[Pass] = ()) -> None:
        run_passes(graph, passes)
        copy_overwritten(graph)
        graph.verify()
        self.graph, self.backend = graph, backend
        #: The Python that runs, one line per step; empty before ``bind``.
        self.source = ""
        self._plan: MemoryPlan | None = None
        #: What tracebacks and profiles call it.
        self.name = f"<tenon program {next(_COUNT)}>"
        forget_with(self, self.name)
        self._calls: dict[int, Node] = {}
        self._together: dict[int, list[Node]] = {}
        self._kept: dict[Ref, Any] = {}
        self._run: Any = None

    def bind(self, arrays: Mapping[Node, Any], counters: Mapping[Node, Counter] | None = None) -> None:
        """Lay out memory and compile, for these arrays of the inputs: the real memory of parameters and
        state, static buffers for arguments. ``counters`` tell of memory from outside when it has changed."""
        for node in self.graph.inputs:
            array = arrays.get(node)
            if array is None:
                raise GraphError(f"bind: no array for the input {node.label or node!r}. Give one for each.")
            if tuple(array.shape) != tuple(node.avals[0].shape) or array.dtype != node.avals[0].dtype:
                raise GraphError(
                    f"bind: the input {node.label or node!r} is {node.avals[0]!r} in the graph, got"
                    f" {array.dtype}{list(array.shape)}. Record again for other shapes."
                )
        plan = MemoryPlan(self.graph, arrays, self.backend.xp)
        emitter = Emitter(self.graph, plan, self.backend, counters or {})
        with emitter.compiler.binding():
            emitted = emitter.emit()
        source = emitted.source
        remember(self.name, source)
        exec(compile(source, self.name, "exec"), emitted.space)
        self._plan, self.source, self._calls, self._kept = plan, source, emitted.calls, emitter.kept
        self._together = emitted.together
        self._run = emitted.space["run"]
        LIVING.add(self)
        if on_bind is not None:
            on_bind(self)

    def run(self, scalars: Sequence[float] = ()) -> None:
        """Replay once; ``scalars`` are the values of the scalar inputs, in the graph's order."""
        if self._run is None:
            raise GraphError("run: the program has no memory yet. Call bind first.")
        token = enter(IGNORE)
        try:
            self._run(*scalars)
        except KERNEL_ERRORS as error:
            self._explain(error)
        finally:
            leave(token)

    def timed(self, mark: Callable[[int], None] | None) -> None:
        """Let each run call ``mark(line)`` after every line that computes, ``mark(0)`` before the first and
        ``mark(-1)`` at the end, for profilers; or with None nothing any more. Runs in progress stay as they
        are."""
        code = compile(self.source, self.name, "exec")
        if mark is not None:
            self._run.__globals__["_mark"] = mark
            code = compile(marked(self.source, self._calls), self.name, "exec")
        self._run.__code__ = next(c for c in code.co_consts if hasattr(c, "co_code"))

    def steps(self) -> dict[int, list[Node]]:
        """The calls that each computing line of the source makes."""
        return {line: self._together.get(line, [node]) for line, node in self._calls.items()}

    def value(self, ref: Ref) -> Any:
        """The buffer that holds ``ref`` after a run; the next run overwrites it."""
        kept = self._kept.get(ref)
        return self.plan.arrays[ref] if kept is None else kept

    @property
    def plan(self) -> MemoryPlan:
        """Where everything lies."""
        if self._plan is None:
            raise GraphError("the program has no memory yet. Call bind first.")
        return self._plan

    def _explain(self, error: Exception) -> None:
        """Raise ``error`` with the step it came from."""
        line = _line_in(error.__traceback__, self.name)
        node = self._calls.get(line)
        if node is None:
            raise error
        place = f"in step {described(node)}" + (f", recorded at {node.where}" if node.where else "")
        if isinstance(error, TenonError):
            error.add_note(place)
            raise error
        raw = [self.plan.arrays.get(a, 0.0) if a.__class__ is Ref else a for a in node.args]
        try:
            dispatch.explain(node.op, raw, {} if "cluster" in node.attrs else node.attrs, error)
        except Exception as explained:
            explained.add_note(place)
            raise


def _line_in(trace: TracebackType | None, filename: str) -> int:
    """The line of ``filename`` at which an error passed."""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            return trace.tb_lineno
        trace = trace.tb_next
    return 0


def marked(source: str, lines: Collection[int]) -> ast.Module:
    """``source`` with a call of ``_mark`` at its start, after each of ``lines`` and at its end."""
    tree = ast.parse(source)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    body: list[ast.stmt] = [_mark(0, function)]
    for statement in function.body:
        body.append(statement)
        if statement.lineno in lines:
            body.append(_mark(statement.lineno, statement))
    function.body = [*body, _mark(-1, function.body[-1])]
    return tree


def _mark(line: int, place: ast.stmt) -> ast.stmt:
    """``_mark(line)`` at ``place``, so that other lines keep their numbers."""
    called = ast.Call(ast.Name("_mark", ast.Load()), [ast.Constant(line)], [])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(called), place))


def arrays_like(graph: Graph) -> dict[Node, Any]:
    """New zeroed arrays for all inputs of ``graph``: static buffers."""
    return {n: np.zeros(n.avals[0].shape, n.avals[0].dtype) for n in graph.inputs}
