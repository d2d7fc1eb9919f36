"""Which of Tensor's methods are functions too, ``tenon.exp(x, out=y)``, and what these take.

A method that is no op says it where it is written, ``@as_function(out="exact")``; of an op its class says it
(``Op.public``, ``Op.first_argument``, ``Op.out``). ``tenon.functions.derived`` makes the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """What the function of a method takes besides the method's own arguments."""

    #: First argument: a "tensor"; also a "number" if another argument is a tensor; "numbers" may be all.
    first: str = "tensor"
    #: Which ``out=`` it takes: "none"; "cast" (any dtype that the result can be cast to), "exact" (the
    #: result's own dtype), "kept" (the input's, where the result has it), "boolean"; "converted": the result
    #: is converted, whatever the dtype.
    out: str = "cast"
    #: Whether ``out=`` may share memory with the arguments: "any" part of it, "same" (all of it or none),
    #: "apart" (none).
    memory: str = "any"
    #: ``out=`` of another shape is resized without a warning.
    resizes: bool = False
    #: In whose words another dtype than the "exact" one is refused: the "function"'s, a "scan"'s or a
    #: "result"'s.
    refusal: str = "function"


#: Name of a function -> its form; ops and methods add themselves.
FUNCTION_FORMS: dict[str, FunctionForm] = {}


def as_function(
    *also: str,
    first: str = "tensor",
    out: str = "cast",
    memory: str = "any",
    resizes: bool = False,
    refusal: str = "function",
) -> Callable[[Method], Method]:
    """The method is a function too, under its name and those of ``also``; see ``FunctionForm``."""
    form = FunctionForm(first, out, memory, resizes, refusal)

    def note(method: Method) -> Method:
        for name in (method.__name__, *also):
            FUNCTION_FORMS[name] = form
        return method

    return note
