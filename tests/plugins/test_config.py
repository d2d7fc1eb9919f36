"""Settings from the environment and from keyword arguments."""

from __future__ import annotations

import pickle

import pytest

from tenon.config import Config, environment
from tenon.errors import ConfigError


def test_nothing_set_leaves_every_decision_open():
    assert Config.from_environment({}) == Config()
    assert Config().plugins is None and Config().device is None


def test_variables_become_settings():
    config = Config.from_environment(
        {
            "TENON_DISABLE_PLUGINS": " a, b ,",
            "TENON_PLUGINS": "c",
            "TENON_TRACE_PLUGINS": "yes",
            "TENON_DEVICE": "cuda:1",
            "TENON_COMMUNICATOR": " mpi ",
            "HOME": "/root",
        }
    )

    assert config.disable_plugins == ("a", "b")
    assert config.plugins == ("c",)
    assert config.trace_plugins is True
    assert (config.device, config.communicator, config.settings) == ("cuda:1", "mpi", ())


def test_empty_variable_means_not_set():
    config = Config.from_environment({"TENON_PLUGINS": "", "TENON_DEVICE": " ", "TENON_TRACE_PLUGINS": ""})

    assert config == Config()


def test_keyword_arguments_win_over_the_environment():
    config = Config.from_environment({"TENON_DEVICE": "cuda"}, device="cpu")

    assert config.device == "cpu"


def test_switch_that_is_neither_on_nor_off_is_refused():
    with pytest.raises(ConfigError, match="TENON_TRACE_PLUGINS='maybe' is neither on nor off"):
        Config.from_environment({"TENON_TRACE_PLUGINS": "maybe"})


def test_unknown_keyword_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"no setting 'devise'\. Did you mean 'device'\?"):
        Config.from_environment({}, devise="cpu")


def test_other_variables_are_kept_for_plugins():
    config = Config.from_environment({"TENON_TIGER_BETA": "0.5"})

    assert config.setting("tiger_beta") == config.setting("TENON_TIGER_BETA") == "0.5"
    assert config.setting("tiger_gamma") is None and config.setting("tiger_gamma", "1") == "1"


def test_config_is_frozen_hashable_and_picklable():
    config = Config.from_environment({"TENON_TIGER_BETA": "0.5"})

    with pytest.raises(AttributeError):
        config.device = "cpu"
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(config._replace())


def test_environment_reads_variables_of_others(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.delenv("PMI_SIZE", raising=False)

    assert environment("PMI_RANK") == "3"
    assert environment("PMI_SIZE", "1") == "1"
