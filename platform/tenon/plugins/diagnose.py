"""Describe this installation: loaded plugins, failures with their reasons, libraries and devices.

Collects rows of text, which ``cli.py`` prints. If a section raises, its error replaces its rows, so that one
broken library does not prevent the other sections. Plugins add sections with ``doctor_section``, from
``tenon_configure``.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from tenon.config import DECIDED, PREFIX, Config, environment
from tenon.errors import PluginClashError, PluginTargetError
from tenon.plugins.components import Component
from tenon.plugins.hookspecs import KINDS
from tenon.plugins.loader import PluginFailure, PluginInfo
from tenon.plugins.manager import Host

#: A name and its value, as text.
Row: TypeAlias = tuple[str, str]
#: Yields the rows of a section of ``tenon doctor``.
Section: TypeAlias = Callable[[], Iterable[Row]]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_sections: dict[str, Section] = {}


@dataclass(slots=True)
class PluginEntry:
    """A loaded plugin: its components by kind, and the event hooks that it implements."""

    info: PluginInfo
    components: dict[str, list[str]] = field(default_factory=dict)
    hooks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PluginReport:
    """The contents of ``tenon plugins``."""

    entries: tuple[PluginEntry, ...]
    failures: tuple[PluginFailure, ...]
    clashes: tuple[PluginClashError, ...]
    disabled: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether every plugin loaded and no name clashes."""
        return not self.failures and not self.clashes


def plugin_report(host: Host, commands: Collection[str] = ()) -> PluginReport:
    """Return the declarations of every plugin; no target is imported. ``commands``: the built-in ones."""
    entries = {id(info): PluginEntry(info) for info in host.plugins}
    clashes: list[PluginClashError] = []
    for kind in KINDS:
        for component in host.registry.components(kind):
            entries[id(component.plugin)].components.setdefault(kind, []).append(component.name)
        clashes.extend(host.registry.clashes(kind))
    clashes.extend(shadowed(host, commands))
    declaring = {f"tenon_{kind}" for kind in KINDS}
    for name, caller in sorted(vars(host.hook).items()):
        if name.startswith("tenon_") and name not in declaring:
            for implementation in caller.get_hookimpls():
                for entry in entries.values():
                    if entry.info.plugin is implementation.plugin:
                        entry.hooks.append(name)
    return PluginReport(tuple(entries.values()), host.failures, tuple(clashes), host.disabled)


def shadowed(host: Host, commands: Collection[str]) -> list[PluginClashError]:
    """One error for each command of a plugin that has the name of one of ``commands``, the built-in ones."""
    return [
        PluginClashError(
            f"the command {each.name!r} of plugin {each.plugin} cannot run: `tenon {each.name}` is built in."
            " Ask its author for another name."
        )
        for each in host.registry.components("commands")
        if each.name in commands
    ]


def broken_targets(host: Host) -> list[PluginTargetError]:
    """Import the target of every component; return one error for each that cannot be imported."""
    errors = []
    for kind in KINDS:
        for component in host.registry.components(kind):
            try:
                component.load()
            except PluginTargetError as error:
                errors.append(error)
    return errors


def doctor_section(title: str) -> Callable[[Section], Section]:
    """Decorate a function that yields rows ``(name, value)`` to add a section to ``tenon doctor``.

    Call it from ``tenon_configure``; a second section of the same title replaces the first.
    """

    def add(section: Section) -> Section:
        _sections[title] = section
        return section

    return add


def examine(host: Host) -> list[tuple[str, list[Row]]]:
    """Return every section of ``tenon doctor`` with its rows."""
    built_in: dict[str, Section] = {
        "python": _python,
        "numpy": _numpy,
        "backends": lambda: _backends(host),
        "environment": lambda: _environment(host.config),
        "plugins": lambda: _plugins(host),
    }
    return [(title, _rows(section)) for title, section in {**built_in, **_sections}.items()]


def _rows(section: Section) -> list[Row]:
    """Return the rows of a section, and its error if it raises."""
    rows: list[Row] = []
    try:
        rows.extend(section())
    except Exception as error:
        rows.append(("failed", f"{type(error).__name__}: {error}"))
    return rows


def _python() -> Iterable[Row]:
    yield "python", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"
    yield "platform", platform.platform()
    yield "processors", f"{_usable_processors()} usable of {os.cpu_count()}"
    own = "OMP_NUM_THREADS" if environment("OMP_NUM_THREADS") else "one for each usable processor"
    yield "threads decided by", DECIDED.get("threads", own)
    for name in ("tenon-platform", "pluggy"):
        yield name, importlib.metadata.version(name)


def _usable_processors() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _numpy() -> Iterable[Row]:
    numpy = importlib.import_module("numpy")
    yield "numpy", numpy.__version__
    blas = numpy.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    yield "BLAS", f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    yield "BLAS threads", _blas_threads()


def _blas_threads() -> str:
    if importlib.util.find_spec("threadpoolctl") is not None:
        threadpoolctl = importlib.import_module("threadpoolctl")
        pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
        if pools:
            return ", ".join(f"{pool['num_threads']} ({pool['internal_api']})" for pool in pools)
    limits = [f"{name}={value}" for name in _THREAD_VARIABLES if (value := environment(name))]
    return ", ".join(limits) or "not limited: one per processor"


def _backends(host: Host) -> Iterable[Row]:
    components = host.registry.components("backends")
    if not components:
        yield "none", "no plugin offers a backend; `tenon plugins` shows what failed"
    for component in components:
        yield component.name, _availability(component)


def _availability(component: Component) -> str:
    try:
        ok, reason = component.load()().is_available()
    except Exception as error:
        return f"broken: {type(error).__name__}: {error}"
    return f"{'available' if ok else 'not available'}: {reason}"


def _environment(config: Config) -> Iterable[Row]:
    known = {f"{PREFIX}{name.upper()}" for name in Config._fields}
    rows = 0
    for variable in sorted(known):
        if (value := environment(variable)) is not None:
            rows += 1
            yield variable, value
    for variable, value in config.settings:
        rows += 1
        near = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
        yield variable, f"{value}  (tenon does not read this; did you mean {near[0]}?)" if near else value
    if not rows:
        yield f"{PREFIX}*", "nothing set"


def _plugins(host: Host) -> Iterable[Row]:
    report = plugin_report(host)
    yield "loaded", ", ".join(entry.info.name for entry in report.entries) or "none"
    for name in report.disabled:
        yield "disabled", name
    for failure in report.failures:
        yield "failed", f"{failure} ({failure.stage})"
    for error in report.clashes:
        yield "clash", str(error)
