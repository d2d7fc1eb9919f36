"""Look up components of the process's host by kind and name.

>>> "optimizers" in kinds()
True

Kinds are those of ``hookspecs.KINDS``. Plugins load at the first look-up; a target is imported when its name
is resolved, not when it is listed. Next: ``lazy.py`` adds these names to modules as attributes.
"""

from __future__ import annotations

from tenon.plugins.components import C, Component, Registry
from tenon.plugins.hookspecs import KINDS
from tenon.plugins.lazy import Target
from tenon.plugins.manager import host

__all__ = ["Component", "Registry", "component", "components", "kinds", "names", "resolve", "resolve_class"]


def kinds() -> list[str]:
    """Return every kind of component that a plugin can declare."""
    return list(KINDS)


def resolve(kind: str, name: str) -> Target:
    """Return the object called ``name``, as in ``resolve("optimizers", "SGD")``, or ``"distribution:Name"``.

    Raises PluginNotFoundError (an AttributeError) for an unknown name, PluginClashError where two plugins
    declare it, PluginTargetError (an ImportError) where its target cannot be imported.
    """
    return host().registry.resolve(kind, name)


def resolve_class(kind: str, name: str, base: type[C]) -> type[C]:
    """``resolve`` of a kind whose targets are subclasses of ``base``; PluginTargetError for another."""
    return host().registry.resolve_class(kind, name, base)


def component(kind: str, name: str) -> Component:
    """Return the declaration of ``name``, with its plugin and target, which is not imported."""
    return host().registry.component(kind, name)


def components(kind: str) -> list[Component]:
    """Return all components of ``kind``, by name; a clashing name appears once per plugin."""
    return host().registry.components(kind)


def names(kind: str) -> list[str]:
    """Return all names of ``kind``, sorted; no target is imported."""
    return host().registry.names(kind)
