"""Values of other kinds in place of each argument that is no tensor, of every function of the catalogue, in both libraries.

``python tests/parity/wrong_settings.py`` prints the calls that torch refuses and tenon computes, and those whose results
differ; ``--every 20 --part 3`` makes some.
"""

from __future__ import annotations

import argparse
import itertools
import math
import signal
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
from parity.dtype_sweep import call_of
from parity.functions import _called
from parity.sides import Side, check_results, flat, is_spec, parts

import tenon

#: What stands in a setting's place.
VALUES = (
    "a",
    1.5,
    math.nan,
    math.inf,
    -1,
    0,
    1,
    2,
    True,
    False,
    None,
    1j,
    [1],
    np.bool_(True),
    np.float32(2.5),
)
Place = int | str


def settings(call: Any) -> Iterator[Place]:
    """The places of the arguments that are numbers, flags, words or None."""
    args, kwargs = parts(call)
    for place, value in (*enumerate(args), *kwargs.items()):
        plain = value is None or isinstance(value, (bool, int, float, complex, str))
        if plain and not (is_spec(value) or (isinstance(value, str) and ":" in value)):
            yield place


def outcome(lib: Any, case: Case, place: Place, value: Any) -> tuple[Exception | None, list[Any]]:
    """The error of the call in ``lib``, and its results."""
    args, kwargs = parts(call_of(case))
    args, kwargs = list(args), dict(kwargs)
    (args if isinstance(place, int) else kwargs)[place] = Kept(value)
    lib.manual_seed(5)
    try:
        return None, flat(_called(Replacing(lib, "float32"), case.name, args, kwargs))
    except Exception as error:
        return error, []


class Kept:
    """A value that is no part of the language of the catalogue."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Replacing(Side):
    def build(self, value: Any) -> Any:
        return value.value if isinstance(value, Kept) else super().build(value)


def compared(case: Case, place: Place, value: Any) -> str | None:
    """What differs; None if nothing does, or if both raise errors, or tenon alone does."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        signal.alarm(20)
        (theirs, expected), (ours, found) = (
            outcome(torch, case, place, value),
            outcome(tenon, case, place, value),
        )
        signal.alarm(0)
    if ours is not None:
        return None if theirs is not None else f"refuses: {said(ours)}"
    if theirs is not None:
        return f"computes: torch {said(theirs)}"
    try:
        check_results(found, expected, 1e-3)
    except (AssertionError, TypeError, ValueError) as difference:
        return f"differs: {' '.join(str(difference).split())[:160]}"
    return None


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:110]}"


def calls() -> Iterator[tuple[Case, Place, Any]]:
    for case in read():
        if case.kind == "function":
            for place in settings(call_of(case)):
                for value in VALUES:
                    yield case, place, value


def _late(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    signal.signal(signal.SIGALRM, _late)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--part", type=int, default=0)
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    for case, place, value in itertools.islice(calls(), options.part, None, options.every):
        try:
            difference = compared(case, place, value)
        except BaseException as error:
            difference = f"ends: {type(error).__name__}"
        kinds[(difference or "the same").partition(":")[0]] += 1
        if difference:
            print(f"{case} [{place}] {value!r}: {difference}", flush=True)
    print(dict(kinds))


if __name__ == "__main__":
    main()
