"""Import packages of plugins under public names, as ``tenon.zoo`` for ``tenon_zoo.animals``.

A plugin declares the package in its ``tenon_namespaces`` hook. ``import tenon.zoo`` then imports it, and the
modules below it, under the public name: one module object, in ``sys.modules`` under both names. Classes and
functions have the public name as their ``__module__``, which pickles and messages show. ``tenon.zoo.lion`` is
the attribute ``lion`` of the package if that is a module of the plugin, else its submodule of that name; so a
package may have its files in folders of its own.

Modules of tenon itself take precedence: plugins are consulted if no file provides a name, by the import hook
in ``tenon/compat/finder.py``. Importing this module imports neither pluggy nor any plugin. Next:
``hookspecs.py`` has the hook, ``components.py`` resolves its targets.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importing importlib.abc takes 20 ms; importlib needs only the two methods

__all__ = ["PROVIDED", "plugin_spec", "provided_below", "public_spec"]

#: Public modules that tenon's own plugins provide; if none does, the error has advice. Plugins are consulted
#: before files for them, as the empty folder of a former package would be a namespace package.
PROVIDED = frozenset(
    {
        "tenon.compress",
        "tenon.distributed.join",
        "tenon.distributed.local_sgd",
        "tenon.distributed.object_collectives",
        "tenon.distributed.powersgd",
        "tenon.distributions",
        "tenon.prune",
        "tenon.quantization",
        "tenon.quasirandom",
        "tenon.training.plan",
    }
)

_published: dict[str, ModuleType] = {}


def provided_below(package: str) -> set[str]:
    """The names of ``PROVIDED`` that are directly below ``package``."""
    split = (name.rpartition(".") for name in PROVIDED)
    return {name for parent, _, name in split if parent == package}


def public_spec(fullname: str) -> ModuleSpec | None:
    """The spec of a name in ``PROVIDED``, or of a module below one that has a public name; else None."""
    if fullname in PROVIDED:
        return _declared(fullname)
    parent, _, child = fullname.rpartition(".")
    package = _published.get(parent)
    return None if package is None else _below(package, child, fullname)


def plugin_spec(fullname: str) -> ModuleSpec | None:
    """The spec of a namespace that a plugin declares, or of a former name of a plugin's module; else None.

    Loads the plugins, so it should be called only if no file provides ``fullname``.
    """
    from tenon.plugins.manager import host

    present = host().former_names.get(fullname)
    if present is not None:
        return ModuleSpec(fullname, _Publisher(lambda: importlib.import_module(present)))
    return _declared(fullname) if fullname.startswith("tenon.") else None


def _declared(fullname: str) -> ModuleSpec | None:
    """The spec of a namespace that a plugin declares; PluginModuleError if one of ``PROVIDED`` is missing."""
    from tenon.errors import PluginModuleError, PluginNotFoundError
    from tenon.plugins.registry import component

    try:
        namespace = component("namespaces", fullname.removeprefix("tenon."))
    except PluginNotFoundError as error:
        if fullname not in PROVIDED:
            return None
        missing = PluginModuleError(
            f"{fullname} comes from a plugin, and no loaded plugin provides it: {error}\n"
            "`tenon plugins` shows what is loaded. Add the plugin to TENON_PLUGINS, take it out of "
            "TENON_DISABLE_PLUGINS, or install its distribution again: tenon-platform has those that "
            "tenon ships."
        )
        missing.name = fullname
        raise missing from error.__cause__
    return ModuleSpec(fullname, _Publisher(namespace.load))


def _below(package: ModuleType, child: str, fullname: str) -> ModuleSpec | None:
    """The spec of a module of a published package, which is an attribute or a submodule of it."""
    attribute = vars(package).get(child)
    if isinstance(attribute, ModuleType) and _of_one_plugin(attribute, package):
        return ModuleSpec(fullname, _Publisher(lambda: attribute))
    from importlib.util import find_spec

    own = f"{_own_name(package)}.{child}"
    if own == fullname or find_spec(own) is None:
        return None
    return ModuleSpec(fullname, _Publisher(lambda: importlib.import_module(own)))


class _Publisher(Loader):
    """Loads a module for its public name by importing it under its own."""

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module, imported under its own name."""
        module = self._load()
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Publish the module, which is executed already; restore its spec, which importlib has replaced."""
        from tenon.plugins.manager import on_change

        spec, module.__spec__ = module.__spec__, self._own_spec
        assert spec is not None
        on_change(_forget)
        _publish(module, spec.name)


def _publish(package: ModuleType, name: str) -> None:
    """Set the public names of ``package``, its classes and functions, and the modules in it.

    The shortest names are set first: a module that is an attribute of the package is directly below it,
    whichever folder its file is in.
    """
    pending = [(package, name)]
    for module, public in pending:
        own = _own_name(module)
        _published[public] = sys.modules[public] = module
        if hasattr(module, "__path__"):  # importlib would replace functions of the same names by submodules
            pending += [(child, f"{public}.{name}") for name, child in _loaded_below(own)]
        if module.__name__ != own:
            continue  # it has another public name already
        module.__name__ = public
        for attribute, value in list(vars(module).items()):
            if not isinstance(value, ModuleType):
                if hasattr(value, "__qualname__") and value.__module__ == own:
                    value.__module__ = public
            elif hasattr(module, "__path__") and _of_one_plugin(value, package):
                pending.append((value, f"{public}.{attribute}"))


def _loaded_below(package: str) -> list[tuple[str, ModuleType]]:
    """The names and modules of the loaded submodules of ``package``."""
    prefix = f"{package}."
    below = ((name.removeprefix(prefix), m) for name, m in sys.modules.items() if name.startswith(prefix))
    return [(name, module) for name, module in below if "." not in name]


def _own_name(module: ModuleType) -> str:
    """The name under which a module was imported first."""
    return module.__name__ if module.__spec__ is None else module.__spec__.name


def _of_one_plugin(module: ModuleType, package: ModuleType) -> bool:
    """Whether ``module`` lies below the top package of ``package``."""
    return _own_name(module).startswith(_own_name(package).partition(".")[0] + ".")


def _forget() -> None:
    """Remove the public names, as plugins were registered or unregistered; own names stay."""
    while _published:
        public, module = _published.popitem()  # in reverse order: modules before their package
        if sys.modules.get(public) is module:
            del sys.modules[public]
        parent, _, name = public.rpartition(".")
        attributes = vars(sys.modules[parent]) if parent in sys.modules and parent not in _published else {}
        if attributes.get(name) is module:
            del attributes[name]
