"""Settings of the process, from keyword arguments and the environment.

This is the only file that reads ``os.environ``: other modules take a ``Config`` as an argument, or call
``environment`` for variables of other programs, such as the rank that an MPI launcher sets. A ``Config`` is
frozen; for other settings create another one.

Next: ``plugins/manager.py`` passes the process's ``Config`` to every plugin through ``tenon_configure``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tenon.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "TENON_"
#: Settings that start-up code has chosen: setting -> reason, for ``tenon doctor``.
DECIDED: dict[str, str] = {}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


def environment(name: str, default: str | None = None) -> str | None:
    """The environment variable ``name``, or ``default`` if it is not set."""
    return os.environ.get(name, default)


def process_environment() -> MutableMapping[str, str]:
    """The process's environment, for start-up code that reads launchers' variables and sets thread counts."""
    return os.environ


# No dataclass: importing `dataclasses` takes a quarter of the time of `import tenon`.
class Config(NamedTuple):
    """The settings of a process; the defaults let tenon choose.

    >>> Config.from_environment({"TENON_DISABLE_PLUGINS": "tiger, tenon-noise"}).disable_plugins
    ('tiger', 'tenon-noise')
    """

    disable_plugins: tuple[str, ...] = ()
    """Plugins or distributions not to load (``TENON_DISABLE_PLUGINS=a,b``)."""

    plugins: tuple[str, ...] | None = None
    """The only plugins or distributions to load; None loads all (``TENON_PLUGINS=a,b``)."""

    trace_plugins: bool = False
    """Write every hook call to standard error (``TENON_TRACE_PLUGINS=1``)."""

    device: str | None = None
    """Device of new tensors and of training runs, as "cuda:0" (``TENON_DEVICE``)."""

    communicator: str | None = None
    """Name of the communicator for ``launch()``, as "mpi" (``TENON_COMMUNICATOR``)."""

    cache: str | None = None
    """Folder for files that are created once per machine, such as compiled kernels (``TENON_CACHE``)."""

    settings: tuple[tuple[str, str], ...] = ()
    """Every other ``TENON_*`` variable, for plugins; see ``setting``."""

    def setting(self, name: str, default: str | None = None) -> str | None:
        """The value of ``TENON_<NAME>``, for settings that only a plugin knows.

        >>> Config.from_environment({"TENON_TIGER_BETA": "0.5"}).setting("tiger_beta")
        '0.5'
        """
        key = name.upper() if name.upper().startswith(PREFIX) else PREFIX + name.upper()
        return dict(self.settings).get(key, default)

    def number(
        self, name: str, default: float, meaning: str, *, least: float = 0.0, most: float = sys.float_info.max
    ) -> float:
        """``TENON_<NAME>`` as a number from ``least`` to ``most``; ConfigError, which ends with ``meaning``.

        >>> Config.from_environment({"TENON_WATCHDOG": "30"}).number("watchdog", 600, "seconds. Write 600")
        30.0
        """
        text = self.setting(name) or str(default)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            raise ConfigError(f"{PREFIX}{name.upper()}={text!r} is not a number of {meaning}.")
        return value

    def cache_folder(self) -> Path:
        """``cache``, else ``tenon`` in the user's cache folder (``XDG_CACHE_HOME``, ``~/.cache``)."""
        from pathlib import Path  # a fifth of the time of `import tenon`, which needs no paths

        if self.cache is not None:
            return Path(self.cache).expanduser()
        return Path(environment("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "tenon"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **overrides: object) -> Config:
        """Read ``TENON_*`` from ``environ`` (the process's if None); keyword arguments take precedence."""
        source = os.environ if environ is None else environ
        known = {*cls._fields} - {"settings"}
        unknown = sorted(set(overrides) - known - {"settings"})
        if unknown:
            import difflib

            near = difflib.get_close_matches(unknown[0], known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(sorted(known))}."
            raise ConfigError(f"Config has no setting {unknown[0]!r}. {hint}")
        values: dict[str, Any] = {}  # each of the type of its field
        others: list[tuple[str, str]] = []
        for variable, text in sorted(source.items()):
            if not variable.startswith(PREFIX):
                continue
            name = variable.removeprefix(PREFIX).lower()
            if name in known:
                values[name] = _parse(variable, name, text)
            else:
                others.append((variable, text))
        return cls(**{"settings": tuple(others), **values, **overrides})


def _parse(variable: str, name: str, text: str) -> tuple[str, ...] | bool | str | None:
    """The value of the field ``name`` for the text of its variable."""
    if name == "disable_plugins":
        return _names(text)
    if name == "plugins":
        return _names(text) or None
    if name == "trace_plugins":
        return _flag(variable, text)
    return text.strip() or None


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(variable: str, text: str) -> bool:
    value = text.strip().lower()
    if value not in _TRUE | _FALSE:
        raise ConfigError(f"{variable}={text!r} is neither on nor off. Write 1 or 0.")
    return value in _TRUE
