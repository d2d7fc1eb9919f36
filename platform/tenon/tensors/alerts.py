"""Warnings that come once a process, and refusals of what torch says may differ from run to run."""

from __future__ import annotations

import warnings

from tenon.errors import ArgumentError, TenonWarning


class Settings:
    """What ``use_deterministic_algorithms`` and ``set_warn_always`` said last."""

    deterministic = False
    warn_only = False
    warn_always = False


_SAID: set[str] = set()


def warn_once(message: str, stacklevel: int = 3) -> None:
    """Warn with ``message``, which is said once a process unless ``set_warn_always`` is on: with a plain
    UserWarning, as code that looks for it asks for that very type."""
    if message not in _SAID or Settings.warn_always:
        _SAID.add(message)
        warnings.warn(message, UserWarning, stacklevel=stacklevel)


def may_differ(name: str) -> None:
    """Refuse torch's ``name``, whose result depends on the order of its work, where results must repeat.

    Here that order is always the same; code that asks for the error gets it nevertheless.
    """
    if not Settings.deterministic:
        return
    message = (
        f"{name} does not have a deterministic implementation, but you set"
        " 'torch.use_deterministic_algorithms(True)': so it is in PyTorch. Here its results do repeat;"
        " turn that off for this call, or give it warn_only=True."
    )
    if not Settings.warn_only:
        raise ArgumentError(message)
    warnings.warn(message, TenonWarning, stacklevel=4)
