"""Numbers that change from run to run without a new recording: learning rates, step counts, bias corrections.

A recorder hands optimizers a ``Scalar`` where they expect a float. Arithmetic on it is recorded as scalar
nodes of the graph, computed in Python floats before every run. Asking a Scalar for its truth, comparing it or
turning it into a plain number makes a guard: the program holds as long as the answer stays the same.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable
from typing import Any

from tenon.graph.graph import Node, Ref
from tenon.graph.scalar_functions import FUNCTIONS


def expression(node: Node, names: dict[Node, str]) -> str:
    """The Python expression of a scalar that is no input; ``names`` has those of its arguments."""
    parts = [names[a.node] if a.__class__ is Ref else repr(a) for a in node.args]
    return FUNCTIONS[node.op][1].format(*parts)


class Reading:
    """Where a scalar input comes from: ``reading()`` now, ``source(names)`` as a Python expression."""

    __slots__ = ("get", "key", "source")

    def __init__(self, key: tuple[Any, ...], get: Callable[[], float], source: Callable[[Any], str]) -> None:
        #: Whose number it is: equal for two readings of one.
        self.key = key
        self.get = get
        self.source = source

    def __call__(self) -> float:
        """The number now."""
        return self.get()


def expression_of(node: Node, names: Any) -> str:
    """A scalar as one Python expression on where its inputs come from."""
    if node.op == "input":
        return f"({node.value.source(names)})"
    parts = [expression_of(a.node, names) if a.__class__ is Ref else repr(a) for a in node.args]
    return f"({FUNCTIONS[node.op][1].format(*parts)})"


def question_text(question: str, value: str, other: str) -> str:
    """A question about a scalar as a Python expression."""
    return _ASKED.get(question, f"{question}({{0}})").format(value, other)


_ASKED = {
    "eq": "{} == {}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "index": "{0}.__index__()",
}


def evaluate(node: Node, inputs: dict[Node, float]) -> float:
    """The value of a scalar node, given those of the scalar inputs."""
    if node.op == "input":
        return inputs[node]
    parts = [evaluate(a.node, inputs) if a.__class__ is Ref else a for a in node.args]
    return FUNCTIONS[node.op][0](*parts)


class Scalar:
    """A number of the recording in progress: its value now, and the node that computes it later."""

    __slots__ = ("node", "recorder", "value")
    __array_priority__ = 500
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, recorder: Any, node: Node, value: Any) -> None:
        self.recorder = recorder
        self.node = node
        self.value = value

    def _made(self, function: str, *args: Any) -> Any:
        for a in args:
            if not isinstance(a, (Scalar, int, float)):
                return NotImplemented
        compute = FUNCTIONS[function][0]
        value = compute(*(a.value if isinstance(a, Scalar) else a for a in args))
        refs = tuple(a.node.out() if isinstance(a, Scalar) else a for a in args)
        return Scalar(self.recorder, self.recorder.graph.scalar(function, refs), value)

    def _answer(self, question: str, value: Any, other: Any = None) -> Any:
        self.recorder.guard_scalar(self, question, other, value)
        return value

    def __add__(self, other: Any) -> Any:
        return self._made("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._made("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._made("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._made("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._made("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._made("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._made("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._made("div", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._made("floordiv", self, other)

    def __mod__(self, other: Any) -> Any:
        return self._made("mod", self, other)

    def __pow__(self, other: Any) -> Any:
        return self._made("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._made("pow", other, self)

    def __neg__(self) -> Any:
        return self._made("neg", self)

    def __abs__(self) -> Any:
        return self._made("abs", self)

    def sqrt(self) -> Any:
        """The square root, as ``numpy.sqrt`` asks for it."""
        return self._made("sqrt", self)

    def __bool__(self) -> bool:
        return bool(self._answer("bool", bool(self.value)))

    def __eq__(self, other: object) -> bool:
        return bool(self._answer("eq", self.value == plain(other), other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return bool(self._answer("lt", self.value < plain(other), other))

    def __le__(self, other: Any) -> bool:
        return bool(self._answer("le", self.value <= plain(other), other))

    def __gt__(self, other: Any) -> bool:
        return bool(self._answer("gt", self.value > plain(other), other))

    def __ge__(self, other: Any) -> bool:
        return bool(self._answer("ge", self.value >= plain(other), other))

    # A plain number of it is frozen into the graph, so the program only holds while it stays the same.

    def __float__(self) -> float:
        return float(self._answer("float", float(self.value)))

    def __int__(self) -> int:
        return int(self._answer("int", int(self.value)))

    def __index__(self) -> int:
        return int(self._answer("index", operator.index(self.value)))

    def __repr__(self) -> str:
        return f"Scalar({self.value!r})"


numbers.Number.register(Scalar)


#: What a guard asks of a scalar's value.
QUESTIONS: dict[str, Callable[[Any, Any], Any]] = {
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


def plain(value: Any) -> Any:
    """A Scalar's number now; anything else as it is."""
    return value.value if isinstance(value, Scalar) else value
