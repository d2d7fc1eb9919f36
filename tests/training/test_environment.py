"""`environment.json` of a run, ranks that have other plugins, and runs that go on with other ones."""

import json

import pytest

from tenon.errors import ConfigError, PluginWarning
from tenon.training import environment

OWN = {
    "versions": {"tenon-platform": "1.0"},
    "plugins": {"tiger": {"distribution": "tenon-tiger", "version": "0.2"}},
    "disabled_plugins": [],
}
OTHER = {**OWN, "plugins": {"tiger": {"distribution": "tenon-tiger", "version": "0.3"}}}
NONE = {**OWN, "plugins": {}}
BY_HAND = {**OWN, "plugins": {**OWN["plugins"], "mine": {"distribution": None, "version": None}}}
NEWER = {**OWN, "versions": {"tenon-platform": "1.1"}}


class Ranks:
    """A communicator of ranks that have ``environments``."""

    def __init__(self, *environments):
        self.environments = environments

    def all_gather_bytes(self, payload, *, name):
        from tenon.distributed.communication.objects import encode

        return [encode(json.dumps(each)) for each in self.environments]


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (OTHER, "rank 1 has plugin 'tiger' (tenon-tiger 0.3), rank 0 has 'tiger' (tenon-tiger 0.2)"),
        (NONE, "rank 1 lacks plugin 'tiger' (tenon-tiger 0.2)"),
        (BY_HAND, "rank 1 has plugin 'mine' (registered by hand) in addition"),
        (NEWER, "rank 1 has tenon 1.1, rank 0 has 1.0"),
    ],
)
def test_differences_between_ranks_are_named(other, line):
    with pytest.raises(ConfigError) as caught:
        environment.agree(Ranks(OWN, other))
    assert f"ranks have different plugins: {line}. Install the same on every host" in str(caught.value)
    environment.agree(Ranks(OWN, OWN))


def test_a_run_that_goes_on_with_other_plugins_warns_once(tmp_path, recwarn):
    environment.record(tmp_path, OWN)
    environment.record(tmp_path, OWN)
    assert not recwarn
    with pytest.warns(PluginWarning, match=r"it has plugin 'tiger' \(tenon-tiger 0.3\), it had 'tiger'"):
        environment.record(tmp_path, OTHER)
    environment.record(tmp_path, OTHER)
    assert json.loads((tmp_path / environment.FILE).read_text()) == OTHER


@pytest.mark.parametrize("text", ["", "3", "[]", "{}", '{"versions": 1, "plugins": 2}', "[" * 100_000, "\0"])
def test_files_that_are_not_what_was_written_are_replaced(tmp_path, text, recwarn):
    (tmp_path / environment.FILE).write_text(text)
    environment.record(tmp_path, OWN)
    assert not recwarn and json.loads((tmp_path / environment.FILE).read_text()) == OWN


def test_a_long_name_in_a_foreign_file_is_shortened(tmp_path):
    hostile = {**OWN, "plugins": {"x" * 500_000: {"distribution": "y", "version": "1"}}}
    (tmp_path / environment.FILE).write_text(json.dumps(hostile))
    with pytest.warns(PluginWarning) as caught:
        environment.record(tmp_path, OWN)
    assert len(str(caught[0].message)) < 2500


def test_text_of_a_foreign_file_reaches_the_terminal_without_control_characters(tmp_path):
    hostile = {**OWN, "plugins": {"\x1b[2Jx": {"distribution": "y", "version": "1"}}}
    (tmp_path / environment.FILE).write_text(json.dumps(hostile))
    with pytest.warns(PluginWarning, match=r"lacks plugin '\\x1b\[2Jx'"):
        environment.record(tmp_path, OWN)


@pytest.mark.slow
def test_a_run_records_its_plugins_and_refuses_a_rank_without_one(project):
    code = "import os\nif os.environ.get('PMI_RANK') == '1':\n    raise RuntimeError('no license')\n"
    project.install("mine", code)
    project.environment = {**project.environment, "TENON_DISABLE_PLUGINS": "tenon_special"}
    run = project.train("my.toml", "--set", "epochs=1")
    recorded = json.loads((run.folder / "environment.json").read_text())
    assert recorded["plugins"]["tenon_mpi"]["distribution"] == "tenon-platform"
    assert recorded["plugins"]["mine"] == {"distribution": "tenon-mine", "version": "1.5"}
    assert recorded["disabled_plugins"] == ["tenon_special"] and "numpy" in recorded["versions"]
    refused = project.train("my.toml", "--set", "epochs=1", ranks=2)
    assert refused.code == 2 and refused.folder is None
    assert refused.err.count("rank 1 lacks plugin 'mine' (tenon-mine 1.5)") == 1, refused.err
