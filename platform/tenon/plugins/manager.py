"""The host: one pluggy manager, the loaded plugins, and the failures of plugins.

``host()`` is the process's host, loaded at its first use. Declaring hooks and checkpoint sections are called
one plugin at a time, so that each result has a known plugin and one failure does not affect others; all
other hooks are called through ``host().hook``. A hook implementation that raises is reported with its
plugin's name. Plugins are registered in reverse plugin order, because pluggy calls the last one first.

Next: ``components.py`` resolves the declared names to objects.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

from tenon.config import Config
from tenon.errors import PluginError, PluginWarning
from tenon.plugins import hookspecs, loader
from tenon.plugins.attribution import name_the_plugin
from tenon.plugins.components import Registry
from tenon.plugins.hookspecs import hookimpl
from tenon.plugins.loader import PluginFailure, PluginInfo

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tenon.optim.optimizer import Optimizer, ParamsT
    from tenon.training.session import Session

_lock = threading.RLock()
_listeners: list[Callable[[], None]] = []
_host: Host | None = None


class Host:
    """Loaded plugins and their hooks. Use ``host()``; create another one only to test with other plugins.

    >>> quiet = Host(Config(), entry_points=())
    >>> quiet.load()
    >>> quiet.plugins
    ()
    """

    def __init__(
        self, config: Config | None = None, *, entry_points: Iterable[EntryPoint] | None = None
    ) -> None:
        self.config = Config.from_environment() if config is None else config
        self.generation = 0
        self.disabled: tuple[str, ...] = ()
        self._plugins: list[PluginInfo] = []
        self._failures: list[PluginFailure] = []
        self._points = entry_points
        self._state = "new"
        self.registry = Registry(self, _lock)
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._manager.add_hookcall_monitoring(_before_call, self._after_call)
        if self.config.trace_plugins:
            self._manager.trace.root.setwriter(_write_trace)
            self._manager.enable_tracing()
        self._manager.register(_Defaults(self.registry), name=hookspecs.PROJECT)
        # Called before plugins are registered, each of which is then configured, and isolated, by itself.
        self._manager.hook.tenon_configure.call_historic(kwargs={"config": self.config})

    @property
    def hook(self) -> pluggy.HookRelay:
        """Every hook as a method that takes keyword arguments: ``hook.tenon_step_end(session=..., ...)``."""
        return self._manager.hook

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """Loaded plugins: first-party first, then by name, then by registration."""
        return tuple(self._plugins)

    @property
    def failures(self) -> tuple[PluginFailure, ...]:
        """All failures of plugins so far."""
        return tuple(self._failures)

    @property
    def former_names(self) -> dict[str, str]:
        """Former names of packages and modules of loaded plugins -> their present names.

        They are declared in ``FORMER_NAMES`` of a plugin's module. Such names stay importable, and the plugin
        restores the sections of checkpoints that were saved under them.
        """
        return {
            former: present
            for info in self._plugins
            for former, present in getattr(info.plugin, "FORMER_NAMES", {}).items()
        }

    @property
    def loading(self) -> bool:
        """Whether plugins are being imported right now."""
        return self._state == "loading"

    def load(self) -> None:
        """Discover and register the installed plugins; no effect after the first call."""
        with _lock:
            if self._state != "new":
                return
            self._state = "loading"
            try:
                advice = self._load()
            except BaseException:
                self._state = "new"
                raise
            self._state = "loaded"
            self._changed()
        if advice:
            warnings.warn(PluginWarning("\n".join(advice)), stacklevel=3)

    def register(self, plugin: object, name: str | None = None) -> PluginInfo:
        """Add a plugin by hand: a module, an instance or a class with ``hookimpl`` methods.

        PluginError if it is registered already or implements an unknown hook; nothing of it is registered
        then.
        """
        with _lock:
            plugin_name = name or _name_of(plugin)
            existing = next(
                (info for info in self._plugins if info.name == plugin_name or info.plugin is plugin), None
            )
            if existing is not None:
                raise PluginError(
                    f"plugin {plugin_name!r} is already registered as {existing}. Unregister that one first."
                )
            loader.check(self._manager, plugin, plugin_name)
            info = PluginInfo(plugin_name, plugin, repr(plugin))
            self._register(info)
            self._plugins.append(info)
            self._changed()
            return info

    def unregister(self, plugin: object | str) -> PluginInfo:
        """Remove a plugin, by its name or the object that was registered."""
        with _lock:
            info = next(
                (info for info in self._plugins if info.name == plugin or info.plugin is plugin), None
            )
            if info is None:
                names = ", ".join(info.name for info in self._plugins)
                raise PluginError(f"plugin {plugin!r} is not registered. Registered: {names}.")
            self._manager.unregister(info.plugin)
            self._plugins.remove(info)
            self._failures = [failure for failure in self._failures if failure.name != info.name]
            self._changed()
            return info

    def declared(self, hook: str) -> list[tuple[PluginInfo, Mapping[str, object]]]:
        """Call a declaring hook, one plugin at a time; an invalid declaration becomes a failure."""
        declarations: list[tuple[PluginInfo, Mapping[str, object]]] = []
        for info, caller in self._callers(hook):
            try:
                for result in caller():
                    declarations.append((info, _declaration(info, hook, result)))
            except (Exception, SystemExit) as error:
                self._fail(info, error)
        return declarations

    def save_sections(self, session: Session) -> dict[str, dict[str, object]]:
        """Plugin name -> the section that its ``tenon_checkpoint_save`` wrote, unless empty."""
        sections: dict[str, dict[str, object]] = {}
        for info, caller in self._callers("tenon_checkpoint_save"):
            section: dict[str, object] = {}
            caller(section=section, session=session)
            if section:
                sections[info.name] = section
        return sections

    def load_sections(self, sections: Mapping[str, Mapping[str, object]], session: Session) -> None:
        """Call each ``tenon_checkpoint_load`` with its plugin's section; warn of sections without one."""
        callers = [(_names_of(info), caller) for info, caller in self._callers("tenon_checkpoint_load")]
        orphans = sorted(set(sections).difference(*(names for names, _ in callers)))
        if orphans:
            warnings.warn(
                PluginWarning(
                    f"the checkpoint has state of plugins that are not loaded or do not restore it: "
                    f"{', '.join(orphans)}. Run `tenon plugins` to see what is loaded; the rest is restored."
                ),
                stacklevel=2,
            )
        for names, caller in callers:
            section = next((sections[name] for name in names if name in sections), {})
            caller(section=section, session=session)

    def _load(self) -> list[str]:
        """Load the plugins; return the lines of a warning, none if all plugins were loaded."""
        points = loader.installed_entry_points() if self._points is None else self._points
        discovery = loader.discover(self._manager, self.config, points)
        failures = list(discovery.failures)
        accepted: list[PluginInfo] = []
        try:
            for info in reversed(discovery.loaded):
                try:
                    self._register(info)
                    accepted.insert(0, info)
                except (Exception, SystemExit) as error:
                    failures.append(_failure(info, "configure", error))
        except BaseException:
            for info in accepted:
                self._manager.unregister(info.plugin)
            raise
        self.disabled = discovery.disabled
        self._plugins[:0] = accepted
        self._failures.extend(failures)
        advice = [f"- {failure}" for failure in failures]
        if advice:
            advice.insert(0, "some plugins were not loaded; `tenon plugins` shows their tracebacks:")
        return [*advice, *discovery.unmatched]

    def _register(self, info: PluginInfo) -> None:
        try:
            self._manager.register(info.plugin, name=info.name)
        except BaseException as error:
            if self._manager.get_name(info.plugin) is not None:  # pluggy before 1.7 leaves it registered
                self._manager.unregister(info.plugin)
            if isinstance(error, pluggy.PluginValidationError):
                raise PluginError(f"{error}. Compare with `tenon.plugins.hookspecs`.") from error
            raise

    def _callers(self, hook: str) -> list[tuple[PluginInfo, pluggy.HookCaller]]:
        """Return for each plugin that implements ``hook``, in plugin order, a caller of this plugin only."""
        owners = {id(implementation.plugin) for implementation in getattr(self.hook, hook).get_hookimpls()}
        plugins = [info.plugin for info in self._plugins]
        callers: list[tuple[PluginInfo, pluggy.HookCaller]] = []
        for info in self._plugins:
            if id(info.plugin) in owners:
                others = [plugin for plugin in plugins if plugin is not info.plugin]
                callers.append((info, self._manager.subset_hook_caller(hook, others)))
        return callers

    def _fail(self, info: PluginInfo, error: BaseException) -> None:
        """Record the failure of a declaring hook, and warn of it the first time."""
        failure = _failure(info, "declare", error)
        if not any(known.name == info.name and known.summary == failure.summary for known in self._failures):
            self._failures.append(failure)
            warnings.warn(
                PluginWarning(f"plugin {failure}; its other parts work. See `tenon plugins`."),
                stacklevel=4,
            )

    def _after_call(
        self,
        outcome: pluggy.Result[object],
        hook: str,
        implementations: Sequence[pluggy.HookImpl],
        arguments: Mapping[str, object],
    ) -> None:
        if isinstance(outcome.exception, Exception):
            outcome.force_exception(name_the_plugin(outcome.exception, hook, implementations, self._plugins))

    def _changed(self) -> None:
        self.generation += 1
        _notify()


