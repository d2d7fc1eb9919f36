"""``Program``: the lines of ``compute``, one per call, with the functions and arrays that they use."""

from __future__ import annotations

import builtins
import copy
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tenon.extend import Aval, CapturedGraph, Guard, Node, Ref, errors
from tenon_target_numpy import library
from tenon_target_numpy.forms import MOVES, call_text
from tenon_target_numpy.texts import is_symbolic, number_text

#: Functions of the numbers that are computed for every run, as format strings.
_NUMBERS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "floordiv": "{} // {}",
    "mod": "{} % {}", "pow": "{} ** {}", "neg": "-{}", "abs": "abs({})", "min": "min({}, {})",
    "max": "max({}, {})", "sqrt": "math.sqrt({})",
}  # fmt: skip
_QUESTIONS = {"eq": "{} == {}", "lt": "{} < {}", "le": "{} <= {}", "gt": "{} > {}", "ge": "{} >= {}"}
#: Names that the lines use: no variable has them, but ``input``, the usual name of an argument, is free.
_USED = {"state", "numbers", "np", "math"} | set(dir(builtins)) - {"input"}
#: The largest constant that is written in the code.
_SHORT = 8
#: Ops that return their operand, whose text is the operand's: arrays are not changed in place.
_SAME = frozenset({"alias", "clone", "contiguous", "ordered"})
#: The size in bytes from which a result is deleted after its last use.
_LARGE = 1 << 16


