"""Attribute an exception in a hook call to the plugin that raised it.

pluggy calls all implementations in one loop and propagates the exception. The innermost frame of its
traceback that belongs to an implementation identifies the plugin. This costs nothing unless a hook raises.
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

#: Name under which the host's own implementations are registered, whose errors are not changed.
HOST = "tenon"


def name_the_plugin(
    error: Exception,
    hook: str,
    implementations: Sequence[pluggy.HookImpl],
    plugins: Sequence[PluginInfo],
) -> Exception:
    """Return the exception to raise instead of ``error``, which a call of ``hook`` raised.

    A TenonError, whose message has advice, is returned with a note; any other error becomes the cause of a
    PluginHookError. An error of the caller, such as a missing argument, or of the host's own implementation
    is returned unchanged.
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
    """Return the implementation in which ``error`` was raised; None if it was raised in none of them."""
    by_code: dict[CodeType, list[pluggy.HookImpl]] = {}
    for implementation in implementations:
        code = getattr(implementation.function, "__code__", None)
        if code is not None:
            by_code.setdefault(code, []).append(implementation)
    culprit = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        candidates = by_code.get(frame.f_code)
        if candidates:
            culprit = next((each for each in candidates if _runs_in(each, frame)), candidates[0])
    return culprit


def _runs_in(implementation: pluggy.HookImpl, frame: FrameType) -> bool:
    """Whether ``frame`` runs the method of this plugin, and not that of another instance of its class."""
    owner = getattr(implementation.function, "__self__", None)
    names = frame.f_code.co_varnames
    return owner is None or (bool(names) and frame.f_locals.get(names[0]) is owner)
