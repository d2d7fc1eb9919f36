"""``add_safe_globals`` and its kin: which layers a load of weights may build, and what a file would need.

torch lets callers mark any class or function, which a file may then call. Here a file never runs what it
names, so only what the reader knows by itself can be marked to effect: the layers of ``tenon.nn`` and the
functions of ``nn.functional`` that they hold, which ``weights_only=False`` reads without being marked. Other
classes are noted, and files that hold them are refused as before.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Sequence
from typing import Any

from tenon.serialize import modules

#: What was marked: classes and functions, or pairs of one and its full name in files.
_marked: list[Any] = []


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Allow ``weights_only`` loads to build these layers of ``tenon.nn``; other classes stay refused."""
    _marked.extend(each for each in safe_globals if each not in _marked)


def get_safe_globals() -> list[Any]:
    """The layers that have been allowed."""
    return list(_marked)


def clear_safe_globals() -> None:
    """Clear the allowed layers."""
    _marked.clear()


class safe_globals:
    """Marks inside a ``with`` block.

    >>> import io, tenon
    >>> tenon.save(tenon.nn.Linear(2, 3), file := io.BytesIO())
    >>> with safe_globals([tenon.nn.Linear]):
    ...     tenon.load(io.BytesIO(file.getvalue()))
    Linear(in_features=2, out_features=3, bias=True)
    """

    def __init__(self, safe_globals: Sequence[Any]) -> None:
        self._given, self._before = list(safe_globals), get_safe_globals()

    def __enter__(self) -> None:
        self._before = get_safe_globals()
        add_safe_globals(self._given)

    def __exit__(self, *exc: object) -> None:
        _marked[:] = self._before


def marked() -> dict[str, Any]:
    """Full name in a file -> layer or function, for what is marked and known."""
    if not _marked:
        return {}
    wanted = [each[0] if isinstance(each, tuple) else each for each in _marked]
    return {name: value for name, value in modules.known().items() if value in wanted}


def globals_in(tree: bytes) -> Iterator[str]:
    """The full names of all that a pickle refers to, found without running it."""
    texts: list[str] = []
    memo: dict[Any, str] = {}
    for code, argument, _ in pickletools.genops(tree):
        if code.name == "GLOBAL":
            yield str(argument).replace(" ", ".")
        elif code.name == "STACK_GLOBAL":
            if len(texts) < 2:
                raise ValueError("the name of a global is not a string")
            yield f"{texts[-2]}.{texts[-1]}"
        elif code.name == "MEMOIZE" and texts:
            memo[len(memo)] = texts[-1]
        elif code.name in ("BINPUT", "LONG_BINPUT") and texts:
            memo[argument] = texts[-1]
        elif code.name in ("BINGET", "LONG_BINGET"):
            texts.append(memo.get(argument, ""))
        elif isinstance(argument, str):
            texts.append(argument)
