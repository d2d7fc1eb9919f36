"""Components: what plugins declare, by kind and name, resolved to objects on demand.

If two plugins declare the same name, resolving it raises an error that names both; ``"distribution:Name"``
(or ``"plugin:Name"``) is unambiguous. Listing names imports no target.

Input: the declarations that ``Host.declared`` collects. Next: ``registry.py`` and ``lazy.py``.
"""

from __future__ import annotations

import difflib
import importlib
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tenon.errors import PluginClashError, PluginNotFoundError, PluginTargetError, PluginWarning
from tenon.plugins.hookspecs import KINDS
from tenon.plugins.lazy import Target
from tenon.plugins.loader import PluginFailure, PluginInfo, normalise

if TYPE_CHECKING:
    from tenon.plugins.manager import Host


C = TypeVar("C")


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """A declared name. ``target`` is ``"module:attribute"``, or ``"module"`` for kinds of modules, or the
    object itself if it was registered by hand.
    """

    kind: str
    name: str
    target: object
    plugin: PluginInfo

    def has_qualifier(self, qualifier: str) -> bool:
        """Whether ``qualifier`` is this component's distribution or plugin."""
        return normalise(qualifier) in {
            normalise(self.plugin.name),
            normalise(self.plugin.distribution or self.plugin.name),
        }

    @property
    def address(self) -> str:
        """The qualified name, which is unambiguous."""
        return f"{self.plugin.distribution or self.plugin.name}:{self.name}"

    def load(self) -> Target:
        """Import the target; PluginTargetError, chained, if that fails."""
        if not isinstance(self.target, str):
            return self.target
        module, _, attributes = self.target.partition(":")
        try:
            value: object = importlib.import_module(module)
            for attribute in attributes.split(".") if attributes else ():
                value = getattr(value, attribute)
        except (Exception, SystemExit) as error:
            raise PluginTargetError(
                f"{KINDS[self.kind]} {self.name!r} cannot be loaded: its target {self.target!r}, "
                f"declared by plugin {self.plugin}, raised {type(error).__name__}: {error}"
            ) from error
        return value


