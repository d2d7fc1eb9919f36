"""Values that are not tensors in place of each tensor of every function and layer of the catalogue, in both libraries.

``python tests/parity/wrong_arguments.py`` prints what differs.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))

from parity.catalogue import Case, read
from parity.dtype_sweep import call_of, slots
from parity.sides import Side, find, parts

import tenon
from tenon.errors import TenonError

#: What stands in a tensor's place.
VALUES = (True, 3, 2.5, 1j, np.float32(2.5), "a", [1.0, 2.0], None, np.ones(2, "float32"), object())


class Spoiled(Side):
    """A side whose operand ``index`` is ``value``."""

    def __init__(self, lib: Any, index: int, value: Any) -> None:
        super().__init__(lib, "float32")
        self.index, self.value = index, value

    def tensor(self, spec: str) -> Any:
        tensor = super().tensor(spec)
        return self.value if self.count == self.index + 1 else tensor


def outcome(lib: Any, case: Case, index: int, value: Any) -> Exception | None:
    """The error of the call in ``lib``; None if it succeeds."""
    side = Spoiled(lib, index, value)
    lib.manual_seed(0)
    try:
        if case.kind == "layer":
            layer = side.construct(case.name, case.content.get("make", []))
            positional, keywords = parts(case.content["call"])
            side.count = 0
            layer(*side.build(list(positional)), **side.build(keywords))
            return None
        args, kwargs = parts(call_of(case))
        built = list(side.build(list(args))) if args else []
        keywords = side.build(kwargs)
        if (case.name.endswith("_") or kwargs.get("inplace")) and hasattr(built[0], "clone"):
            built[0] = built[0].clone()
        if case.name.startswith("Tensor."):
            found = getattr(built[0], case.name.removeprefix("Tensor."))
            found(*built[1:], **keywords) if callable(found) else found
        else:
            find(lib, case.name)(*built, **keywords)
    except Exception as error:
        return error
    return None


#: Name, place and value -> why tenon computes what torch refuses, or the other way round. "" for any of these.
KNOWN: dict[tuple[str, int, str], str] = {
    **{
        (name, place, "complex"): "sorted by real part, then imaginary part, as in NumPy"
        for name, places in {"searchsorted": (1,), "bucketize": (0,), "isin": (0, 1)}.items()
        for place in places
    },
    **{
        (name, 2, kind): "a number may be written at indices, as in x[index] = 2"
        for name in ("index_put", "index_put_", "Tensor.index_put_")
        for kind in ("bool", "int", "float", "float32")
    },
    ("isin", 0, "bool"): "bools have an order here",
    ("isin", 1, "bool"): "bools have an order here",
    ("Tensor.copy_", 1, "complex"): "the imaginary part would be lost; torch drops it",
    ("result_type", 0, "NoneType"): "an optional argument counts as absent",
    ("result_type", 0, "ndarray"): "an array has a dtype as well",
}


def compared(case: Case, index: int, value: Any) -> str | None:
    """What differs; None if nothing does, or if torch's error says less than ours."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = outcome(torch, case, index, value), outcome(tenon, case, index, value)
    if (theirs is None and ours is None) or (case.name, index, type(value).__name__) in KNOWN:
        return None
    if theirs is None:
        return f"refuses: {said(ours)}"
    if ours is None:
        orders = (
            isinstance(theirs, NotImplementedError) and "special" in case.name and isinstance(value, complex)
        )
        return None if orders else f"computes: torch {said(theirs)}"
    if isinstance(ours, TypeError) or type(ours) is type(theirs):
        return None
    if isinstance(ours, TenonError) and not isinstance(theirs, TypeError):
        return None
    if isinstance(ours, TenonError) and value is None:
        return None  # which ours takes for an argument that is missing and reports
    return f"error: {said(ours)} | torch {said(theirs)}"


def described(call: tuple[Case, int, Any], difference: str) -> str:
    case, index, value = call
    return f"{case.name} [{index}] {type(value).__name__}: {difference}"


def said(error: Exception | None) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:110]}"


def calls() -> Iterator[tuple[Case, int, Any]]:
    """The first case of each name with each value in each of its tensors' places."""
    for case in read():
        if case.number or case.kind not in ("function", "layer"):
            continue
        of_method = case.name.startswith("Tensor.")
        count = len(list(slots(case.content["call"] if case.kind == "layer" else call_of(case))))
        for index in range(int(of_method), min(count, 6)):
            for value in VALUES:
                yield case, index, value


if __name__ == "__main__":
    kinds: Counter[str] = Counter()
    for call in calls():
        difference = compared(*call)
        kinds[(difference or "the same").partition(":")[0]] += 1
        if difference:
            print(described(call, difference), flush=True)
    print(dict(kinds))
