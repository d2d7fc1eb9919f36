"""The command ``tenon``, with the commands of plugins.

Commands are imported when they run, so that ``tenon --help`` is fast and a broken command does not affect the
others. Next: ``training/command.py`` for ``train``, ``plugins/diagnose.py`` for ``plugins`` and ``doctor``.
"""

from __future__ import annotations

import gc
import importlib
import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from tenon.distributed.processes.launcher import launched
from tenon.errors import PluginError, PluginNotFoundError, PluginWarning
from tenon.plugins.components import Component
from tenon.plugins.declarations import CommandTarget

if TYPE_CHECKING:
    from rich.console import Console

    from tenon.plugins.diagnose import PluginReport
    from tenon.plugins.manager import Host

_LAZY = {
    "export": (
        "tenon.training.export_command:export",
        "Write the model of a run for other machines: C, NumPy, ONNX.",
    ),
    "launch": (
        "tenon.training.launching.command:launch",
        "Start ranks, and start them again from the last checkpoint if they fail.",
    ),
    "train": (
        "tenon.training.command:train",
        "Train a recipe or your own model, alone or under mpirun.",
    ),
    "verify": (
        "tenon.training.export_command:verify",
        "Run an exported bundle on the vectors that its model computed.",
    ),
}


class _Commands(click.Group):
    """Built-in commands, those imported at their first use, then those of plugins."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; exit with status 130 after Ctrl-C, as shells do."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(130)
        except SystemExit as error:
            if error.code and launched() is not None:
                # It ends the job once it is finalized; after a plugin's hook, a cycle of pluggy's has it.
                error.__traceback__ = None
                gc.collect()
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, including those of plugins; imports no command."""
        return sorted({*super().list_commands(ctx), *_LAZY, *_quiet_host().registry.names("commands")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None if there is none of this name."""
        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None:
            return built_in
        if cmd_name in _LAZY:
            from tenon.plugins.diagnose import shadowed

            for error in shadowed(_quiet_host(), (cmd_name,)):
                click.echo(f"Warning: {error}", err=True)
            module, _, attribute = _LAZY[cmd_name][0].partition(":")
            return _command(cmd_name, getattr(importlib.import_module(module), attribute))
        try:
            return _command(cmd_name, _quiet_host().registry.resolve("commands", cmd_name))
        except PluginNotFoundError:
            return None
        except PluginError as error:
            raise click.ClickException(str(error)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """click's method, with similar names in the error for an unknown command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not error.message.startswith("No such command"):
                raise
            from tenon.plugins.components import suggestion

            near = suggestion(args[0], self.list_commands(ctx))
            raise click.UsageError(f"No such command {args[0]!r}. {near}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of ``--help`` without importing any command."""
        rows = []
        registry = _quiet_host().registry
        for name in self.list_commands(ctx):
            command = super().get_command(ctx, name)
            if command is not None:
                rows.append((name, command.get_short_help_str(formatter.width)))
            elif name in _LAZY:
                rows.append((name, _LAZY[name][1]))
            else:
                components = [each for each in registry.components("commands") if each.name == name]
                rows.append((name, " Or: ".join(map(_summary, components))))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _summary(command: Component) -> str:
    """The help line of a plugin's command: that of its ``CommandTarget``, or the plugin's name."""
    if isinstance(command.target, CommandTarget):
        return command.target.summary
    return f"From plugin {command.plugin.name}."


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tenon-platform", prog_name="tenon")
def main() -> None:
    """Train models on one process or many; plugins provide what names refer to."""


@main.command()
@click.option("--short", is_flag=True, help="Leave out the tracebacks of failures.")
@click.option("--resolve", is_flag=True, help="Import every target and report those that fail.")
@click.option("--check", is_flag=True, help="Exit with code 1 if anything failed or clashes.")
def plugins(short: bool, resolve: bool, check: bool) -> None:
    """List plugins, what each adds, and what failed."""
    from tenon.plugins.diagnose import broken_targets, plugin_report

    host = _quiet_host()
    with _plugin_warnings_ignored():
        report = plugin_report(host, {*main.commands, *_LAZY})
        broken = broken_targets(host) if resolve else []
    console = _console()
    _print_plugins(console, report, short=short)
    for error in broken:
        console.print(f"[red]broken target[/] {_plain(error)}", soft_wrap=True)
        if not short:
            console.print(_traceback(error), markup=False, highlight=False, soft_wrap=True)
    if check and (broken or not report.healthy):
        sys.exit(1)


@main.group(invoke_without_command=True)
@click.pass_context
def doctor(context: click.Context) -> None:
    """Examine this installation: libraries, backends, MPI, plugins. `kernels` shows those of an op."""
    from tenon.plugins.diagnose import examine

    if context.invoked_subcommand is not None:
        return
    console = _console()
    host = _quiet_host()
    with _plugin_warnings_ignored():
        sections = examine(host)
    for title, rows in sections:
        _print_rows(console, title, rows)


@doctor.command()
@click.argument("op", required=False)
@click.option("--shape", "shapes", multiple=True, help="64x128, 64:int64, 128x64.T, =0.5, none.")
@click.option("--dtype", default="float32", show_default=True, help="The dtype of shapes that name none.")
@click.option("--attr", "attrs", multiple=True, help="An argument that is not an array, such as axis=1.")
@click.option("--device", default="cpu", show_default=True)
def kernels(op: str | None, shapes: tuple[str, ...], dtype: str, attrs: tuple[str, ...], device: str) -> None:
    """Print the kernels of OP in the order in which they are tried.

    With a shape for each input, print which kernel computes the call, and why those before it do not. Without
    OP, list the ops that have kernels besides the reference.
    """
    from tenon.device import Device
    from tenon.errors import TenonError
    from tenon.kernels.backend import backend_for
    from tenon.profiler.observe.kernel_report import chosen, kernel_counts, kernel_rows

    console = _console()
    try:
        backend = backend_for(Device(device))
        if op is None:
            _print_rows(console, f"ops with kernels on {device}", kernel_counts(backend))
        elif shapes:
            _print_rows(console, f"{op} on {device}", chosen(backend, op, shapes, dtype, attrs))
        else:
            _print_rows(console, f"{op} on {device}", kernel_rows(backend, op))
    except TenonError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with code 1 if a file is out of date.")
@click.option("--all", "third_party", is_flag=True, help="Add the names of all plugins installed here.")
def stubs(check: bool, third_party: bool) -> None:
    """Write type stubs of the names that plugins add.

    Those of second module names are written, too. Without --all only plugins that come with tenon count.
    """
    from tenon.compat.stubs import STUB_PACKAGE, expected_stubs

    expected = expected_stubs(_quiet_host().registry, third_party=third_party)
    unknown = {path for path in STUB_PACKAGE.rglob("*.pyi") if path not in expected}
    outdated = [p for p, text in expected.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for path in (*sorted(unknown), *outdated):
        if check:
            click.echo(f"out of date: {path}; run `tenon stubs`", err=True)
        elif path in unknown:
            path.unlink()
            click.echo(f"removed {path}")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(expected[path], encoding="utf-8")
            click.echo(f"wrote {path}")
    if check and (unknown or outdated):
        sys.exit(1)


def _print_rows(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for name, value in rows:
        table.add_row(_plain(name), _plain(value))
    console.print(f"[bold]{_plain(title)}[/]")
    console.print(table)


def _print_plugins(console: Console, report: PluginReport, *, short: bool) -> None:
    from rich.table import Table

    table = Table("plugin", "version", "distribution", "adds", show_lines=True)
    for entry in report.entries:
        adds = [f"{kind}: {', '.join(names)}" for kind, names in entry.components.items()]
        if entry.hooks:
            adds.append(f"hooks: {', '.join(entry.hooks)}")
        info = entry.info
        cells = (
            info.name,
            info.version or "-",
            info.distribution or "by hand",
            "\n".join(adds) or "nothing yet",
        )
        table.add_row(*map(_plain, cells))
    for name in report.disabled:
        table.add_row(_plain(name), "-", "-", "disabled", style="dim")
    console.print(table)
    for failure in report.failures:
        console.print(f"[red]failed[/] ({failure.stage}) {_plain(failure)}", soft_wrap=True)
        if not short:
            console.print(failure.traceback, markup=False, highlight=False, soft_wrap=True)
    for clash in report.clashes:
        console.print(f"[red]clash[/] {_plain(clash)}", soft_wrap=True)


def _quiet_host() -> Host:
    """The process's host, without its warning, as the commands show failures themselves."""
    from tenon.plugins.manager import host

    with _plugin_warnings_ignored():
        return host()


def _plugin_warnings_ignored() -> warnings.catch_warnings[None]:
    return warnings.catch_warnings(action="ignore", category=PluginWarning)


def _command(name: str, value: object) -> click.Command:
    """``value``, the object that a plugin declares as command ``name``; ClickException unless it is a
    click.Command."""
    if not isinstance(value, click.Command):
        raise click.ClickException(
            f"the command {name!r} is a {type(value).__name__}, not a click.Command. "
            "Decorate it with @click.command()."
        )
    return value


def _console() -> Console:
    from rich.console import Console

    return Console()


def _plain(value: object) -> str:
    from rich.markup import escape

    return escape(str(value))


def _traceback(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))


if __name__ == "__main__":
    main()
