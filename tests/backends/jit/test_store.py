"""Machine code is loaded only if this account wrote it, from folders that nobody else can write to."""

import ast
import os
from pathlib import Path

import numpy as np
import pytest

from tenon.plugins import user_key
from tenon_cpu.jit.compiler import private_folders
from tenon_cpu.jit.compiler.store import Store

needs_users = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")


@pytest.fixture(autouse=True)
def _own_key(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "cache" / "kernels" / "machine")
    store.write("key", b"body")
    return store


def test_what_this_account_wrote_is_read(store):
    assert Store(store.folder).read("key") == b"body"
    assert user_key.path().stat().st_mode & 0o077 == 0


def test_folders_are_made_for_this_account_alone(store):
    assert [folder.stat().st_mode & 0o777 for folder in (store.folder, *store.folder.parents[:2])] == [
        0o700
    ] * 3


@needs_users
@pytest.mark.parametrize("mode", [0o770, 0o777])
@pytest.mark.parametrize("above", [0, 1, 2])
def test_nothing_is_read_from_a_folder_that_others_may_write_to_or_replace(store, above, mode, monkeypatch):
    monkeypatch.setattr(private_folders, "_is_own_group", lambda group: False)
    [store.folder, *store.folder.parents][above].chmod(mode)

    with pytest.warns(UserWarning, match=r"are not used: .* can be written by .*TENON_CACHE"):
        opened = Store(store.folder)

    assert opened.read("key") is None
    opened.write("other", b"body")
    assert not (store.folder / "other.signed").exists()


def test_a_group_of_the_users_own_may_write(store, monkeypatch):
    monkeypatch.setattr(private_folders, "_is_own_group", lambda group: True)
    store.folder.chmod(0o770)

    assert Store(store.folder).read("key") == b"body"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_below_one_of_another_user_is_not_used(store):
    os.chown(store.folder.parent, 65534, -1)

    with pytest.warns(UserWarning, match="kernels belongs to another user"):
        assert Store(store.folder).read("key") is None


def test_an_entry_that_another_key_signed_is_refused_and_replaced(store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    opened = Store(store.folder)
    user_key.sign("")  # makes the other key

    with pytest.warns(UserWarning, match=r"did not sign key\.signed"):
        assert opened.read("key") is None
    assert opened.read("key") is None  # said once
    opened.write("key", b"body")
    assert opened.read("key") == b"body"


def test_an_unsigned_entry_is_refused_where_there_is_a_key(store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null")  # no key can be kept
    store.write("planted", b"body")
    assert store.read("planted") == b"body"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    with pytest.warns(UserWarning, match="did not sign"):
        assert store.read("planted") is None


def test_entries_cannot_take_each_others_place(store):
    os.replace(store.folder / "key.signed", store.folder / "other.signed")

    assert store.read("other") is None


def test_a_changed_body_is_not_read_although_its_digest_was_made_again(store):
    from tenon_cpu.jit.compiler import store as module

    path = store.folder / "key.signed"
    content = path.read_bytes()
    start = len(module._MAGIC)
    path.write_bytes(
        content[:start] + module._digest("key", b"evil") + content[start + 32 : start + 64] + b"evil"
    )

    with pytest.warns(UserWarning, match="did not sign"):
        assert store.read("key") is None


def test_a_link_that_is_pointed_elsewhere_after_the_check_is_not_followed(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "theirs").mkdir(mode=0o777)
    (tmp_path / "link").symlink_to("mine")
    opened = Store(tmp_path / "link")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("theirs")

    opened.write("key", b"body")

    assert opened.read("key") == b"body"
    assert os.listdir(tmp_path / "theirs") == [] and "key.signed" in os.listdir(tmp_path / "mine")


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_sums_of_mpi_are_not_kept_in_numbas_own_cache(size):
    pytest.importorskip("numba")
    from tenon_mpi import kernels

    assert type(kernels.find(size, np.dtype(np.float32))._cache).__name__ == "NullCache"


def test_no_other_function_is_kept_in_numbas_own_cache():
    root = Path(__file__).parents[3]
    wrong = [
        f"{path.relative_to(root)}: {ast.unparse(call)}"
        for top in ("platform", "plugins", "backends")
        for path in (root / top).rglob("*.py")
        if "numba" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and any(keyword.arg == "cache" for keyword in call.keywords)
    ]

    assert wrong == []
