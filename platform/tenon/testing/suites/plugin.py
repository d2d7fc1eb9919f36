"""Conformance of plugins: subclass, name the plugin's module, and pytest checks what it declares.

::

    class TestTigerPlugin(PluginSuite):
        plugin = "tenon_tiger.plugin"
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from types import ModuleType
from typing import ClassVar

import pytest

from tenon.config import Config, process_environment
from tenon.distributed.communication.communicator import Communicator
from tenon.kernels.backend import Backend
from tenon.optim.optimizer import Optimizer
from tenon.optim.scheduler import LRScheduler
from tenon.plugins.components import Component
from tenon.plugins.hookspecs import KINDS
from tenon.plugins.loader import GROUP
from tenon.plugins.manager import Host

#: Kind -> the class of ``tenon.extend`` that its targets derive from.
BASES: Mapping[str, type] = {
    "backends": Backend,
    "communicators": Communicator,
    "optimizers": Optimizer,
    "schedulers": LRScheduler,
}
_NEW_MODULES = """
import json, sys
from tenon.extend import hookimpl
before = set(sys.modules)
import {plugin}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


class PluginSuite:
    """Checks of ``plugin``: the module that the entry point names."""

    #: The plugin's module, e.g. ``"tenon_tiger.plugin"``.
    plugin: ClassVar[str] = ""
    #: Target name -> library that it needs; if that is not installed, the target is not imported.
    needs: ClassVar[Mapping[str, str]] = {}
    #: Modules that importing the plugin may load besides its own package and the standard library.
    light: ClassVar[Sequence[str]] = ()

    @property
    def module(self) -> ModuleType:
        """Return the plugin's module."""
        return importlib.import_module(self.plugin)

    def components(self) -> list[Component]:
        """Return all components that the plugin declares, from a host that has no other plugin."""
        host = Host(Config(), entry_points=())
        host.load()
        host.register(self.module, "examined")
        components = [
            c for kind in KINDS for c in host.registry.components(kind) if c.plugin.name == "examined"
        ]
        assert host.failures == (), "\n".join(failure.traceback for failure in host.failures)
        return components

    def targets(self) -> list[tuple[Component, object]]:
        """Return the declared components with their objects, without those whose library is not installed."""
        return [(c, c.load()) for c in self.components() if self._library_is_installed(c.name)]

    def _library_is_installed(self, name: str) -> bool:
        library = self.needs.get(name)
        return library is None or importlib.util.find_spec(library) is not None

    def test_is_found_by_its_entry_point(self) -> None:
        """An installed distribution names it in the group ``tenon``."""
        points = {point.value: point.name for point in entry_points(group=GROUP)}
        assert self.plugin in points, (
            f"no installed distribution has an entry point {self.plugin!r} in the group {GROUP!r}; there are "
            f"{', '.join(sorted(points))}. Add it to pyproject.toml, and install the project again."
        )

    def test_imports_nothing_heavy(self) -> None:
        """In a clean interpreter, it loads its own package and the standard library, and no target."""
        environment = dict(process_environment()) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        code = _NEW_MODULES.format(plugin=self.plugin)
        result = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        package = self.plugin.partition(".")[0]
        allowed = {package, *self.light, *sys.stdlib_module_names}
        loaded = json.loads(result.stdout)
        heavy = [name for name in loaded if name.partition(".")[0] not in allowed and name not in allowed]
        targets = {str(c.target).partition(":")[0] for c in self.components()} - {self.plugin}
        assert heavy == [], (
            f"importing {self.plugin} also imports {', '.join(heavy)}; name targets as strings"
        )
        assert targets.isdisjoint(loaded), f"importing {self.plugin} imports its targets already"

    def test_implements_known_hooks(self) -> None:
        """A host accepts the plugin: its hooks exist, have valid arguments, and are marked."""
        host = Host(Config(), entry_points=())
        host.load()
        host.register(self.module, "examined")
        assert host.failures == ()
        assert self._implementations(), f"{self.plugin} implements no hook; mark functions with @hookimpl"

    def test_targets_resolve(self) -> None:
        """Every declared target can be imported, and its name is unique."""
        targets = self.targets()
        names = [(c.kind, c.name) for c, _ in targets]
        assert len(set(names)) == len(names)
        absent = [c.name for c in self.components() if not self._library_is_installed(c.name)]
        if absent and not targets:
            pytest.skip(f"{', '.join(absent)}: {', '.join(self.needs[n] for n in absent)} not installed")

    def test_targets_derive_from_what_their_kind_asks_for(self) -> None:
        """Optimizers are Optimizers, backends are Backends."""
        for component, target in self.targets():
            base = BASES.get(component.kind)
            if base is not None:
                assert inspect.isclass(target) and issubclass(target, base), (
                    f"{component.name} is {target!r}, not a subclass of tenon.extend.{base.__name__}"
                )

    def test_everything_is_documented(self) -> None:
        """The module and its targets have docstrings of their own."""
        assert (self.module.__doc__ or "").strip(), f"{self.plugin} has no docstring"
        for component, target in self.targets():
            own = target.__dict__.get("__doc__") if inspect.isclass(target) else target.__doc__
            text = own or getattr(target, "help", None) or ""
            assert text.strip(), f"{component.kind} {component.name!r} ({component.target}) has no docstring"

    def _implementations(self) -> dict[str, object]:
        return {n: f for n, f in vars(self.module).items() if hasattr(f, "tenon_impl")}
