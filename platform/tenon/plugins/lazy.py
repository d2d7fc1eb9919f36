"""Add the names that plugins declare to a module, as lazy attributes (PEP 562).

``tenon/optim/__init__.py`` needs two lines and names no plugin::

    from tenon.plugins.lazy import lazy_namespace

    __getattr__, __dir__ = lazy_namespace(__name__, kind="optimizers")

The first access imports the target and stores it in the module's globals, so that later ones cost a
dictionary look-up. When plugins are registered or unregistered, stored names are deleted and resolved again.
Importing this file imports neither pluggy nor any plugin; names with a leading underscore are not looked up
in plugins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

#: A component's class, function, module or other object, by its kind.
Target: TypeAlias = Any
#: Names stored in modules: (globals of the module, name, value).
_stored: list[tuple[dict[str, object], str, object]] = []


def lazy_namespace(
    module_name: str, kind: str, only: Sequence[str] | None = None
) -> tuple[Callable[[str], Target], Callable[[], list[str]]]:
    """Return ``(__getattr__, __dir__)`` for the module ``module_name``, with the components of ``kind``, or
    ``only`` some of them, as attributes.

    An unknown name raises AttributeError with similar names and the plugins that failed to load; a name whose
    target cannot be imported raises ImportError with the reason.
    """

    def __getattr__(name: str) -> Target:
        if name.startswith("_") or (only is not None and name not in only):
            raise AttributeError(f"module {module_name!r} has no attribute {name!r}")
        from tenon.errors import PluginNotFoundError
        from tenon.plugins.manager import on_change
        from tenon.plugins.registry import resolve

        try:
            value = resolve(kind, name)
        except PluginNotFoundError as error:
            message = f"module {module_name!r} has no attribute {name!r}: {error}"
            raise PluginNotFoundError(message) from error.__cause__
        on_change(_forget)
        names = vars(sys.modules[module_name])
        names[name] = value
        _stored.append((names, name, value))
        return value

    def __dir__() -> list[str]:
        from tenon.plugins.registry import names

        return sorted({*vars(sys.modules[module_name]), *(names(kind) if only is None else only)})

    return __getattr__, __dir__


def _forget() -> None:
    """Delete the stored names, as plugins were registered or unregistered."""
    while _stored:
        names, name, value = _stored.pop()
        if names.get(name) is value:
            del names[name]
