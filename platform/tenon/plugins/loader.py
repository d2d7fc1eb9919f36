"""Find plugins by entry point and import each of them in isolation.

pluggy's own ``load_setuptools_entrypoints`` stops at the first plugin that fails. Here every plugin is
imported and checked separately: an exception becomes a ``PluginFailure``, and the other plugins load. A
plugin is checked *before* it is registered, so that no hook of a rejected plugin runs.

Input: ``Config`` and the installed distributions. Output: ``Discovery``. Next: ``manager.py`` registers it.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import re
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pluggy

from tenon.config import Config
from tenon.errors import PluginClashError, PluginError
from tenon.plugins import hookspecs
from tenon.plugins.import_watch import ImportWatch

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

    from packaging.requirements import Requirement

GROUP = "tenon"
FIRST_PARTY = "tenon-platform"

Stage = Literal["import", "hooks", "configure", "declare"]


@dataclass(frozen=True, slots=True, eq=False)
class PluginInfo:
    """A loaded plugin, and the distribution that it is from."""

    name: str
    plugin: object
    source: str
    distribution: str | None = None
    version: str | None = None

    @property
    def first_party(self) -> bool:
        """Whether it ships with tenon itself."""
        return self.distribution is not None and normalise(self.distribution) == FIRST_PARTY

    def __str__(self) -> str:
        return describe(self.name, self.distribution, self.version)


@dataclass(frozen=True, slots=True, eq=False)
class PluginFailure:
    """A plugin, or a part of one, that was not loaded, with the exception that is the reason."""

    name: str
    stage: Stage
    error: BaseException
    source: str
    distribution: str | None = None
    version: str | None = None

    @property
    def summary(self) -> str:
        """One line: the exception's type and message."""
        lines = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {lines[0] if lines else 'no message'}"

    @property
    def traceback(self) -> str:
        """The full traceback, causes included."""
        return "".join(traceback.format_exception(self.error))

    def __str__(self) -> str:
        return f"{describe(self.name, self.distribution, self.version)}: {self.summary}"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The result of a search for plugins, in plugin order."""

    loaded: tuple[PluginInfo, ...]
    failures: tuple[PluginFailure, ...]
    disabled: tuple[str, ...]
    unmatched: tuple[str, ...]
    """Advice on names in ``TENON_PLUGINS`` and ``TENON_DISABLE_PLUGINS`` that match no plugin."""


def describe(name: str, distribution: str | None, version: str | None) -> str:
    """Return the name of a plugin in messages: ``'tiger' (tenon-tiger 0.1)``.

    >>> describe("tiger", "tenon-tiger", "0.1")
    "'tiger' (tenon-tiger 0.1)"
    """
    if distribution is None:
        return f"'{name}' (registered by hand)"
    return f"'{name}' ({distribution} {version})"


def normalise(name: str) -> str:
    """Return the normalised form of a distribution or plugin name (PEP 503).

    >>> normalise("Tenon_Tiger")
    'tenon-tiger'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_entry_points() -> list[EntryPoint]:
    """Return the entry points of group ``tenon`` of all installed distributions."""
    from importlib.metadata import entry_points  # takes 10 ms, which only the first use of a plugin needs

    return list(entry_points(group=GROUP))


def discover(manager: pluggy.PluginManager, config: Config, points: Iterable[EntryPoint]) -> Discovery:
    """Import and check every plugin that ``config`` allows, without registering any."""
    ordered = sorted(
        points, key=lambda point: (not _first_party(point), point.name, _distribution(point)[0] or "")
    )
    loaded: list[PluginInfo] = []
    failures: list[PluginFailure] = []
    disabled: list[str] = []
    owners: dict[str, str] = {}
    with ImportWatch() as watch:
        for point in ordered:
            distribution, version = _distribution(point)
            if not _allowed(point.name, distribution, config):
                disabled.append(point.name)
                continue
            stage: Stage = "import"
            watch.importing = point.name, describe(point.name, distribution, version)
            try:
                _claim(owners, *watch.importing)
                _check_requirement(point)
                plugin = _import(point.value)
                stage = "hooks"
                check(manager, plugin, point.name)
            except (Exception, SystemExit) as error:
                failures.append(PluginFailure(point.name, stage, error, point.value, distribution, version))
            else:
                loaded.append(PluginInfo(point.name, plugin, point.value, distribution, version))
    return Discovery(tuple(loaded), tuple(failures), tuple(disabled), tuple(_unmatched(ordered, config)))


