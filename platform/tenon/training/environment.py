"""What a run is computed with: versions and plugins, the same on all ranks, kept in ``environment.json``."""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.errors import CheckpointError, ConfigError, PluginWarning
from tenon.plugins.loader import FIRST_PARTY, describe
from tenon.plugins.manager import host
from tenon.serialize.regular_files import open_regular
from tenon.training.layers import in_one_line
from tenon.training.session import write_json

FILE = "environment.json"
#: Versions by library, and plugins by name, each with distribution and version.
Environment: TypeAlias = dict[str, Any]

_LIBRARIES = (FIRST_PARTY, "numpy", "mpi4py")
_SHOWN, _LONGEST = 5, 1 << 20


def current() -> Environment:
    """Return the versions and plugins of this process."""
    plugins = {
        info.name: {"distribution": info.distribution, "version": info.version} for info in host().plugins
    }
    versions = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:  # tenon from a folder, or no MPI
            versions[library] = "not installed"
    return {"versions": versions, "plugins": plugins, "disabled_plugins": list(host().disabled)}


def agree(communicator: Communicator) -> None:
    """ConfigError on every rank if plugins or the version of tenon differ between ranks."""
    texts = communicator.all_gather_bytes(encode(json.dumps(current())), name="plugins")
    others = [json.loads(decode(text)) for text in texts]
    lines = [
        f"rank {rank} {line}"
        for rank, other in enumerate(others)
        for line in differences(others[0], other, "rank 0 has")
    ]
    if lines:
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        raise ConfigError(
            f"ranks have different plugins: {'; '.join(lines[:_SHOWN])}{more}. Install the same on every"
            " host, and set TENON_PLUGINS and TENON_DISABLE_PLUGINS for all ranks alike; `tenon plugins`"
            " shows those of a host."
        )


def differences(before: Environment, after: Environment, there: str) -> list[str]:
    """What ``after`` has in other versions than ``before``, which ``there`` names, has more, and lacks."""
    lines = []
    old, new = before["versions"].get(FIRST_PARTY), after["versions"].get(FIRST_PARTY)
    if old != new:
        lines.append(f"has tenon {new}, {there} {old}")
    for name in sorted({*before["plugins"], *after["plugins"]}):
        known, found = (side["plugins"].get(name) for side in (before, after))
        if known == found or _follows_tenon(known, found):
            continue
        if found is None:
            lines.append(f"lacks plugin {_text(name, known)}")
        elif known is None:
            lines.append(f"has plugin {_text(name, found)} in addition")
        else:
            lines.append(f"has plugin {_text(name, found)}, {there} {_text(name, known)}")
    return lines


def _follows_tenon(*sides: Mapping[str, str | None] | None) -> bool:
    """Whether a plugin is tenon's own on both sides, which only its version tells apart."""
    return all(side is not None and side["distribution"] == FIRST_PARTY for side in sides)


def _text(name: str, side: Mapping[str, str | None]) -> str:
    return describe(name, side["distribution"], side["version"])


def record(folder: Path, environment: Environment) -> None:
    """Write ``environment`` to the run folder; warn if the run was begun with other plugins."""
    path = folder / FILE
    lines = _changes(path, environment)
    if lines:
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        text = f"the run goes on in another environment: it {'; it '.join(lines[:_SHOWN])}{more}."
        warnings.warn(PluginWarning(in_one_line(text)), stacklevel=2)
    write_json(path, environment)


def _changes(path: Path, environment: Environment) -> list[str]:
    """The differences from what the file at ``path`` has; none if there is no valid one."""
    try:
        with open_regular(path) as file:
            before = json.loads(file.read(_LONGEST))
        return differences(before, environment, "it had")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CheckpointError, RecursionError):
        return []  # a new run, one from before there was such a file, or a file that somebody has changed
