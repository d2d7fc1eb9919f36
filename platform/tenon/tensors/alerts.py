"""Warnings issued once per process, and PyTorch's errors for nondeterministic operations."""

from __future__ import annotations

import warnings

from tenon.errors import ArgumentError, TenonWarning


class Settings:
    """The values set by ``use_deterministic_algorithms`` and ``set_warn_always``."""

    deterministic = False
    warn_only = False
    warn_always = False


_SAID: set[str] = set()


def warn_once(message: str, stacklevel: int = 3) -> None:
    """Issue ``message`` as a warning, once per process unless ``set_warn_always`` is on.

    The category is UserWarning itself, because code that filters PyTorch's warning compares that type.
    """
    if message not in _SAID or Settings.warn_always:
        _SAID.add(message)
        warnings.warn(message, UserWarning, stacklevel=stacklevel)


def may_differ(name: str) -> None:
    """Raise PyTorch's error for the nondeterministic operation ``name`` in deterministic mode.

    Here the results are deterministic; the error is raised for code that relies on it.
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