@dataclass(slots=True)
class Program:
    """The body of ``compute`` for one graph in the ops of the target."""

    graph: CapturedGraph
    lines: list[str] = field(default_factory=list)
    #: Names of functions of ``templates/`` that the lines call.
    functions: set[str] = field(default_factory=set)
    #: Arrays of the weights file by name.
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    #: The parameters of ``compute`` for the inputs, in order.
    parameters: list[str] = field(default_factory=list)
    texts: dict[Ref, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)
    _read: set[Ref] = field(default_factory=set)
    #: Name of a size that may change -> the variable that has it.
    _symbols: dict[str, str] = field(default_factory=dict)
    #: The graph with these variables in its expressions of sizes, and the same nodes.
    _sized: CapturedGraph = field(init=False)

    def build(self) -> Program:
        """Write all lines."""
        self._taken = {*_USED, *library.definitions(), *library.frame()}
        self._name_sizes()
        self._read = read_values(self.graph)
        self._name_inputs()
        graph = self.graph
        dying = _last_readers(graph)
        module = ""
        waiting: list[str] = []
        for node in graph.nodes:
            if node.kind == "constant":
                self._constant(node)
            elif node.kind == "scalar":
                self._number(node)
            elif node.kind == "call":
                place = " at ".join(filter(None, (node.module, node.where)))
                if place != module:
                    if waiting:
                        self.lines += [f"del {name}" for name in waiting]
                        waiting = []
                    self.lines += ["", f"# {place}"] if place else [""]
                    module = place
                self._call(node)
                waiting += [self.texts[r] for r in dying.get(node, []) if self._is_large(r)]
        self._guards()
        outputs = ", ".join(self.texts[r] for r in graph.outputs)
        writes = ", ".join(f"{w.target.label!r}: {self.texts[w.value]}" for w in graph.writes)
        self.lines += ["", f"return [{outputs}], {{{writes}}}"]
        while self.lines and not self.lines[0]:
            self.lines.pop(0)
        return self

    # --- inputs, constants and numbers ---

    def _name_sizes(self) -> None:
        """Choose a variable for each size that may change."""
        graph = self.graph
        self._symbols = {symbol: self._name(symbol) for symbol in graph.symbols}
        self._sized = copy.copy(graph)
        self._sized.symbolic = {
            node: {place: renamed(size, self._symbols) for place, size in sizes.items()}
            for node, sizes in graph.symbolic.items()
        }

    def _name_inputs(self) -> None:
        graph = self.graph
        known: set[str] = set()
        for node in graph.arguments:
            name = self._name(re.sub(r"\W", "_", node.label) or "input")
            self.parameters.append(name)
            self.texts[node.out()] = name
            for axis, size in enumerate(graph.with_sizes(node).avals[0].shape):
                variable = self._symbols.get(str(size))
                if variable is not None and variable not in known:
                    known.add(variable)
                    self.lines.append(f"{variable} = {name}.shape[{axis}]")
        for node, name in zip(graph.arguments, self.parameters, strict=True):
            sizes = zip(*(g.with_sizes(node).avals[0].shape for g in (graph, self._sized)), strict=True)
            for axis, (size, own) in enumerate(sizes):
                if is_symbolic(size) and str(size) not in self._symbols:
                    what = f"dimension {axis} of the input {node.label!r} has size {{{name}.shape[{axis}]}}; "
                    error = f"{what}it must have {size} = {{{own}}}."
                    self.lines.append(f"if {name}.shape[{axis}] != {own}:")
                    self.lines.append(f"    raise ValueError(f{error!r})")
        self._size_guards()
        for node in graph.states:
            self.texts[node.out()] = f"state[{node.label!r}]"
            self.arrays[node.label] = np.asarray(node.value.detach().numpy())

    def _size_guards(self) -> None:
        for guard in self.graph.size_guards:
            where = guard.place.replace("{", "{{").replace("}", "}}")
            own = replace(guard, left=self._own(guard.left), right=self._own(guard.right)).condition
            sizes = ", ".join(f"{name} = {{{self._symbols[name]}}}" for name in sorted(guard.symbols))
            error = (
                f"{where} decided by {guard.condition}, which was {guard.answer} when it was captured and is "
                f"not for {sizes}."
            )
            self.lines.append(f"if not {own}:" if guard.answer else f"if {own}:")
            self.lines.append(f"    raise ValueError(f{error!r})")

    def _own(self, size: Any) -> Any:  # a number, or an expression of sizes
        return renamed(size, self._symbols)

    def _name(self, stem: str) -> str:
        """Return an unused variable name."""
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"_{stem}"
        name, number = stem, 1
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name

    def _numbered(self, stem: str) -> str:
        """Return ``relu_1``, ``relu_2``, and so on."""
        while True:
            number = self._counts[stem] = self._counts.get(stem, 0) + 1
            name = f"{stem}_{number}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def _constant(self, node: Node) -> None:
        array = np.asarray(node.value)
        if array.size <= _SHORT and array.ndim < 2 and (array.dtype.kind != "f" or np.isfinite(array).all()):
            kind = "bool_" if array.dtype.name == "bool" else array.dtype.name
            self.texts[node.out()] = f"np.array({array.tolist()!r}, np.{kind})"
            return
        number = self._counts["constant"] = self._counts.get("constant", 0) + 1
        name = f"constant.{number}"
        while name in self.arrays:
            name += "_"
        self.arrays[name] = array
        self.texts[node.out()] = f"state[{name!r}]"

    def _number(self, node: Node) -> None:
        if node.function == "input":
            self.texts[node.out()] = f"numbers[{node.label!r}]"
            return
        pattern = _NUMBERS.get(node.function)
        if pattern is None:
            raise errors.LoweringError(
                f"the target numpy does not support the function {node.function!r} of numbers."
            )
        name = self._numbered("number")
        self.lines.append(f"{name} = {pattern.format(*(self._operand(a) for a in node.args))}")
        self.texts[node.out()] = name

    def _operand(self, value: Any) -> str:  # an argument of any type
        if value.__class__ is Ref:
            return self.texts[value]
        if hasattr(value, "symbols"):
            return f"({value})"
        return "None" if value is None else number_text(value)

    # --- calls ---

    def _call(self, node: Node) -> None:
        count = node.op.outputs or len(node.avals)
        hidden = reads_hidden(node, self._read)
        operands = [self._operand(a) for a in self._sized.with_sizes(node).args]
        short = node.name not in MOVES and any(a.dtype.name == "float16" for a in _avals(node))
        elementwise = len(node.avals) == 1 and node.op.expression is not None
        if short and not elementwise:
            operands = [
                f"{text}.astype(np.float32)"
                if a.__class__ is Ref and a.aval.dtype.name == "float16"
                else text
                for text, a in zip(operands, node.args, strict=True)
            ]
        text = call_text(self._sized.with_sizes(node), operands, hidden, self.functions)
        total = len(node.avals) if hidden else count
        if total == 1 and node.op.outputs == 1:
            if short and not elementwise:
                text = f"({text}).astype(np.{node.avals[0].dtype.name})"
            self._assign(node, text)
            return
        names = []
        for index in range(total):
            read = node.out(index) in self._read
            names.append(self._numbered(node.name) if read else "_")
            if read:
                self.texts[node.out(index)] = names[-1]
        self.lines.append(f"{', '.join(names)}{',' if total == 1 else ''} = {text}")
        for index, name in enumerate(names):
            if short and not elementwise and name != "_" and node.avals[index].dtype.name == "float16":
                self.lines.append(f"{name} = {name}.astype(np.float16)")

    def _assign(self, node: Node, text: str) -> None:
        if node.name in _SAME:
            self.texts[node.out()] = text
            return
        self.texts[node.out()] = name = self._numbered(node.name)
        self.lines.append(f"{name} = {text}")

    def _is_large(self, ref: Ref) -> bool:
        """Whether a result has a name of its own and is large enough to be deleted after its last use."""
        aval = ref.aval
        return self.texts[ref].isidentifier() and aval.size * aval.dtype.itemsize >= _LARGE

    # --- guards ---

    def _guards(self) -> None:
        for guard in self.graph.guards:
            where = guard.where or "an unknown place"
            self.lines.append(f"check_decision({self._answer_text(guard)}, {guard.answer!r}, {where!r})")

    def _answer_text(self, guard: Guard) -> str:
        value, other = self.texts[guard.value], self._operand(guard.other)
        if guard.question in _QUESTIONS:
            return _QUESTIONS[guard.question].format(value, other)
        return f"{'int' if guard.question == 'index' else guard.question}({value})"


