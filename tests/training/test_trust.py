"""Checkpoints name code: it is imported only if the user names it, or this account wrote the checkpoint."""

import hmac
import json
import os
import pwd
import shutil
import sys
import warnings

import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.plugins import user_key
from tenon.serialize.checkpoint import read_latest, write_checkpoint

EVIL = """
from pathlib import Path
Path("imported").touch()


def load(**options):
    Path("called").touch()
    raise SystemExit
"""


PARTS = """
import functools, operator, os, subprocess, types
from small import Net

command = functools.partial(subprocess.getoutput, "touch called")
command_of_a_command = functools.partial(functools.partial(os.system), "touch called")
method = types.MethodType(subprocess.getoutput, "touch called")
call = operator.methodcaller("system", "touch called")
smaller = functools.partial(Net, dropout=0.1)


def nothing():
    pass
"""


def call(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def trained(tmp_path_factory, one_epoch):
    """A project with a finished run of its own model, and the sections of its last checkpoint."""
    folder = tmp_path_factory.mktemp("trust") / "project"
    shutil.copytree(one_epoch, folder)
    (folder / "evil.py").write_text(EVIL)
    (folder / "parts.py").write_text(PARTS)
    return folder, read_latest(folder / "run" / "checkpoints")[1]


@pytest.fixture
def here(trained, monkeypatch):
    folder, _ = trained
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    for name in ("small", "evil", "parts"):
        sys.modules.pop(name, None)
    for name in ("imported", "called"):
        (folder / name).unlink(missing_ok=True)


@pytest.fixture
def saved(trained, tmp_path):
    """``saved(data="evil:load")``: that checkpoint with other settings; its signature stays."""

    def saved(signature=None, **settings):
        sections = dict(trained[1])
        sections["config"] = json.dumps({**json.loads(sections["config"]), **settings}, sort_keys=True)
        if signature is not None:
            sections["signature"] = signature
        path = tmp_path / "checkpoints" / "step-5.safetensors"
        path.parent.mkdir(exist_ok=True)
        write_checkpoint(path, sections)
        return path

    return saved


@pytest.mark.parametrize(
    "command",
    [
        ("train", "--resume"),
        ("train", "my.toml", "--resume"),
        ("compress", "--quantize", "int8-dynamic"),
        ("export", "-o", "out"),
    ],
    ids=" ".join,
)
def test_a_checkpoint_cannot_name_code_by_itself(here, saved, command):
    path = saved(data="evil:load")

    done = call(*command, path)

    assert done.exit_code == 2, done.output
    others = "" if "my.toml" in command else "model = 'small:Net', "
    assert f"would import and call {others}data = 'evil:load'" in done.output and "--trust" in done.output
    assert not (here / "imported").exists() and not (here / "out").exists()


def test_trust_shows_what_it_imports(here, saved):
    done = call("train", "--resume", saved(data="evil:load"), "--trust")

    assert (here / "called").exists()
    assert "--trust: imports and calls model = 'small:Net', data = 'evil:load'" in done.output


@pytest.mark.parametrize(
    "arguments",
    [("my.toml",), ("--set", "model=small:Net", "--set", "data=small:load"), ()],
    ids=["named by the file", "named by --set", "signed"],
)
def test_code_that_the_user_has_named_is_imported(here, saved, arguments):
    path = saved(**({"seed": 0} if arguments == () else {"seed": 1}))

    done = call("train", *arguments, "--resume", path, "--show-config")

    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["model"] == "small:Net"


def test_a_signature_covers_options_too(here, saved):
    path = saved(data_options={"train": 40})

    assert call("train", "--resume", path, "--show-config").exit_code == 2


@pytest.mark.parametrize("signature", ["", "ä", "0" * 64])
def test_a_wrong_signature_counts_as_none(here, saved, signature):
    path = saved(signature, seed=0)

    done = call("train", "--resume", path, "--show-config")

    assert done.exit_code == 2 and "not written by this account" in done.output


def test_what_compress_and_export_replace_is_not_asked_about(here, saved):
    done = call("export", saved(data="evil:load"), "-o", "out", "--data", "small:load")

    assert "model = 'small:Net'" in done.output and "evil" not in done.output


@pytest.mark.parametrize(
    ("key", "name", "reason"),
    [
        ("loss", "os:system", "standard library"),
        ("data", "subprocess:getoutput", "standard library"),
        ("data", "small:python.seed", "standard library"),  # a standard module that another one has imported
        ("model", "small:load", None),
        ("model", "small:Noisy", "a class, Noisy; it must be a tenon.nn.Module"),
        ("model", "numpy:frombuffer", "must be a tenon.nn.Module"),
        ("loss", "small:Net", "a class, Net; it must be a function"),
        ("data", "small:np", "it must be a function that returns Splits"),
        ("data", "parts:command", "standard library"),
        ("data", "parts:command_of_a_command", "standard library"),
        ("data", "parts:method", "standard library"),
        ("data", "parts:call", "standard library"),
        ("data", "parts:subprocess.os.system", "standard library"),
        ("data", "tenon.training.recipe:importlib.import_module", "standard library"),
        ("data", "parts:nothing", "returned NoneType; expected tenon.data.Splits"),
    ],
)
def test_names_must_be_what_they_claim(here, key, name, reason):
    done = call("train", "my.toml", "--set", f"{key}={name}", "--run", "other")

    assert done.exit_code == 2, done.output
    assert f"{key} = '{name}'" in done.output
    assert reason is None or reason in done.output.replace("\n", " ")
    assert not (here / "called").exists()


def test_a_model_may_be_a_partial_of_the_users_own_class(here):
    done = call("train", "my.toml", "--set", "model=parts:smaller", "--set", "epochs=0", "--run", "partial")

    assert done.exit_code == 0, done.output


def test_a_file_without_a_configuration_is_refused(here, tmp_path):
    path = tmp_path / "step-1.safetensors"
    write_checkpoint(path, {"model": {}, "step": 1})

    done = call("train", "--resume", path)

    assert done.exit_code == 2 and "holds no configuration of a run" in done.output


@pytest.mark.skipif(os.getuid() == 0, reason="root opens any file")
def test_a_key_that_cannot_be_kept_signs_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o500)

    assert user_key.sign("text") == ""
    assert not user_key.is_signed("text", "")


