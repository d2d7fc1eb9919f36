"""Throwaway distributions: a dist-info folder and some modules in a folder on sys.path."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tenon.config import Config
from tenon.plugins import manager
from tenon.plugins.manager import Host

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``install("tenon-tiger", {"tiger": "tenon_tiger.plugin"}, {"tenon_tiger/plugin.py": "..."})``."""
    before = set(sys.modules)

    def install(
        name: str,
        points: Mapping[str, str],
        files: Mapping[str, str],
        version: str = "0.1",
        requires: Iterable[str] = (),
    ) -> Path:
        root = tmp_path / name
        info = root / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        facts = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        facts += [f"Requires-Dist: {each}" for each in requires]
        (info / "METADATA").write_text("\n".join([*facts, ""]))
        lines = [f"{key} = {value}" for key, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[tenon]", *lines, ""]))
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(str(root))
        importlib.invalidate_caches()
        return root

    yield install
    for module in set(sys.modules) - before:
        found = vars(sys.modules[module])
        if str(tmp_path) in f"{found.get('__file__')} {list(found.get('__path__', ()))}":
            del sys.modules[module]


@pytest.fixture
def simple(install: Install) -> Callable[..., Path]:
    """A distribution ``tenon-<name>`` whose plugin declares optimizers, all of them ``object`` subclasses."""

    def simple(name: str, *optimizers: str, distribution: str | None = None) -> Path:
        package = f"tenon_{(distribution or name).replace('-', '_')}"
        targets = {one: f"{package}.classes:{one}" for one in optimizers}
        return install(
            distribution or f"tenon-{name}",
            {name: f"{package}.plugin"},
            {
                f"{package}/__init__.py": "",
                f"{package}/plugin.py": (
                    f"""
                    from tenon.extend import hookimpl

                    @hookimpl
                    def tenon_optimizers():
                        return {targets!r}
                    """
                ),
                f"{package}/classes.py": "\n".join(f"class {one}: pass" for one in optimizers),
            },
        )

    return simple


@pytest.fixture
def fresh_host() -> Iterator[Callable[..., Host]]:
    """``fresh_host(disable_plugins=("tiger",))``: an unloaded host that is the process's for this test."""
    entered = []

    def make(**settings: object) -> Host:
        block = manager.use_host(Host(Config.from_environment({}, **settings)))
        entered.append(block)
        return block.__enter__()

    yield make
    for block in reversed(entered):
        block.__exit__(None, None, None)


@pytest.fixture
def empty_host() -> Iterator[Host]:
    """A loaded host without any plugin, as the process's host."""
    with manager.use_host(Host(Config(), entry_points=())) as host:
        host.load()
        yield host
