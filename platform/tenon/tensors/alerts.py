"""Warnings issued once per process, and PyTorch's errors for nondeterministic operations."""

from __future__ import annotations

import warnings

from tenon.errors import ArgumentError, TenonWarning


class Settings:
    """The values set by ``use_deterministic_algorithms`` and ``set_warn_always``."""

    deterministic = False
    warn_only = False
    warn_always = False


_ISSUED: set[str] = set()


def warn_once(message: str, stacklevel: int = 3) -> None:
    """Issue ``message`` as a warning, once per process, or each time if ``set_warn_always`` is on.

    The category is UserWarning itself, because code that filters PyTorch's warning compares that type.
    """
    if message not in _ISSUED or Settings.warn_always:
        _ISSUED.add(message)
        warnings.warn(message, UserWarning, stacklevel=stacklevel)


def alert_not_deterministic(name: str) -> None:
    """Raise or warn, as PyTorch's ``alertNotDeterministic``, if deterministic algorithms are required.

    Called by operations that are nondeterministic in PyTorch. Here their results are deterministic; the error
    is raised for code that expects it.
    """
    if not Settings.deterministic:
        return
    message = (
        f"{name} does not have a deterministic implementation, but you set"
        " 'torch.use_deterministic_algorithms(True)'. This error is raised as in PyTorch, although tenon's"
        " results are deterministic: turn the setting off for this call, or set it with warn_only=True."
    )
    if not Settings.warn_only:
        raise ArgumentError(message)
    warnings.warn(message, TenonWarning, stacklevel=4)
