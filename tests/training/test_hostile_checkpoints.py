"""Checkpoints whose sections are not what a run wrote: one error, whatever they hold, and no access to memory."""

import json
import shutil
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.distributed.communication.objects import decode, encode
from tenon.serialize.checkpoint import read_latest, write_checkpoint

NAMES = ("--set", "model=small:Net", "--set", "data=small:load", "--set", "epochs=2")


def call(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def trained(tmp_path_factory, one_epoch):
    folder = tmp_path_factory.mktemp("hostile") / "project"
    shutil.copytree(one_epoch, folder)
    return folder, read_latest(folder / "run" / "checkpoints")[1]


@pytest.fixture
def resumed(trained, tmp_path, monkeypatch):
    """``resumed(step=5)``: how ``tenon train`` ends that resumes that checkpoint with other sections."""
    folder, good = trained
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def resumed(without=None, **sections):
        path = tmp_path / "checkpoints" / "step-5.safetensors"
        path.parent.mkdir()
        changed = {**good, **sections}
        changed.pop(without, None)
        write_checkpoint(path, changed)
        return call("train", "--resume", path, *NAMES)

    yield resumed
    sys.modules.pop("small", None)


COUNTS = {"step": 5, "epoch": 1, "position": 0, "samples_seen": 90}


@pytest.mark.parametrize(
    ("section", "content"),
    [
        ("model", 5),
        ("model", {}),
        ("model", {"layers.0.weight": 5}),
        ("optimizer", {}),
        ("optimizer", [1]),
        ("random", 5),
        ("random", {"seed": "x"}),
        ("progress", {}),
        ("progress", {**COUNTS, "step": "5"}),
        ("progress", {**COUNTS, "position": -1}),
        ("progress", {**COUNTS, "samples_seen": 1 << 200}),
        ("metrics", 5),
        ("metrics", {"loss": "much"}),
        ("plugins", 5),
    ],
)
def test_a_section_that_does_not_fit_is_named(resumed, section, content):
    done = resumed(**{section: content})

    assert done.exit_code == 2, (done.output, done.exception)
    assert f"does not fit this run: its {section!r} cannot be restored" in done.output


@pytest.mark.parametrize("section", ["model", "optimizer", "random", "progress", "metrics", "plugins"])
def test_a_section_that_is_missing_is_named(resumed, section):
    done = resumed(without=section)

    assert done.exit_code == 2 and f"it has no {section!r}" in done.output, done.output


@pytest.mark.parametrize(
    "config",
    ["5", "{", "[" * 100_000, '{"a":' * 100_000, '{"seed":' + "9" * 5000 + "}"],
    ids=["number", "torn", "lists", "tables", "digits"],
)
def test_a_configuration_that_is_none_is_refused(resumed, config):
    done = resumed(config=config)

    assert done.exit_code == 2 and "holds no configuration of a run" in done.output, done.exception


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"recipe": ["digits"]}, "recipe = ['digits']: must be the name of a recipe"),
        ({"loss": "__builtins__"}, "unknown loss '__builtins__'"),
        ({"loss": "padding"}, "unknown loss 'padding'"),
        ({"optimizer": {"name": "os:system"}}, "no optimizer 'os:system'"),
        ({"scheduler": {"name": "os:system"}}, "no scheduler 'os:system'"),
        ({"data_parallel": {"comm_hook": "os:system"}}, "no communication hook 'os:system'"),
        ({"recipe": "os:system"}, "no recipe or configuration file named 'os:system'"),
        ({"device": "os:system"}, "Invalid device string"),
        ({"include": "/etc/passwd"}, "unknown key 'include'"),
    ],
    ids=str,
)
def test_other_settings_name_no_code(resumed, trained, settings, words):
    done = resumed(config=json.dumps({**json.loads(trained[1]["config"]), **settings}))

    assert done.exit_code == 2 and words in done.output, (done.output, done.exception)


@pytest.mark.parametrize("position", [-5, 625, 100_000, 2**31 - 1, "624"])
def test_numpys_generator_reads_no_memory_behind_its_words(resumed, trained, position):
    random = dict(trained[1]["random"])
    own = decode(random["ranks"][0])
    own["numpy"][2] = position
    random["ranks"] = [encode(own)]
    before = np.random.get_state()[2]

    done = resumed(random=random)

    assert done.exit_code == 2 and "its 'random' cannot be restored" in done.output, done.output
    assert 0 <= np.random.get_state()[2] <= 624, before


@pytest.mark.parametrize("signature", ["\ud800", 5])
def test_a_signature_of_any_kind_counts_as_none(trained, resumed, signature):
    config = json.dumps({**json.loads(trained[1]["config"]), "data": "small:other"}, sort_keys=True)

    done = resumed(config=config, signature=signature)

    assert done.exit_code == 0, (done.output, done.exception)  # NAMES name the code