def test_an_account_without_a_home_signs_nothing(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: (_ for _ in ()).throw(KeyError(number)))

    assert user_key.sign("text") == ""
    assert not user_key.is_signed("text", "0" * 64)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o640, 0o604])
def test_a_key_that_others_can_read_or_write_signs_nothing(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    signature = user_key.sign("text")
    assert len(signature) == 64 and user_key.is_signed("text", signature)

    assert not user_key.is_signed("other text", signature)
    user_key.path().chmod(mode)
    assert not user_key.is_signed("text", signature) and user_key.sign("text") == ""


def test_the_key_is_created_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    first = user_key.sign("text")

    assert user_key.sign("text") == first
    assert os.listdir(tmp_path / "tenon") == ["key"]
    assert user_key.path().stat().st_mode & 0o777 == 0o600


def in_child(function):
    """What ``function`` returns in a forked process: two digests."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the child runs nothing that other threads' locks could stop
        number = os.fork()
    if not number:
        try:
            os.write(writing, b"".join(function()))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(number, 0)
    return told[:32], told[32:]


def test_the_key_is_read_once_until_it_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    first = user_key.digest(b"text", create=True)
    opened = []

    def counted(*args):
        opened.append(args)
        return open(*args)

    monkeypatch.setattr(user_key, "open", counted, raising=False)

    assert [user_key.digest(b"text") for _ in range(10)] == [first] * 10
    assert user_key.digest(b"text") != user_key.digest(b"other")
    assert not opened
    other = tmp_path / "other"
    other.write_bytes(bytes(32))
    other.chmod(0o600)
    other.replace(user_key.path())

    assert [user_key.digest(b"text") for _ in range(3)] == [hmac.digest(bytes(32), b"text", "sha256")] * 3
    assert len(opened) == 1
    user_key.path().unlink()
    assert user_key.digest(b"text") is None


def test_a_forked_child_has_the_key_and_notices_another_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    first = user_key.digest(b"text", create=True)
    user_key.digest(b"text")

    def child():
        before = user_key.digest(b"text")
        user_key.path().unlink()
        return before, user_key.digest(b"text", create=True)

    before, after = in_child(child)

    assert before == first and after not in (None, first)
    assert user_key.digest(b"text") == after
