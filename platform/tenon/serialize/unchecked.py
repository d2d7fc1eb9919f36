"""Warn once per process that a file has no checksums, so that damage to its numbers cannot be detected."""

from __future__ import annotations

import warnings

from tenon.errors import UncheckedFileWarning

_said = False


def warn_unchecked(source: str, reason: str) -> None:
    """Warn that ``source`` has no checksums because of ``reason``, unless a warning was issued before.

    The functions that ``load`` calls through ``_read`` call this directly, so that the warning shows the line
    of ``load``'s caller.
    If warnings are errors, each such file raises.
    """
    global _said
    if _said:
        return
    warnings.warn(
        f"{source} has no checksums, as {reason}: damage to its numbers would not be noticed. tenon.save"
        " writes files that have them. This warning is issued once per process; filter"
        " tenon.errors.UncheckedFileWarning to silence it, or to refuse such files.",
        UncheckedFileWarning,
        stacklevel=5,
    )
    _said = True
