"""``tenon profile``: show where a profiled run spent its time; merge and convert its traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenon.extend import errors
from tenon_profiler import overview
from tenon_profiler.averages import SORTABLE, EventList, function_events
from tenon_profiler.events import INSTANT, Event
from tenon_profiler.merge import find_traces, merge
from tenon_profiler.text import percent, size_text
from tenon_profiler.trace import Header
from tenon_profiler.trace_reader import event_of, read_trace
from tenon_profiler.xplane import export_xplane

if TYPE_CHECKING:
    from rich.table import Table

_FOLDER = click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))


@click.group()
def profile() -> None:
    """Show, merge and convert the traces of a run."""


@profile.command("merge")
@_FOLDER
@click.option("--out", type=click.Path(path_type=Path), help="Instead of RUN/merged.trace.json.gz.")
def merge_command(run: Path, out: Path | None) -> None:
    """Write one trace of all ranks of RUN, on one clock."""
    with _refusing(run):
        click.echo(f"wrote {merge(run, out)}")


@profile.command()
@_FOLDER
@click.option("--out", type=click.Path(path_type=Path), help="Instead of RUN: a log directory.")
def xplane(run: Path, out: Path | None) -> None:
    """Write the traces of RUN for xprof: RUN/plugins/profile/*/*.xplane.pb."""
    with _refusing(run):
        for path in export_xplane(run, out):
            click.echo(f"wrote {path}")


@profile.command()
@_FOLDER
@click.option("--sort-by", default="self_cpu_time_total", type=click.Choice(SORTABLE), show_default=True)
@click.option("--limit", default=20, show_default=True, help="Rows of the table of ops.")
@click.option("--rank", default=0, show_default=True, help="The rank whose ops are shown.")
def show(run: Path, sort_by: str, limit: int, rank: int) -> None:
    """Print where the steps of RUN spent their time, for each rank, and the ops of one."""
    with _refusing(run):
        _show(run, sort_by, limit, rank)


@contextmanager
def _refusing(run: Path) -> Iterator[None]:
    """Exit with one line if the traces of ``run`` are none; their arguments may be of any type."""
    try:
        yield
    except (errors.TraceError, OSError) as error:
        raise click.ClickException(str(error)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise click.ClickException(
            f"the traces of {run} have values that tenon.profiler does not write ({what})."
        ) from error


def _show(run: Path, sort_by: str, limit: int, rank: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    traces = [load(path) for path in find_traces(run)]
    console = Console()
    table = _table("Where a step's time goes", "rank", "steps", "step", *overview.PARTS)
    for header, events in traces:
        means = overview.summary(overview.steps(events))
        shares = [f"{100 * share:.1f}%" for _, share in means["parts"].values()]
        own = header["tenon"]
        table.add_row(str(own["rank"]), str(means["steps"]), _brief(means["step_us"]), *shares)
    console.print(table)
    listed = [e for header, events in traces if header["tenon"]["rank"] == rank for e in events]
    if all(header["tenon"]["rank"] != rank for header, _ in traces):
        raise click.ClickException(f"{run} has no trace of rank {rank}.")
    ops = _table(f"Ops of rank {rank}", "op", "self", "%", "total", "calls", "MFLOP", "memory")
    sums = EventList(function_events(e for e in listed if e.category in ("cpu_op", INSTANT)))
    rows = sorted(sums.key_averages(), key=lambda row: float(getattr(row, sort_by)), reverse=True)
    total = sums.self_cpu_time_total
    for row in rows[:limit]:
        ops.add_row(
            escape(row.key.removeprefix("tenon::")), _brief(row.self_cpu_time_total),
            percent(row.self_cpu_time_total, total), _brief(row.cpu_time_total), str(row.count),
            f"{row.flops / 1e6:.2f}" if row.flops else "",
            size_text(row.self_cpu_memory_usage) if row.self_cpu_memory_usage else "",
        )  # fmt: skip
    console.print(ops)


def _table(title: str, first: str, *others: str) -> Table:
    """Return an empty table that fits a terminal of 80 columns."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _brief(microseconds: float) -> str:
    """Return a time with three digits and its unit.

    >>> _brief(30_446.2), _brief(0.5)
    ('30.4 ms', '0.5 us')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def load(path: Path) -> tuple[Header, list[Event]]:
    """Return the header and the events of a trace."""
    header, objects = read_trace(path)
    base = int(header["baseTimeNanoseconds"])
    return header, [event for each in objects if (event := event_of(each, base)) is not None]
