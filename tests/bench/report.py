"""What ``cpu.py`` prints: a line for each row as it is measured, then tables."""

import rich.box
from rich.console import Console
from rich.table import Table


def line(found):
    """One row as plain text, as soon as it is known."""
    best = {key: min(way["seconds"]) * 1e3 for key, way in found["ways"].items() if "seconds" in way}
    parts = [found["row"] + ": ms " + ", ".join(f"{key} {value:.4g}" for key, value in best.items())]
    for kind in ("eager", "compiled", "jax"):
        if (ratio := found[kind]) is not None:
            parts.append(f"{kind} ratio {ratio['min']:.2f} ({ratio['median']:.2f})")
    for key, way in found["ways"].items():
        for trouble in ("not_built", "failed", "differ"):
            if trouble in way:
                parts.append(f"{key}: {trouble.replace('_', ' ')}: {way[trouble]}")
    print("; ".join(parts), flush=True)


def show(about, results, latency):
    """The tables: eager, compiled, JAX, the floor beside each row, and the first call of compile."""
    console = Console(width=None if Console().is_terminal else 150)
    console.print(", ".join(f"{key} {value}" for key, value in about.items() if not key.startswith("rates")))
    for key, rates in about.items():
        if key.startswith("rates"):
            console.print(
                f"{key}: products {rates['gemm'] / 1e9:.0f} GFLOP/s, bfloat16 {rates['gemm_bf16'] / 1e9:.0f},"
                f" copies {rates['copy'] / 1e9:.0f} GB/s"
            )
    for kind, index in (("eager", 0), ("compiled", 1), ("jax", None)):
        rows = [found for found in results if visible(found, kind)]
        if rows:
            console.print(table(kind, index, rows))
    if latency:
        console.print(
            "first four calls of compile, row d, seconds: " + ", ".join(map(seconds, latency.items()))
        )


def visible(found, kind):
    """Whether a row belongs into a table: it was measured, or should have been."""
    return found[kind] is not None or (kind != "jax" and any(kind in key for key in found["ways"]))


def seconds(item):
    """A latency, or why there is none."""
    name, value = item
    return f"{name} {value:.2f}" if isinstance(value, float) else f"{name}: {next(iter(value.values()))}"


def table(kind, index, rows):
    """One kind of comparison."""
    made = Table(
        title=f"{kind}: time of the other / time of tenon", box=rich.box.SIMPLE, title_justify="left"
    )
    made.add_column("row", no_wrap=True)
    made.add_column("what", min_width=28)
    for name in ("tenon ms", "other ms", "min", "median", "bar", "floor ms"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("other", max_width=24)
    for found in rows:
        ratio, floor = found[kind], found["floor"]
        bar = found["bars"][index] if index is not None else 1.0
        least = "" if not floor else f"{floor['gemm_s'] * 1e3:.3g} + {floor['copy_s'] * 1e3:.2g}"
        if ratio is None:
            made.add_row(found["row"], found["what"], "", "", "", "", number(bar), least, why(found, kind))
            continue
        met = "" if bar is None else ("green" if ratio["min"] >= bar else "red")
        made.add_row(
            found["row"],
            found["what"],
            f"{ratio['tenon_s'] * 1e3:.4g}",
            f"{ratio['other_s'] * 1e3:.4g}",
            f"[{met}]{ratio['min']:.2f}[/]" if met else f"{ratio['min']:.2f}",
            f"{ratio['median']:.2f}",
            number(bar),
            least,
            ratio["other"],
        )
    made.caption = "floor: products + copies, at the rates above"
    return made


def number(bar):
    """A bar, or nothing."""
    return "" if bar is None else f"{bar:g}"


def why(found, kind):
    """Why a row has no ratio."""
    for key, way in found["ways"].items():
        if key.startswith("tenon") and kind in key:
            for trouble in ("not_built", "failed", "differ"):
                if trouble in way:
                    return f"{trouble.replace('_', ' ')}: {way[trouble]}"[:80]
    return "not measured"