def host() -> Host:
    """The process's host, with the installed plugins loaded."""
    global _host
    current = _host
    if current is None:
        with _lock:
            current = _host = _host or Host()
    if current._state != "loaded":
        current.load()
    return current


@contextlib.contextmanager
def use_host(other: Host) -> Iterator[Host]:
    """Make ``other`` the process's host inside the block, for tests."""
    global _host
    previous, _host = _host, other
    _notify()
    try:
        yield other
    finally:
        _host = previous
        _notify()


def register(plugin: object, name: str | None = None) -> PluginInfo:
    """Add a plugin to the process's host by hand, for tests and notebooks."""
    return host().register(plugin, name)


def unregister(plugin: object | str) -> PluginInfo:
    """Remove a plugin from the process's host, by its name or the object that was registered."""
    return host().unregister(plugin)


def on_change(listener: Callable[[], None]) -> None:
    """Call ``listener`` whenever plugins are registered or unregistered."""
    if listener not in _listeners:
        _listeners.append(listener)


def _notify() -> None:
    for listener in _listeners:
        listener()


def _before_call(
    hook: str, implementations: Sequence[pluggy.HookImpl], arguments: Mapping[str, object]
) -> None:
    """Do nothing; pluggy's monitoring requires a function to call before each hook."""


def _write_trace(line: str) -> None:
    sys.stderr.write(line)


