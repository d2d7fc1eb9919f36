"""Decide which code a checkpoint's configuration may name.

``model``, ``data`` and ``loss`` of a configuration name functions and classes, which are imported and called.
A user may do that, and a file may not: whoever writes a checkpoint could name any code. A saved name counts
if the user gives it too, with the command, or if this account signed the configuration when it wrote the
checkpoint (``plugins/user_key.py``). Everything else needs ``--trust``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tenon.errors import ConfigError
from tenon.training.layers import Table

#: The settings that name what is imported and called.
IMPORTED = ("model", "data", "loss")


def imports(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the names that ``settings`` import, by key, except losses of ``tenon.nn.functional`` and parts
    of a recipe."""
    settings_by_key = {key: settings.get(key) for key in IMPORTED}
    return {key: str(name) for key, name in settings_by_key.items() if name is not None and ":" in str(name)}


@dataclass(frozen=True)
class Trust:
    """What the user allows a checkpoint to import.

    ``named``: names in the user's own configuration file and ``--set`` options, by key. ``replaced``: keys
    whose saved value is not used. ``everything``: ``--trust``.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    replaced: Collection[str] = ()
    everything: bool = False

    @classmethod
    def of(cls, layers: Collection[Table], overrides: Collection[Table], everything: bool) -> Trust:
        """Return the trust that follows from the user's configuration ``layers`` and ``--set`` options."""
        named = {key: name for layer in (*layers, *overrides) for key, name in imports(layer).items()}
        return cls(named, frozenset(key for layer in overrides for key in layer), everything)

    def check(self, settings: Mapping[str, object], signed: bool, path: Path) -> dict[str, str]:
        """Return the imports that only ``--trust`` allows, by key; ConfigError for one that nothing allows.

        ``settings`` were read from ``path``. ``signed``: this account has written them.
        """
        if signed:
            return {}
        saved = {key: name for key, name in imports(settings).items() if key not in self.replaced}
        unknown = {key: name for key, name in saved.items() if self.named.get(key) != name}
        if not unknown or self.everything:
            return unknown
        user_names = {key: self.named[key] for key in unknown if key in self.named}
        but = f" You have named {listing(user_names)}." if user_names else ""
        raise ConfigError(
            f"{path} was not written by this account, and would import and call {listing(unknown)}.{but} If"
            " that is your code, name your configuration file as well (tenon train my.toml --resume RUN), or"
            " allow whatever the file names with --trust."
        )


def listing(names: Mapping[str, str]) -> str:
    """Return ``names`` as text for a message: ``model = 'net:Net', data = 'net:load'``."""
    return ", ".join(f"{key} = {name!r}" for key, name in names.items())
