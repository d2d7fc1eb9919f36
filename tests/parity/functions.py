"""A function's case in both libraries: values, gradients, dtype, shape, and what is refused."""

from __future__ import annotations

from typing import Any

from parity.sides import (
    Side,
    check_gradients,
    check_results,
    differentiable,
    find,
    flat,
    is_spec,
    loss,
    parts,
    tolerance_of,
)

import tenon
from tenon.errors import TenonError

#: Families of exceptions that torch distinguishes; ours must be of the same family.
FAMILIES = (IndexError, NotImplementedError, TypeError, ValueError, RuntimeError)
SEED = 5


class Outcome:
    """The outcome of a call in one library: its results and leaves, or an error."""

    def __init__(self, lib: Any, name: str, call: Any, dtype: str, strided: bool, up_to: str | None) -> None:
        self.side = Side(lib, dtype, strided)
        self.error: Exception | None = None
        self.derivable = False
        lib.manual_seed(SEED)
        try:
            self.results = _called(self.side, name, *parts(call))
        except Exception as error:
            self.error = error
            return
        if up_to == "sign":
            self.results = [r.abs() for r in flat(self.results)]
        try:
            self.total = loss(lib, self.results)
            if self.total is not None:
                self.total.backward()
            self.derivable = True
        except Exception as error:
            self.no_gradient = error


def _called(side: Side, name: str, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Call ``name``; one that writes into its first argument gets a copy that is not a leaf."""
    method = name.startswith("Tensor.")
    short = name.rpartition(".")[2]
    writes = (short.endswith("_") and not short.endswith("__")) or kwargs.get("inplace")
    args, kwargs = side.build(list(args)) if args else [], side.build(kwargs)
    args = list(args)
    if writes and hasattr(args[0], "clone"):
        args[0] = args[0].clone()
    if method:
        found = getattr(args[0], short)
        result = found(*args[1:], **kwargs) if callable(found) else found
    else:
        result = find(side.lib, name)(*args, **kwargs)
    return [result, args[0]] if writes else [result]


def refused_alike(ours: Exception | None, theirs: Exception) -> None:
    """Both refuse, and with errors that the same ``except`` catches."""
    assert ours is not None, f"torch refuses ({theirs!r}), tenon computes"
    family = next((f for f in FAMILIES if isinstance(theirs, f)), Exception)
    assert isinstance(ours, family), f"torch raises {theirs!r}, tenon {ours!r}"


def compare(
    torch: Any, name: str, content: Any, dtype: str, strided: bool = False, given: bool = True
) -> None:
    """Check that both libraries return equal results, or both raise errors.

    What torch refuses only for how a tensor lies in memory may be computed here; where the shapes are not
    the case's own (``given=False``), any error of tenon's is a refusal.
    """
    options = content if isinstance(content, dict) and "call" in content else {"call": content}
    up_to = options.get("up_to")
    if dtype not in options.get("dtypes", (dtype,)):
        return
    theirs = Outcome(torch, name, options["call"], dtype, strided, up_to)
    ours = Outcome(tenon, name, options["call"], dtype, strided, up_to)
    if theirs.error is not None:
        if not (strided or (not given and isinstance(ours.error, TenonError))):
            refused_alike(ours.error, theirs.error)
        return
    if ours.error is not None:
        raise AssertionError(f"tenon refuses what torch computes: {ours.error!r}") from ours.error
    tolerance = tolerance_of(theirs.results, dtype)
    check_results(ours.results, theirs.results, tolerance)
    if not theirs.derivable or not options.get("gradients", True):
        return
    if not ours.derivable:
        raise AssertionError(f"no gradient: {ours.no_gradient!r}") from ours.no_gradient
    needs, wanted = list(differentiable(ours.results)), list(differentiable(theirs.results))
    assert needs == wanted, f"results require gradients: {needs}, torch has {wanted}"
    check_gradients(ours.side.leaves, theirs.side.leaves, tolerance)


def as_method(name: str, content: Any, tensor: type) -> str | None:
    """The same case as a method of its first argument, if the class ``tensor`` has that one."""
    call = content["call"] if isinstance(content, dict) and "call" in content else content
    if "." in name or not isinstance(call, list) or not call or not is_spec(call[0]):
        return None
    return f"Tensor.{name}" if name != "where" and hasattr(tensor, name) else None


def emptied(content: Any) -> Any:
    """The case with no rows: the leading size of the first array is 0 wherever it leads an array."""
    return _resized(content, lambda sizes, lead: ["0", *sizes[1:]] if sizes[0] == lead else sizes)


def scalar(content: Any) -> Any:
    """The case with 0-d arrays only."""
    return _resized(content, lambda sizes, lead: [])


def _resized(content: Any, change: Any) -> Any:
    """``content`` with all sizes changed; None where it says ``shapes: given`` or has 0-d arrays only."""
    if isinstance(content, dict) and "shapes" in content:
        return None
    lead: list[str] = []

    def walk(value: Any) -> Any:
        if is_spec(value):
            kind, _, rest = value.partition(":")
            sizes, mark, bound = rest.partition("<")
            if not sizes:
                return value
            each = sizes.split(",")
            lead.append(each[0])
            return f"{kind}:{','.join(change(each, lead[0]))}{mark}{bound}"
        if isinstance(value, list):
            return [walk(v) for v in value]
        if isinstance(value, dict):
            return {k: walk(v) for k, v in value.items()}
        return value

    made = walk(content)
    return made if lead and made != content else None
