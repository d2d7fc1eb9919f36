"""Say once in a process that a file has no checksums, so that damage to its numbers cannot be noticed."""

from __future__ import annotations

import warnings

from tenon.errors import UncheckedFileWarning

_said = False


def say(source: str, reason: str) -> None:
    """Warn that ``source`` has no checksums because of ``reason``, unless a warning was issued before.

    To be called by what ``load`` calls through ``_read``, so that the warning shows the line of the caller.
    Where the warning is turned into an error, each such file raises it.
    """
    global _said
    if _said:
        return
    warnings.warn(
        f"{source} has no checksums, as {reason}: damage to its numbers would not be noticed. tenon.save"
        " writes files that have them. This is said once in a process; filter"
        " tenon.errors.UncheckedFileWarning to silence it, or to refuse such files.",
        UncheckedFileWarning,
        stacklevel=5,
    )
    _said = True
