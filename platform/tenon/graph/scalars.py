"""Numbers that change from run to run without a new recording: learning rates, step counts, bias corrections.

A recorder passes optimizers a ``Scalar`` where they expect a float. Arithmetic on it is recorded as scalar
nodes of the graph, which are computed in Python floats before every run. Testing the truth of a Scalar,
comparing it or converting it to a plain number adds a guard: the program is valid while the answer stays the
same.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tenon.graph.graph import Node, Ref
from tenon.graph.scalar_functions import FUNCTIONS

if TYPE_CHECKING:
    from tenon.graph.guards import Names
    from tenon.graph.optimizer_options import OptimizerOptions

#: The other operand of a Scalar's operator: a number or a Scalar; for others it returns NotImplemented.
ScalarOperand: TypeAlias = "float | Scalar"
_Number = TypeVar("_Number", bool, int, float)


def expression(node: Node, names: Mapping[Node, str]) -> str:
    """Return a scalar that is not an input as a Python expression of the names of its arguments."""
    parts = [names[a.node] if a.__class__ is Ref else repr(a) for a in node.args]
    return FUNCTIONS[node.function][1].format(*parts)


class Reading:
    """The source of a scalar input: ``reading()`` reads it, ``source(names)`` is that as Python code."""

    __slots__ = ("get", "key", "source")

    def __init__(
        self, key: tuple[Hashable, ...], get: Callable[[], float], source: Callable[[Names], str]
    ) -> None:
        #: Equal for two readings of the same number.
        self.key = key
        self.get = get
        self.source = source

    def __call__(self) -> float:
        """Return the present number."""
        return self.get()


def expression_of(node: Node, names: Names) -> str:
    """Return a scalar as one Python expression of the sources of its inputs."""
    if node.function == "input":
        return f"({node.value.source(names)})"
    parts = [expression_of(a.node, names) if a.__class__ is Ref else repr(a) for a in node.args]
    return f"({FUNCTIONS[node.function][1].format(*parts)})"


def question_text(question: str, value: str, other: str) -> str:
    """Return a question about a scalar as a Python expression."""
    return _QUESTION_TEXTS.get(question, f"{question}({{0}})").format(value, other)


_QUESTION_TEXTS = {
    "eq": "{} == {}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "index": "{0}.__index__()",
}
#: The questions about two numbers.
COMPARISONS = tuple(name for name, text in _QUESTION_TEXTS.items() if text.count("{}") == 2)


def evaluate(node: Node, inputs: Mapping[Node, float]) -> float:
    """Return the value of a scalar node, given those of the scalar inputs."""
    if node.function == "input":
        return inputs[node]
    parts = [evaluate(a.node, inputs) if a.__class__ is Ref else a for a in node.args]
    return FUNCTIONS[node.function][0](*parts)


class Scalar:
    """A number of the recording in progress: its present value, and the node that computes it in runs."""

    __slots__ = ("node", "recorder", "value")
    __array_priority__ = 500
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recorder: OptimizerOptions, node: Node, value: float) -> None:
        self.recorder = recorder
        self.node = node
        self.value = value

    @property
    def may_decide(self) -> bool:
        """Whether Python code may branch on this number: a changed answer then leads to another recording.

        In a captured graph, which serves every run, it would end with an error: compute without a branch.
        """
        return self.recorder.records_again

    def _computed(self, function: str, *args: ScalarOperand) -> Scalar:
        for a in args:
            if not isinstance(a, (Scalar, int, float)):
                return NotImplemented
        compute = FUNCTIONS[function][0]
        value = compute(*(a.value if isinstance(a, Scalar) else a for a in args))
        refs = tuple(a.node.out() if isinstance(a, Scalar) else a for a in args)
        return Scalar(self.recorder, self.recorder.graph.scalar(function, refs), value)

    def _answer(self, question: str, value: _Number, other: object = None) -> _Number:
        self.recorder.guard_scalar(self, question, other, value)
        return value

    def __add__(self, other: ScalarOperand) -> Scalar:
        return self._computed("add", self, other)

    def __radd__(self, other: ScalarOperand) -> Scalar:
        return self._computed("add", other, self)

    def __sub__(self, other: ScalarOperand) -> Scalar:
        return self._computed("sub", self, other)

    def __rsub__(self, other: ScalarOperand) -> Scalar:
        return self._computed("sub", other, self)

    def __mul__(self, other: ScalarOperand) -> Scalar:
        return self._computed("mul", self, other)

    def __rmul__(self, other: ScalarOperand) -> Scalar:
        return self._computed("mul", other, self)

    def __truediv__(self, other: ScalarOperand) -> Scalar:
        return self._computed("div", self, other)

    def __rtruediv__(self, other: ScalarOperand) -> Scalar:
        return self._computed("div", other, self)

    def __floordiv__(self, other: ScalarOperand) -> Scalar:
        return self._computed("floordiv", self, other)

    def __mod__(self, other: ScalarOperand) -> Scalar:
        return self._computed("mod", self, other)

    def __pow__(self, other: ScalarOperand) -> Scalar:
        return self._computed("pow", self, other)

    def __rpow__(self, other: ScalarOperand) -> Scalar:
        return self._computed("pow", other, self)

    def __neg__(self) -> Scalar:
        return self._computed("neg", self)

    def __abs__(self) -> Scalar:
        return self._computed("abs", self)

    def sqrt(self) -> Scalar:
        """Return the square root; ``numpy.sqrt`` calls this method."""
        return self._computed("sqrt", self)

    def __bool__(self) -> bool:
        return self._answer("bool", bool(self.value))

    def __eq__(self, other: object) -> bool:
        return bool(self._answer("eq", self.value == plain(other), other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: ScalarOperand) -> bool:
        return bool(self._answer("lt", self.value < plain(other), other))

    def __le__(self, other: ScalarOperand) -> bool:
        return bool(self._answer("le", self.value <= plain(other), other))

    def __gt__(self, other: ScalarOperand) -> bool:
        return bool(self._answer("gt", self.value > plain(other), other))

    def __ge__(self, other: ScalarOperand) -> bool:
        return bool(self._answer("ge", self.value >= plain(other), other))

    # A plain number becomes a constant of the graph, so the program is valid only while it stays the same.

    def __float__(self) -> float:
        return self._answer("float", float(self.value))

    def __int__(self) -> int:
        return self._answer("int", int(self.value))

    def __index__(self) -> int:
        return self._answer("index", operator.index(self.value))  # type: ignore[arg-type]  # TypeError of a float

    def __repr__(self) -> str:
        return f"Scalar({self.value!r})"


numbers.Number.register(Scalar)


#: Name of a question -> its answer for a scalar's value and the other operand, which some ignore.
QUESTIONS: dict[str, Callable[[Any, Any], float]] = {
    "bool": lambda value, other: bool(value),
    "eq": lambda value, other: value == other,
    "lt": lambda value, other: value < other,
    "le": lambda value, other: value <= other,
    "gt": lambda value, other: value > other,
    "ge": lambda value, other: value >= other,
    "float": lambda value, other: float(value),
    "int": lambda value, other: int(value),
    "index": lambda value, other: operator.index(value),
}


# ``value`` is an argument of an op, which may be of any type.
def plain(value: Any) -> Any:
    """Return the present number of a Scalar; any other ``value`` unchanged."""
    return value.value if isinstance(value, Scalar) else value