class Registry:
    """All components of a host, one table per kind, built at the first use of the kind."""

    def __init__(self, host: Host, lock: threading.RLock) -> None:
        self._host = host
        self._lock = lock
        self._tables: dict[str, tuple[int, dict[str, list[Component]]]] = {}
        self._warned: set[tuple[str, str]] = set()

    def resolve(self, kind: str, name: str) -> Target:
        """Return the object called ``name``, imported at the first call.

        PluginNotFoundError for an unknown name, PluginClashError if several plugins declare it, unless one is
        of tenon itself, whose names are reserved, PluginTargetError if it cannot be imported.
        """
        return self.component(kind, name).load()

    def resolve_class(self, kind: str, name: str, base: type[C]) -> type[C]:
        """``resolve`` of a kind whose targets are subclasses of ``base``; PluginTargetError for another."""
        component = self.component(kind, name)
        value = component.load()
        if not (isinstance(value, type) and issubclass(value, base)):
            what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
            raise PluginTargetError(
                f"{KINDS[kind]} {name!r} is {what}, and plugin {component.plugin} must declare a subclass of"
                f" tenon.extend.{base.__name__}."
            )
        return value

    def component(self, kind: str, name: str) -> Component:
        """Return the component called ``name`` or ``"distribution:Name"``, without importing its target."""
        table = self._table(kind)
        qualifier, _, plain = name.rpartition(":")
        matches = [each for each in table.get(plain, ()) if not qualifier or each.has_qualifier(qualifier)]
        if not matches:
            raise self._not_found(kind, name, table)
        if len(matches) == 1:
            return matches[0]
        own = _reserved(matches)
        if own is None:
            raise clash(matches)
        self._warn_once(matches, own)
        return own

    def _warn_once(self, components: Sequence[Component], own: Component) -> None:
        """Warn that the others of ``components`` cannot take the name of ``own``."""
        if (own.kind, own.name) not in self._warned:
            self._warned.add((own.kind, own.name))
            warnings.warn(str(clash(components)), PluginWarning, stacklevel=5)

    def names(self, kind: str) -> list[str]:
        """Return all names of a kind, sorted."""
        return sorted(self._table(kind))

    def components(self, kind: str) -> list[Component]:
        """Return all components of a kind, by name; a clashing name appears once per plugin."""
        return [each for _, components in sorted(self._table(kind).items()) for each in components]

    def clashes(self, kind: str) -> list[PluginClashError]:
        """Return one error for each name of a kind that several plugins declare."""
        return [clash(same) for _, same in sorted(self._table(kind).items()) if len(same) > 1]

    def _table(self, kind: str) -> dict[str, list[Component]]:
        """Return the components of ``kind`` by name; built again when plugins were added or removed."""
        cached = self._tables.get(kind)
        if cached is not None and cached[0] == self._host.generation:
            return cached[1]
        if kind not in KINDS:
            raise PluginNotFoundError(f"plugins offer no kind {kind!r}. {suggestion(kind, list(KINDS))}")
        with self._lock:
            generation = self._host.generation
            table: dict[str, list[Component]] = {}
            for plugin, declared in self._host.declared(f"tenon_{kind}"):
                for name, target in declared.items():
                    table.setdefault(name, []).append(Component(kind, name, target, plugin))
            self._tables[kind] = (generation, table)
            return table

    def _not_found(self, kind: str, name: str, table: dict[str, list[Component]]) -> PluginNotFoundError:
        lines = [f"no {KINDS[kind]} {name!r}. {suggestion(name, sorted(table))}"]
        if self._host.loading:
            lines.append(
                "Plugins are still being imported: declare targets as strings, import nothing in plugin.py."
            )
        if self._host.disabled:
            lines.append(f"Disabled plugins: {', '.join(self._host.disabled)}.")
        failures = self._host.failures
        if failures:
            lines.append("Plugins that failed and may offer it (`tenon plugins` shows tracebacks):")
            lines += [f"- {failure}" for failure in failures]
        error = PluginNotFoundError("\n".join(lines))
        error.__cause__ = _reason(failures)
        return error


def clash(components: Sequence[Component]) -> PluginClashError:
    """Return the error that several plugins declare the same name."""
    first, own = components[0], _reserved(components)
    if own is not None:
        others = " and ".join(f"plugin {each.plugin}" for each in components if each is not own)
        full = " or ".join(repr(each.address) for each in components if each is not own)
        return PluginClashError(
            f"{KINDS[own.kind]} {own.name!r} is reserved for tenon, and {others} declares it too: the name"
            f" stands for tenon's own, {full} for the other. Ask its author for another name."
        )
    owners = " and ".join(f"plugin {each.plugin}" for each in components)
    addresses = [each.address for each in components]
    if len(set(addresses)) < len(addresses):
        addresses = [f"{each.plugin.name}:{each.name}" for each in components]
    return PluginClashError(
        f"{KINDS[first.kind]} {first.name!r} is declared by {owners}. "
        f"Use the full name: {' or '.join(repr(address) for address in addresses)}; "
        "or disable one with TENON_DISABLE_PLUGINS."
    )


def _reserved(components: Sequence[Component]) -> Component | None:
    """The one of ``components`` that is of tenon itself, whose names no other plugin can take."""
    own = [each for each in components if each.plugin.first_party]
    return own[0] if len(own) == 1 else None


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return a hint: names similar to ``name``, or all known names if none is similar."""
    lowered = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(repr(lowered[entry]) for entry in near)}?"
    return f"Known: {', '.join(known)}." if known else "No loaded plugin offers any."


def _reason(failures: Sequence[PluginFailure]) -> BaseException | None:
    if len(failures) <= 1:
        return failures[0].error if failures else None
    return BaseExceptionGroup("plugins that failed", [failure.error for failure in failures])
