"""``add_safe_globals`` and others: the layers that a load of weights may build, and the globals of a file.

In torch callers can mark any class or function as safe, which a file may then call. Here files never execute
code, so marking has an effect only on globals that the reader knows: the layers of ``tenon.nn`` and the
functions of ``nn.functional`` in their attributes, which ``weights_only=False`` allows without marks. Files
with other classes are refused although these are marked.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Sequence

from tenon.serialize import modules

#: The marked classes and functions, or pairs of one and its full name in files.
_marked: list[object] = []


def add_safe_globals(safe_globals: Sequence[object]) -> None:
    """Allow ``weights_only`` loads to build these layers of ``tenon.nn``; other classes stay refused."""
    _marked.extend(each for each in safe_globals if each not in _marked)


def get_safe_globals() -> list[object]:
    """The layers that have been allowed."""
    return list(_marked)


def clear_safe_globals() -> None:
    """Clear the allowed layers."""
    _marked.clear()


class safe_globals:
    """Context manager: ``add_safe_globals`` for the block.

    >>> import io, tenon
    >>> tenon.save(tenon.nn.Linear(2, 3), file := io.BytesIO())
    >>> with safe_globals([tenon.nn.Linear]):
    ...     tenon.load(io.BytesIO(file.getvalue()))
    Linear(in_features=2, out_features=3, bias=True)
    """

    def __init__(self, safe_globals: Sequence[object]) -> None:
        self._globals, self._previous = list(safe_globals), get_safe_globals()

    def __enter__(self) -> None:
        self._previous = get_safe_globals()
        add_safe_globals(self._globals)

    def __exit__(self, *exc: object) -> None:
        _marked[:] = self._previous


def marked() -> dict[str, object]:
    """Full name in a file -> layer or function, for those that are marked and known to the reader."""
    if not _marked:
        return {}
    values = [each[0] if isinstance(each, tuple) else each for each in _marked]
    return {name: value for name, value in modules.known().items() if value in values}


def globals_in(tree: bytes) -> Iterator[str]:
    """The full names of the globals in a pickle, found without executing it."""
    texts: list[str] = []
    memo: dict[object, str] = {}
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
