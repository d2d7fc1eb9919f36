"""Attribute an exception in a hook call to the plugin that raised it.

pluggy runs all implementations in one loop and lets the exception through. The traceback knows better: its
innermost frame that belongs to an implementation names the plugin. Costs nothing until something raises.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from tenon.errors import PluginHookError, TenonError

if TYPE_CHECKING:
    import pluggy

    from tenon.plugins.loader import PluginInfo

#: Name under which the host's own answers are registered; what they raise is the caller's to see as it is.
HOST = "tenon"


def name_the_plugin(
    error: Exception,
    hook: str,
    implementations: Sequence[pluggy.HookImpl],
    plugins: Sequence[PluginInfo],
) -> Exception:
    """The exception to raise instead of ``error``, which a call of ``hook`` raised.

    A TenonError keeps its type, as it says what to do, and gets a note; anything else becomes the cause
    of a PluginHookError. An error of the caller, such as a missing argument, comes back as it is, and so
    does one of the host's own answer.
    """
    culprit = _culprit(error, implementations)
    if culprit is None or culprit.plugin_name == HOST:
        return error
    known = next((str(info) for info in plugins if info.plugin is culprit.plugin), repr(culprit.plugin_name))
    where = f"plugin {known} raised in {hook}"
    if isinstance(error, TenonError):
        if not any(note.startswith("plugin ") for note in getattr(error, "__notes__", ())):
            error.add_note(f"{where}.")
        return error
    named = PluginHookError(
        f"{where}: {type(error).__name__}: {error}. "
        f"Fix the plugin, or run without it: TENON_DISABLE_PLUGINS={culprit.plugin_name}."
    )
    named.__cause__ = error
    return named


def _culprit(error: Exception, implementations: Sequence[pluggy.HookImpl]) -> pluggy.HookImpl | None:
    by_code: dict[CodeType, list[pluggy.HookImpl]] = {}
    for implementation in implementations:
        code = getattr(implementation.function, "__code__", None)
        if code is not None:
            by_code.setdefault(code, []).append(implementation)
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        candidates = by_code.get(frame.f_code)
        if candidates:
            found = next((one for one in candidates if _runs_in(one, frame)), candidates[0])
    return found


def _runs_in(implementation: pluggy.HookImpl, frame: FrameType) -> bool:
    """Whether ``frame`` runs the method of this very plugin, and not of another instance of its class."""
    owner = getattr(implementation.function, "__self__", None)
    names = frame.f_code.co_varnames
    return owner is None or (bool(names) and frame.f_locals.get(names[0]) is owner)
