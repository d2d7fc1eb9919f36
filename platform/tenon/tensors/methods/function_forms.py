"""Which of Tensor's methods are functions too, ``tenon.exp(x, out=y)``, and which arguments these add.

A method that is not an op is decorated, ``@as_function(out="exact")``; op classes have fields for it
(``Op.public``, ``Op.first_argument``, ``Op.out``). ``tenon.functions.derived`` generates the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Method = TypeVar("Method", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """The arguments of a function that the method it calls does not have."""

    #: First argument: a "tensor"; also a "number" if another argument is a tensor; "numbers" may be all.
    first: str = "tensor"
    #: Dtypes accepted for ``out=``: "none" (there is no ``out=``), "cast" (any that the result can be cast
    #: to), "exact" (the result's), "kept" (the input's, where the result has it too), "boolean", or
    #: "converted" (any: the result is converted).
    out: str = "cast"
    #: Whether ``out=`` may share memory with the arguments: "any" part of it, "same" (all of it or none),
    #: "apart" (none).
    memory: str = "any"
    #: ``out=`` of another shape is resized without a warning.
    resizes: bool = False
    #: Which of PyTorch's error messages is raised for a dtype that is not the "exact" one: that of
    #: "function", "scan" or "result".
    refusal: str = "function"


#: Function name -> form, filled by op classes and decorated methods.
FUNCTION_FORMS: dict[str, FunctionForm] = {}


def as_function(
    *also: str,
    first: str = "tensor",
    out: str = "cast",
    memory: str = "any",
    resizes: bool = False,
    refusal: str = "function",
) -> Callable[[Method], Method]:
    """Decorate a method to be a function too, under its name and those of ``also``; see ``FunctionForm``."""
    form = FunctionForm(first, out, memory, resizes, refusal)

    def register(method: Method) -> Method:
        for name in (method.__name__, *also):
            FUNCTION_FORMS[name] = form
        return method

    return register