def renamed(size: Any, names: Mapping[str, str]) -> Any:  # a number, or an expression of sizes
    """Return a size with other names of its symbols."""
    if not hasattr(size, "symbols"):
        return size
    if size.function == "symbol":
        return replace(size, args=(names[size.args[0]],))
    return replace(size, args=tuple(renamed(a, names) for a in size.args))


def _avals(node: Node) -> list[Aval]:
    return [*node.avals, *(r.aval for r in node.refs if not r.scalar)]


def read_values(graph: CapturedGraph) -> set[Ref]:
    """Return all values that are used."""
    return {ref for node in graph.nodes for ref in node.refs} | set(graph.roots())


def reads_hidden(node: Node, read: set[Ref]) -> bool:
    """Whether the residuals of ``node``, for its gradient, are used."""
    first = node.op.outputs or len(node.avals)
    return any(node.out(i) in read for i in range(first, len(node.avals)))


def _last_readers(graph: CapturedGraph) -> dict[Node, list[Ref]]:
    """Map each call to the results whose last use it is.

    A use of a result without a variable of its own is one of its operands.
    """
    sources: dict[Ref, list[Ref]] = {}
    for node in graph.calls:
        if node.name in _SAME:
            sources[node.out()] = [each for ref in node.refs for each in sources.get(ref, [ref])]
    kept = {each for ref in graph.roots() for each in sources.get(ref, [ref])}
    last: dict[Ref, Node] = {}
    for node in graph.nodes:
        for ref in node.refs:
            for each in sources.get(ref, [ref]):
                last[each] = node
    result: dict[Node, list[Ref]] = {}
    for ref, node in last.items():
        if ref not in kept and ref.node.kind == "call" and node.kind == "call":
            result.setdefault(node, []).append(ref)
    return result
