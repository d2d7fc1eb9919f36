"""PyTorch's ``torch.hub``: models from a folder's ``hubconf.py``, and weights from a URL.

``load(folder, name, source="local")`` runs the entry ``name`` of ``folder/hubconf.py``. Code is not
downloaded from GitHub: clone the repository, review it, and pass its folder. Weights are downloaded once,
checked against the hash in their name, and kept in ``get_dir()``.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlparse

from tenon.compat.serialization import MAP_LOCATION
from tenon.config import Config, environment
from tenon.errors import ArgumentError, UnsupportedError

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

#: As in PyTorch, the hexadecimal digits between the last hyphen and the suffix are the beginning of the
#: file's SHA-256.
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_settings: dict[str, str] = {}


def get_dir() -> str:
    """Return the folder of downloads: the one of ``set_dir``, else ``$TORCH_HOME/hub``, else tenon's
    cache."""
    return _settings["dir"] if "dir" in _settings else os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    folder = environment("TORCH_HOME")
    return str(Path(folder).expanduser() if folder else Config.from_environment().cache_folder())


T = TypeVar("T")


class tqdm(Generic[T]):
    """The part of tqdm's interface that downloads use; it shows no progress."""

    def __init__(self, iterable: Iterable[T] = (), *args: object, **options: object) -> None:
        self.iterable = iterable

    def __iter__(self) -> Iterator[T]:
        return iter(self.iterable)

    def __enter__(self) -> tqdm[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        """Do nothing."""

    def update(self, n: float = 1) -> None:
        """Do nothing."""

    def set_description(self, desc: str | None = None, refresh: bool = True) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def set_dir(d: str | os.PathLike[str]) -> None:
    """Store downloads in ``d``."""
    _settings["dir"] = os.path.expanduser(d)


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    **options: Any,  # ``source`` is a string; PyTorch's others are ignored
) -> builtins.list[str]:
    """Return the names of a folder's entries: the public functions of its ``hubconf.py``."""
    module = _entries(github, options.get("source", "local"))
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    **options: Any,  # as ``list``'s
) -> str | None:
    """Return the docstring of the entry ``model``."""
    doc: str | None = _entry(_entries(github, options.get("source", "local")), model).__doc__
    return doc


def load(
    repo_or_dir: str, model: str, *args: object, source: str = "github", **kwargs: object
) -> Any:  # what the entry returns
    """Call the entry ``model`` of ``repo_or_dir/hubconf.py`` with ``args`` and ``kwargs``."""
    for name in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(name, None)
    return _entry(_entries(repo_or_dir, source), model)(*args, **kwargs)


def _entries(folder: str, source: str) -> ModuleType:
    if source not in ("github", "local"):
        raise ArgumentError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    path = Path(folder).expanduser() / "hubconf.py"
    if source == "github" or not path.exists():
        raise UnsupportedError(
            f"torch.hub: code is not downloaded from GitHub, and {path} does not exist."
            f" Clone {folder} and pass the clone's folder with source='local'."
        )
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    missing = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module: ModuleType, name: str) -> Callable[..., Any]:  # a function of the user's
    if not isinstance(name, str):
        raise ArgumentError("Invalid input: model should be a string of function name")
    entry = getattr(module, name, None)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return entry


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download ``url`` to ``dst``; ``progress`` has no effect.

    The file gets its name only when it is complete and its SHA-256 begins with ``hash_prefix``; RuntimeError
    if it does not.
    """
    path = Path(dst).expanduser()
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as part:
        try:
            with urllib.request.urlopen(url) as source:
                while block := source.read(1 << 20):
                    part.write(block)
                    digest.update(block)
            part.close()
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(
                    f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}") of {url}'
                )
            shutil.move(part.name, path)
        finally:
            Path(part.name).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: MAP_LOCATION = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:  # what the file holds
    """Load the file at ``url`` with ``tenon.load``.

    It is downloaded at the first call, to ``model_dir`` or by default ``get_dir()/checkpoints``.
    """
    from tenon.serialize import load as read

    folder = Path(model_dir or Path(get_dir()) / "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name or unquote(os.path.basename(urlparse(url).path)))
    if not path.exists():
        match = HASH_REGEX.search(path.name) if check_hash else None
        download_url_to_file(url, str(path), match.group(1) if match else None, progress)
    return read(str(path), map_location=map_location, weights_only=weights_only)
