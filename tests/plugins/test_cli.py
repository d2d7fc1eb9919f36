"""The command line: lists, reports of failures, and commands of plugins."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.config import Config
from tenon.extend import CommandTarget, hookimpl
from tenon.plugins import diagnose
from tenon.plugins.manager import Host, use_host


def _run(*arguments: str, width: int = 160):
    return CliRunner().invoke(main, list(arguments), env={"COLUMNS": str(width)})


@pytest.fixture
def broken(install, fresh_host):
    install("tenon-broken", {"broken": "tenon_broken"}, {"tenon_broken.py": "import nobody_has_this"})
    return fresh_host()


def test_plugins_lists_name_version_distribution_and_what_each_adds(simple, fresh_host):
    simple("tiger", "Tiger", "Leo")
    fresh_host()

    result = _run("plugins")

    assert result.exit_code == 0
    row = next(line for line in result.output.splitlines() if "tenon-tiger" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "tiger",
        "0.1",
        "tenon-tiger",
        "optimizers: Leo, Tiger",
    ]
    assert "backends: cpu" in result.output


def test_plugins_shows_event_hooks_and_plugins_registered_by_hand(empty_host):
    class Reports:
        @hookimpl
        def tenon_report(self): ...

    empty_host.register(Reports(), "reports")

    result = _run("plugins")

    assert "by hand" in result.output and "hooks: tenon_report" in result.output


def test_plugins_shows_failures_but_succeeds(broken):
    result = _run("plugins", "--short")

    assert result.exit_code == 0
    assert "failed (import) 'broken' (tenon-broken 0.1): ModuleNotFoundError" in result.output
    assert "Traceback" not in result.output


def test_plugins_shows_the_traceback_of_a_failure(broken):
    result = _run("plugins")

    assert "Traceback (most recent call last)" in result.output
    assert "import nobody_has_this" in result.output


def test_plugins_check_fails_on_a_failure(broken):
    assert _run("plugins", "--check").exit_code == 1


def test_plugins_check_fails_on_a_clash(simple, fresh_host):
    simple("tiger", "Tiger")
    simple("wild", "Tiger")
    fresh_host()

    result = _run("plugins", "--check")

    assert result.exit_code == 1
    assert "clash optimizer 'Tiger' is declared by plugin 'tiger'" in result.output


def test_plugins_check_passes_where_all_is_well(simple, fresh_host):
    simple("tiger", "Tiger")
    fresh_host(plugins=("tiger",))

    result = _run("plugins", "--check", "--resolve")

    assert result.exit_code == 0, result.output


def test_plugins_resolve_reports_targets_that_cannot_be_imported(empty_host):
    class Declares:
        @hookimpl
        def tenon_optimizers(self):
            return {"Tiger": "nowhere:Tiger"}

    empty_host.register(Declares(), "cats")

    assert _run("plugins", "--check").exit_code == 0
    result = _run("plugins", "--check", "--resolve")
    assert result.exit_code == 1
    assert "broken target optimizer 'Tiger'" in result.output and "ModuleNotFoundError" in result.output


def test_plugins_marks_disabled_ones(simple, fresh_host):
    simple("tiger", "Tiger")
    fresh_host(disable_plugins=("tiger",))

    row = next(line for line in _run("plugins").output.splitlines() if "tiger" in line)

    assert "disabled" in row


def test_doctor_prints_every_section(fresh_host):
    fresh_host()

    result = _run("doctor")

    assert result.exit_code == 0
    for expected in ("python", "platform", "numpy", "BLAS", "backends", "cpu", "cuda", "mpi4py", "plugins"):
        assert expected in result.output


def test_doctor_shows_why_a_plugin_failed(broken):
    assert "nobody_has_this" in _run("doctor").output


@pytest.mark.slow
def test_doctor_shows_availability_and_reason_of_backends(empty_host):
    class Absent:
        def is_available(self):
            return False, "no such card in this machine"

    class Declares:
        @hookimpl
        def tenon_backends(self):
            return {"warp": Absent, "rot": "nowhere:Rot"}

    empty_host.register(Declares(), "odd")

    rows = dict(dict(diagnose.examine(empty_host))["backends"])

    assert rows["warp"] == "not available: no such card in this machine"
    assert rows["rot"].startswith("broken: PluginTargetError")


def test_doctor_takes_sections_from_plugins_and_survives_their_errors(empty_host, monkeypatch):
    monkeypatch.setattr(diagnose, "_sections", {})

    class Adds:
        @hookimpl
        def tenon_configure(self, config):
            @diagnose.doctor_section("tiger")
            def tiger():
                yield "mane", "long"
                raise OSError("claw missing")

    empty_host.register(Adds(), "tiger")

    rows = dict(diagnose.examine(empty_host))["tiger"]

    assert rows == [("mane", "long"), ("failed", "OSError: claw missing")]


@pytest.mark.slow
def test_doctor_points_out_a_misspelt_variable(monkeypatch):
    monkeypatch.setenv("TENON_DISABLE_PLUGIN", "tiger")
    monkeypatch.setenv("TENON_TIGER_BETA", "0.5")
    host = Host(Config.from_environment(), entry_points=())
    host.load()

    rows = dict(dict(diagnose.examine(host))["environment"])

    assert "did you mean TENON_DISABLE_PLUGINS?" in rows["TENON_DISABLE_PLUGIN"]
    assert rows["TENON_TIGER_BETA"] == "0.5"


def test_command_of_a_plugin_runs(empty_host):
    @click.command()
    @click.argument("name")
    def greet(name):
        click.echo(f"hello {name}")

    empty_host.register(_offering(greet=greet), "greeter")

    assert _run("greet", "Ann").output == "hello Ann\n"
    assert "From plugin greeter." in _run("--help").output


def test_help_shows_the_summary_of_a_command_that_it_does_not_import(empty_host):
    target = CommandTarget("nowhere:command", summary="Greet somebody.")
    empty_host.register(_offering(greet=target), "greeter")

    assert re.search(r"greet +Greet somebody\.", _run("--help").output)


def test_help_imports_no_command(empty_host):
    empty_host.register(_offering(broken="nowhere:command"), "greeter")

    result = _run("--help")

    assert result.exit_code == 0
    assert "broken" in result.output and "train" in result.output


def test_broken_command_says_why_and_leaves_the_others(empty_host):
    empty_host.register(_offering(broken="nowhere:command", wrong="json:dumps"), "greeter")

    result = _run("broken")
    assert result.exit_code == 1 and "nowhere:command" in result.output
    assert "not a click.Command" in _run("wrong").output
    assert _run("plugins").exit_code == 0


def test_built_in_command_is_not_replaced_by_a_plugin(empty_host):
    empty_host.register(_offering(plugins="nowhere:command"), "greedy")

    assert (
        "the command 'plugins' of plugin 'greedy' (registered by hand) cannot run" in _run("plugins").output
    )


def test_a_command_that_a_built_in_one_hides_is_pointed_out(empty_host):
    empty_host.register(_offering(train="nowhere:command"), "greedy")

    result = _run("train", "--help")

    assert result.exit_code == 0 and "Train a recipe" in result.output
    assert "Warning: the command 'train' of plugin 'greedy'" in result.stderr


def test_unknown_command_suggests_a_near_one(empty_host):
    result = _run("trian")

    assert result.exit_code == 2
    assert "Did you mean 'train'?" in result.output


def test_help_is_quick_to_import():
    code = """
import sys
from tenon.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
heavy = {"rich", "numba", "mpi4py", "cupy", "tensorboardX", "pydantic", "tenon.training.command"}
print(sorted(heavy & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[-1] == "[]"
    assert "Train a recipe" in result.stdout


def test_version_is_that_of_the_distribution():
    from importlib.metadata import version

    with use_host(Host(Config(), entry_points=())):
        assert _run("--version").output == f"tenon, version {version('tenon-platform')}\n"


def _offering(**commands):
    class Offers:
        @hookimpl
        def tenon_commands(self):
            return commands

    return Offers()


def test_ctrl_c_in_a_command_leaves_with_the_status_of_an_interrupt(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(diagnose, "plugin_report", interrupted)

    result = _run("plugins")

    assert result.exit_code == 130
    assert "Interrupted." in result.output