def check(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    """Raise PluginError if ``plugin`` implements an unknown hook, or one without ``@hookimpl``."""
    known = {hook: getattr(manager.hook, hook) for hook in vars(hookspecs) if hook.startswith("tenon_")}
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            if attribute in known and callable(getattr(plugin, attribute, None)):
                raise PluginError(
                    f"plugin {name!r} defines {attribute} without the @hookimpl marker, so it would never "
                    "run. Write `from tenon.extend import hookimpl` and put @hookimpl above it."
                )
            continue
        hook = options.get("specname") or attribute
        if hook not in known:
            if not options["optionalhook"]:
                raise PluginError(
                    f"plugin {name!r} implements the unknown hook {hook!r}. {_nearest(hook, known)}"
                )
            continue
        wraps = options["wrapper"] or options["hookwrapper"]
        if wraps and hook.removeprefix("tenon_") in hookspecs.KINDS:
            raise PluginError(
                f"plugin {name!r} wraps the declaring hook {hook}, which takes no wrappers. "
                "Return a mapping from names to targets instead."
            )


def target_error(value: object, kind: str) -> str | None:
    """Return the reason why ``value`` is not a valid target string of ``kind``; None if it is valid."""
    if not isinstance(value, str):
        return None
    if kind in hookspecs.MODULES:
        valid = all(part.isidentifier() for part in value.split("."))
        return None if valid else f"{value!r} is not the name of a module. Write 'package.module'."
    module, colon, attribute = value.partition(":")
    parts = [*module.split("."), *attribute.split(".")] if colon else []
    if parts and all(part.isidentifier() for part in parts):
        return None
    return f"{value!r} is not a target. Write 'package.module:attribute'."


def _import(value: str) -> object:
    module, _, attributes = value.partition(":")
    plugin: object = importlib.import_module(module.strip())
    for attribute in attributes.split(".") if attributes else ():
        plugin = getattr(plugin, attribute.strip())
    return plugin


def _claim(owners: dict[str, str], name: str, owner: str) -> None:
    """Record ``owner`` as the plugin called ``name``; PluginClashError if there is another."""
    if name in owners:
        raise PluginClashError(
            f"the plugin name {name!r} is taken by {owners[name]}, so {owner} was not loaded. Uninstall one, "
            "or disable one by its distribution: TENON_DISABLE_PLUGINS=<distribution>."
        )
    owners[name] = owner


def _nearest(hook: str, known: Iterable[str]) -> str:
    """Return a hint with the hook of the most similar name, or with all hooks."""
    near = difflib.get_close_matches(hook, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"Hooks are {', '.join(sorted(known))}."


def _distribution(point: EntryPoint) -> tuple[str | None, str | None]:
    return (None, None) if point.dist is None else _name_and_version(point.dist)


@functools.cache
def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Cached: each access to ``metadata`` parses the file, with the README in it, which takes 1.2 ms."""
    metadata = distribution.metadata
    return metadata["Name"], metadata["Version"]


def _check_requirement(point: EntryPoint) -> None:
    """Raise PluginError if the plugin's distribution requires another version of tenon."""
    if point.dist is None or _first_party(point):
        return
    from importlib.metadata import version

    from packaging.requirements import InvalidRequirement, Requirement

    for line in point.dist.requires or ():
        with contextlib.suppress(InvalidRequirement):  # pip has refused it, or it is not about versions
            requirement = Requirement(line)
            if normalise(requirement.name) != FIRST_PARTY or not _applies(requirement):
                continue
            own = version(FIRST_PARTY)
            if not requirement.specifier.contains(own, prereleases=True):
                name, _ = _name_and_version(point.dist)
                raise PluginError(
                    f"it requires {FIRST_PARTY}{requirement.specifier}, and this is {own}. Install another"
                    f" version of {name}, or `pip install '{FIRST_PARTY}{requirement.specifier}'`."
                )


def _applies(requirement: Requirement) -> bool:
    """Whether the requirement is one of this interpreter and of no extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def _first_party(point: EntryPoint) -> bool:
    name, _ = _distribution(point)
    return name is not None and normalise(name) == FIRST_PARTY


def _allowed(name: str, distribution: str | None, config: Config) -> bool:
    """Whether ``config`` allows the plugin."""
    names = {normalise(name), normalise(distribution or name)}
    if names & {normalise(entry) for entry in config.disable_plugins}:
        return False
    return config.plugins is None or bool(names & {normalise(entry) for entry in config.plugins})


def _unmatched(points: Sequence[EntryPoint], config: Config) -> Iterable[str]:
    """Advice on the names in ``config`` that match no plugin or distribution."""
    known = {normalise(point.name) for point in points}
    known |= {normalise(name) for point in points if (name := _distribution(point)[0])}
    for variable, entries in (
        ("TENON_PLUGINS", config.plugins or ()),
        ("TENON_DISABLE_PLUGINS", config.disable_plugins),
    ):
        for entry in entries:
            if normalise(entry) not in known:
                near = difflib.get_close_matches(normalise(entry), sorted(known), n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"installed: {', '.join(sorted(known))}."
                yield f"{variable} names {entry!r}, which is not an installed plugin or distribution; {hint}"
