"""The code of the plugin guide, run as it is printed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.config import Config
from tenon.plugins import diagnose, hookspecs, registry
from tenon.plugins.manager import Host

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
FILES = dict(
    re.findall(r"^```\w+\n# (\S+)\n(.*?)^```", (GUIDE / "plugins.md").read_text("utf-8"), re.M | re.S)
)
EXAMPLES = re.findall(r"^```python\n(.*?)^```", (GUIDE / "hooks.md").read_text("utf-8"), re.M | re.S)


@pytest.fixture
def tiger(install, fresh_host):
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    modules = {path: text for path, text in FILES.items() if path.startswith("tenon_tiger/")}
    install(project["name"], project["entry-points"]["tenon"], modules, version=project["version"])
    return fresh_host()


def test_schedule_of_the_guide_passes_its_suite(install, fresh_host):
    modules = {path: text for path, text in FILES.items() if path.startswith("tenon_inverse/")}
    install("tenon-inverse", {"inverse": "tenon_inverse.plugin"}, modules, version="0.1")
    host = fresh_host()
    namespace = {}
    exec(compile(FILES["tests/test_schedule.py"], "plugins.md", "exec"), namespace)
    suite = namespace["TestInverseSqrt"]()

    assert host.failures == ()
    for name in (each for each in dir(suite) if each.startswith("test_")):
        arguments = (5,) if name == "test_a_restored_schedule_goes_on" else ()
        getattr(suite, name)(*arguments)


def test_analysis_of_the_guide_runs():
    exec(compile(FILES["analysis.py"], "plugins.md", "exec"), {})


def test_optimizer_of_the_guide_is_found_with_its_distribution(tiger):
    found = registry.component("optimizers", "Tiger")

    assert str(found.plugin) == "'tiger' (tenon-tiger 0.1)"
    assert found.target == "tenon_tiger.tiger:Tiger"


def test_optimizer_of_the_guide_follows_its_formula(tiger):
    import tenon
    from tenon import nn, optim

    start = np.array([1.0, -2.0, 3.0], dtype=np.float32)
    gradients = [np.array([0.5, -1.0, 0.0], np.float32), np.array([-3.0, 1.0, 2.0], np.float32)]
    parameter = nn.Parameter(tenon.tensor(start.tolist()))
    optimizer = optim.Tiger([parameter], lr=0.1)

    p, m = start.copy(), np.zeros(3, np.float32)
    for gradient in gradients:
        parameter.grad = tenon.tensor(gradient.tolist())
        optimizer.step()
        m = 0.965 * m + (1 - 0.965) * gradient
        p -= 0.1 * np.sign(m)

    np.testing.assert_allclose(parameter.detach().numpy(), p, rtol=1e-6)


def test_plugin_registered_by_hand_as_in_the_guide(empty_host):
    space = {"Tiger": object}

    exec(FILES["notebook"].split("unregister(")[0] + "\n", space)

    assert registry.resolve("optimizers", "Tiger") is object


def test_settings_of_the_guide_reach_the_doctor(monkeypatch):
    monkeypatch.setattr(diagnose, "_sections", {})
    space: dict[str, object] = {"__name__": "settings"}
    exec(FILES["tenon_tiger/settings.py"], space)
    host = Host(Config(settings=(("TENON_TIGER_BETA", "0.5"),)), entry_points=())
    host.load()

    plugin = type("Plugin", (), {"tenon_configure": staticmethod(space["tenon_configure"])})()
    host.register(plugin, "tiger")

    assert dict(diagnose.examine(host))["tiger"] == [("beta", "0.5")]


def test_command_of_the_guide_runs(install, fresh_host):
    command = "import click\n@click.command()\ndef greet():\n    click.echo('hello')\n"
    files = {"tenon_greet/plugin.py": FILES["tenon_greet/plugin.py"], "tenon_greet/command.py": command}
    install("tenon-greet", {"greet": "tenon_greet.plugin"}, files)
    fresh_host(plugins=("greet",))

    assert CliRunner().invoke(main, ["greet"]).output == "hello\n"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.search(r"tenon_\w+", text).group())
def test_every_example_of_the_hook_page_is_an_implementation_the_host_accepts(empty_host, example):
    from tenon.extend import hookimpl

    space = {"hookimpl": hookimpl}
    exec(example, space)
    functions = {name: value for name, value in space.items() if name.startswith("tenon_")}

    assert len(functions) == 1 and set(functions) <= set(vars(hookspecs))
    plugin = type("Plugin", (), {name: staticmethod(value) for name, value in functions.items()})()
    if "tenon_configure" not in functions:
        empty_host.register(plugin, "example")
        assert empty_host.failures == ()
