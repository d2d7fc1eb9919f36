"""``Program``: a graph bound to memory, ready to be run repeatedly.

``bind`` plans memory for the given arrays of the inputs, and emits and compiles source; ``run`` replays it.
Outputs are in buffers of the program, which its next run overwrites: callers copy them. A run allocates
nothing, except in kernels without ``out=``.
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
from tenon.engine.types import Array
from tenon.errors import GraphError, TenonError
from tenon.graph.emit import Counter, Emitter, described
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.memory_plan import MemoryPlan
from tenon.graph.passes import Pass
from tenon.graph.passes import run as run_passes
from tenon.graph.passes.copy_overwritten import copy_overwritten
from tenon.graph.source_cache import forget_with, remember
from tenon.kernels.backend import Backend

_COUNT = itertools.count()
#: Programs that are bound to memory.
LIVING: weakref.WeakSet[Program] = weakref.WeakSet()
#: Called with every program that is bound to memory; None without a listener.
on_bind: Callable[[Program], None] | None = None
KERNEL_ERRORS = (
    ValueError, TypeError, IndexError, AttributeError, RuntimeError, OverflowError, ArithmeticError,
)  # fmt: skip


class Program:
    """Runs ``graph`` on arrays of ``backend``, after ``passes`` have rewritten it.

    Call ``bind`` with the arrays of the inputs, ``run`` with the scalars of the run, then ``value`` for
    outputs.
    """

    def __init__(self, graph: Graph, backend: Backend, passes: Sequence[Pass] = ()) -> None:
        run_passes(graph, passes)
        copy_overwritten(graph)
        graph.verify()
        self.graph, self.backend = graph, backend
        #: The generated Python, one line per step; empty before ``bind``.
        self.source = ""
        self._plan: MemoryPlan | None = None
        #: The file name of the source in tracebacks and profiles.
        self.name = f"<tenon program {next(_COUNT)}>"
        forget_with(self, self.name)
        #: Line number -> the call that the line makes; see ``Emitted``.
        self._calls: dict[int, Node] = {}
        self._together: dict[int, list[Node]] = {}
        self._kept: dict[Ref, np.ndarray] = {}
        #: The compiled function; its arguments are the scalar inputs. Any, as its code is replaced.
        self._run: Any = None

    def bind(self, arrays: Mapping[Node, Array], counters: Mapping[Node, Counter] | None = None) -> None:
        """Plan memory and compile the source, for these arrays of the inputs.

        They are the memory of parameters and state, and static buffers for arguments. ``counters`` has the
        version counters of parameters and state.
        """
        for node in self.graph.inputs:
            array = arrays.get(node)
            if array is None:
                raise GraphError(f"bind: no array for the input {node.label or node!r}. Pass one for each.")
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
        self._plan, self.source, self._calls = plan, source, emitted.calls
        self._scalar_outputs = emitter.scalar_outputs
        self._together = emitted.together
        self._run = emitted.space["run"]
        LIVING.add(self)
        if on_bind is not None:
            on_bind(self)

    def run(self, scalars: Sequence[float] = ()) -> None:
        """Run once; ``scalars`` are the values of the scalar inputs, in the graph's order."""
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
        """Call ``mark(line)`` in each run from now on after every line that computes, for profilers.

        It is also called as ``mark(0)`` before the first line and ``mark(-1)`` at the end. None ends this.
        Runs in progress are not affected.
        """
        code = compile(self.source, self.name, "exec")
        if mark is not None:
            self._run.__globals__["_mark"] = mark
            code = compile(marked(self.source, self._calls), self.name, "exec")
        self._run.__code__ = next(c for c in code.co_consts if hasattr(c, "co_code"))

    def steps(self) -> dict[int, list[Node]]:
        """Map each line of the source that computes to the calls that it makes."""
        return {line: self._together.get(line, [node]) for line, node in self._calls.items()}

    def value(self, ref: Ref) -> Array:
        """Return the buffer that holds ``ref`` after a run; the next run overwrites it."""
        scalar = self._scalar_outputs.get(ref)
        return self.plan.arrays[ref] if scalar is None else scalar

    @property
    def plan(self) -> MemoryPlan:
        """The memory plan; GraphError before ``bind``."""
        if self._plan is None:
            raise GraphError("the program has no memory yet. Call bind first.")
        return self._plan

    def _explain(self, error: Exception) -> None:
        """Raise ``error`` with a note that names the step that raised it."""
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
    """Return the line of ``filename`` in a traceback; 0 if it is not there."""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            return trace.tb_lineno
        trace = trace.tb_next
    return 0


def marked(source: str, lines: Collection[int]) -> ast.Module:
    """Return the syntax tree of ``source`` with calls of ``_mark`` at start and end and after ``lines``."""
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
    """Return a call ``_mark(line)`` with the position of ``place``, so that line numbers do not change."""
    called = ast.Call(ast.Name("_mark", ast.Load()), [ast.Constant(line)], [])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(called), place))


def arrays_like(graph: Graph) -> dict[Node, np.ndarray]:
    """Return zeros for all inputs of ``graph``, to be used as static buffers."""
    return {n: np.zeros(n.avals[0].shape, n.avals[0].dtype) for n in graph.inputs}
