"""``Program``: the steps of a C program under construction, and the values that they read and write.

An emitter (``families/``) reads the views of a node's operands, creates the views of its results and adds
steps: calls of kernels (``kernels/*.c``) and of generated loops. Views refer to their buffer, so the
lifetimes of buffers follow from the steps. Next: ``memory.py`` lays out the arena, ``source.py`` writes the
files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tenon.extend import Graph, Node, Ref
from tenon_target_c.values import Buffer, Pointer, View, buffer_of, reserve

#: An argument of a step: a pointer, or C text of a number.
StepArgument: TypeAlias = "Pointer | str | int | float"


#: Where a call has a number: the position of an argument, or the name of an attribute.
Place: TypeAlias = "int | str"


@dataclass(frozen=True, slots=True)
class Step:
    """One call. If it returns other than 0, the run ends with ``error``; without one it returns nothing."""

    function: str
    args: tuple[StepArgument, ...]
    error: str = ""


@dataclass(slots=True)
class Program:
    """Steps, views and generated functions of the program of one graph."""

    graph: Graph
    #: The names of the arguments, in order.
    arguments: Sequence[str]
    steps: list[Step] = field(default_factory=list)
    views: dict[Ref, View] = field(default_factory=dict)
    #: Text of a generated function -> its name.
    functions: dict[str, str] = field(default_factory=dict)
    #: C text of each scalar node.
    scalars: dict[Ref, str] = field(default_factory=dict)
    #: Lines that compute the scalars of a step, and the declarations of scalar inputs.
    scalar_lines: list[str] = field(default_factory=list)
    #: Guards on scalars: conditions by which Python branched in the capture, checked in every run.
    conditions: list[str] = field(default_factory=list)
    weights: dict[tuple[str, tuple[int, ...], bytes], View] = field(default_factory=dict)
    #: Products with the calls in their kernels' epilogues: an addition, then ReLU.
    merged: dict[Node, list[Node]] = field(default_factory=dict)
    #: The integers of elementwise calls that change with the sizes of a run: steps have them as arguments.
    changing: Mapping[Node, Set[Place]] = field(default_factory=dict)

    # --- values ---

    def view(self, ref: Ref) -> View:
        """Return the view of a value."""
        return self.views[ref]

    def known(self, ref: Ref | None) -> np.ndarray | None:
        """Return the array of a value that no run changes; None for other values."""
        if ref is None or ref.__class__ is not Ref:
            return None
        view = self.views.get(ref)
        return view.array if view is not None and view.buffer.kind == "weight" else None

    def new(self, node: Node, index: int = 0) -> View:
        """Create and return the view of an output of ``node``, in the arena."""
        aval = node.avals[index]
        view = reserve("arena", tuple(aval.shape), aval.dtype)
        self.views[node.out(index)] = view
        return view

    def result(self, node: Node) -> View:
        """Create and return the view of a product's output, after the calls that are merged into it."""
        last = self.merged.get(node, [node])[-1]
        view = self.new(last)
        self.views[node.out()] = view
        return view

    def epilogue(self, node: Node) -> tuple[View | str, int]:
        """Return the addend of the calls that are merged into the product ``node``, and whether to apply
        ReLU: see ``merging.py``."""
        addend: View | str = "NULL"
        relu = 0
        for call in self.merged.get(node, [node])[1:]:
            if call.name == "relu":
                relu = 1
            else:
                other = call.args[1] if call.args[0].node in self.merged[node] else call.args[0]
                addend = self.dense(other)
        return addend, relu

    def scratch(self, count: int, dtype: str = "float32") -> View:
        """Return memory for one step."""
        return reserve("arena", (max(count, 1),), np.dtype(dtype))

    def weight(self, array: np.ndarray) -> View:
        """Return a view of an array that is written to the weights file; equal arrays are stored once."""
        array = np.asarray(array, order="C")
        key = (array.dtype.name, array.shape, array.tobytes() if array.nbytes < 1 << 20 else _address(array))
        if key not in self.weights:
            self.weights[key] = buffer_of("weight", array)
        return self.weights[key]

    def dense(self, value: Ref | View) -> View:
        """Return a view in C order, of a copy if necessary."""
        view = value if isinstance(value, View) else self.view(value)
        return view if view.dense else self.copy(view)

    def copy(self, view: View, target: View | None = None) -> View:
        """Add a copy of ``view`` into ``target``, or into new memory; return the target."""
        if target is None:
            target = reserve("arena", view.shape, view.dtype)
        if view.size:
            from tenon_target_c.families.elementwise import copy_loop

            copy_loop(self, view, target)
        return target

    # --- steps ---

    def step(
        self,
        function: str,
        *args: StepArgument | View | bool | np.integer,
        fallible: bool = False,
        error: str = "MODEL_BAD_INDEX",
    ) -> None:
        """Add a call; views among ``args`` are read. See ``out`` for those that it writes.

        ``fallible`` calls return whether they failed, by an index out of range or what ``error`` says.
        """
        final = tuple(
            Pointer(a) if isinstance(a, View) else int(a) if isinstance(a, bool | np.integer) else a
            for a in args
        )
        self.steps.append(Step(function, final, error if fallible else ""))

    def function(self, text: str, stem: str) -> str:
        """Return the name of a generated function with body ``text``, in which ``@`` is replaced by its
        name."""
        name = self.functions.get(text)
        if name is None:
            name = self.functions[text] = f"{stem}_{len(self.functions)}"
        return name

    def buffers(self) -> list[Buffer]:
        """Return all buffers that steps or outputs touch, in order of first use."""
        buffers: dict[Buffer, None] = {}
        for step in self.steps:
            for a in step.args:
                if isinstance(a, Pointer):
                    buffers[a.view.buffer] = None
        for ref in self.graph.roots():
            if ref in self.views:
                buffers[self.views[ref].buffer] = None
        return list(buffers)


def out(view: View) -> Pointer:
    """Return a pointer through which a step writes."""
    return Pointer(view, writes=True)


def _address(array: np.ndarray) -> bytes:
    return repr(array.__array_interface__["data"]).encode()


def scalar_text(program: Program, value: object) -> str:
    """Return the C text, of type double, of a number or of the value of a scalar node."""
    if value.__class__ is Ref:
        return program.scalars[value]
    return double_text(float(value))  # type: ignore[arg-type]


def double_text(value: float) -> str:
    """Return a C literal of type double."""
    if value != value:
        return "NAN"
    if value in (float("inf"), -float("inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(float(value))
    return f"({text})" if value < 0 else text


def shape_text(sizes: Sequence[int]) -> str:
    """Return a C initialiser of sizes."""
    return "{" + ", ".join(map(str, sizes)) + "}"
