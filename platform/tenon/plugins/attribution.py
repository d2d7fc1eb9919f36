"""Attribute an exception in a hook call, or the time that it takes, to a plugin.

pluggy calls all implementations in one loop and propagates the exception. The innermost frame of its
traceback that belongs to an implementation identifies the plugin. This costs nothing unless a hook raises.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from tenon.errors import PluginHookError, TenonError

if TYPE_CHECKING:
    import pluggy

    from tenon.plugins.loader import PluginInfo
    from tenon.plugins.manager import Host

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


@dataclass(frozen=True, slots=True)
class Running:
    """A hook that is running: the frame of the plugin's implementation, and a text that names both."""

    frame: FrameType
    text: str


def running_hook(frame: FrameType, host: Host) -> Running | None:
    """Return the hook that ``frame``, or one that has called it, runs; the innermost of several."""
    implementations = [
        each
        for name, caller in vars(host.hook).items()
        if name.startswith("tenon_")
        for each in caller.get_hookimpls()
        if each.plugin_name != HOST
    ]
    for each, inner in _implementations_in(callers_of(frame), implementations):
        known = next((str(info) for info in host.plugins if info.plugin is each.plugin), each.plugin_name)
        place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        return Running(inner, f"{each.function.__name__} of plugin {known} (at {place})")
    return None


def callers_of(frame: FrameType) -> Iterator[FrameType]:
    """``frame`` and all that have called it, innermost first."""
    each: FrameType | None = frame
    while each is not None:
        yield each
        each = each.f_back


def _culprit(error: Exception, implementations: Sequence[pluggy.HookImpl]) -> pluggy.HookImpl | None:
    """Return the implementation in which ``error`` was raised; None if it was raised in none of them."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    found = [each for each, _ in _implementations_in(frames, implementations)]
    return found[-1] if found else None


def _implementations_in(
    frames: Iterable[FrameType], implementations: Sequence[pluggy.HookImpl]
) -> Iterator[tuple[pluggy.HookImpl, FrameType]]:
    """Those of ``implementations`` that ``frames`` run, in their order."""
    by_code: dict[CodeType, list[pluggy.HookImpl]] = {}
    for implementation in implementations:
        code = getattr(implementation.function, "__code__", None)
        if code is not None:
            by_code.setdefault(code, []).append(implementation)
    for frame in frames:
        candidates = by_code.get(frame.f_code)
        if candidates:
            yield next((each for each in candidates if _runs_in(each, frame)), candidates[0]), frame


def _runs_in(implementation: pluggy.HookImpl, frame: FrameType) -> bool:
    """Whether ``frame`` runs the method of this plugin, and not that of another instance of its class."""
    owner = getattr(implementation.function, "__self__", None)
    names = frame.f_code.co_varnames
    return owner is None or (bool(names) and frame.f_locals.get(names[0]) is owner)