def _name_of(plugin: object) -> str:
    named = getattr(plugin, "__name__", None)
    return named if isinstance(named, str) else f"{type(plugin).__qualname__}-{id(plugin):x}"


def _names_of(info: PluginInfo) -> tuple[str, ...]:
    """The name of a plugin, and its former names."""
    return (info.name, *getattr(info.plugin, "FORMER_NAMES", ()))


def _failure(info: PluginInfo, stage: loader.Stage, error: BaseException) -> PluginFailure:
    return PluginFailure(info.name, stage, error, info.source, info.distribution, info.version)


def _declaration(info: PluginInfo, hook: str, result: object) -> Mapping[str, object]:
    """The result of a declaring hook; PluginError unless it maps names to targets."""
    if not isinstance(result, Mapping):
        raise PluginError(
            f"{hook} of plugin {info} returned a {type(result).__name__}, not a mapping. "
            "Return {'Name': 'package.module:attribute'}."
        )
    for name, target in result.items():
        if not isinstance(name, str) or not name.strip() or ":" in name:
            raise PluginError(
                f"{hook} of plugin {info} declares the name {name!r}. Use a string without ':'."
            )
        problem = loader.target_error(target, hook.removeprefix("tenon_"))
        if problem is not None:
            raise PluginError(f"{hook} of plugin {info} declares {name!r} wrongly: {problem}")
    return dict(result)


class _Defaults:
    """The host's own implementations of hooks, which are called last."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @hookimpl(trylast=True)
    def tenon_make_optimizer(self, name: str, params: ParamsT, options: Mapping[str, object]) -> Optimizer:
        return self._registry.resolve("optimizers", name)(params, **options)
