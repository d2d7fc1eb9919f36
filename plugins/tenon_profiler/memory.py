"""Memory over time by phase: PyTorch's memory timeline."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tenon.extend import errors
from tenon_profiler.events import Event

CATEGORIES = ("forward", "backward", "optimizer", "data")
_COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")


def changes(events: Iterable[Event], device: str) -> list[Event]:
    """Return allocations and releases on ``device`` in order of time; TraceError if there are none."""
    kind, _, number = device.partition(":")
    index = -1 if kind == "cpu" else int(number or 0)
    selected = [e for e in events if e.name == "[memory]" and e.get("Device Id", -1) == index]
    if not selected:
        raise errors.TraceError(f"no memory of {device} was recorded. Profile with profile_memory=True.")
    return sorted(selected, key=lambda e: e.begin)


def timeline(changed: Iterable[Event]) -> tuple[list[int], list[list[int]]]:
    """Return the times of changes in nanoseconds, and for each the bytes of ``CATEGORIES`` after it."""
    totals = [0] * len(CATEGORIES)
    times, sizes = [], []
    for event in changed:
        totals[CATEGORIES.index(event.get("Phase"))] += event.get("Bytes")
        times.append(event.begin)
        sizes.append(list(totals))
    return times, sizes


def export(events: Iterable[Event], path: str | os.PathLike[str], device: str) -> None:
    """Write every change (``.raw.json.gz``), the timeline (``.json``, ``.json.gz``) or a plot (``.html``)."""
    name, changed = str(path), changes(events, device)
    if name.endswith(".html"):
        Path(path).write_text(_page(*timeline(changed)))
        return
    if name.endswith(".raw.json.gz"):
        value: object = [
            [e.begin, "create" if e.get("Bytes") > 0 else "destroy", e.get("Op"), e.get("Bytes")]
            for e in changed
        ]
    elif name.endswith((".json", ".json.gz")):
        value = timeline(changed)
    else:
        raise errors.ArgumentError(f"{name!r}: expected a name that ends with .html, .json or .json.gz.")
    text = json.dumps(value).encode()
    Path(path).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


def _page(times: Sequence[int], sizes: Sequence[Sequence[int]], width: int = 960, height: int = 360) -> str:
    """Return an HTML page with a stacked area plot, without external resources."""
    peak = max(sum(each) for each in sizes) or 1
    begin, length = times[0], max(times[-1] - times[0], 1)
    below = [0] * len(times)
    areas, legend = [], []
    for index, name in enumerate(CATEGORIES):
        above = [b + s[index] for b, s in zip(below, sizes, strict=True)]
        lower = [_point(t, b, begin, length, peak, width, height) for t, b in zip(times, below, strict=True)]
        upper = [_point(t, a, begin, length, peak, width, height) for t, a in zip(times, above, strict=True)]
        points = " ".join([*lower, *reversed(upper)])
        areas.append(f'<polygon fill="{_COLORS[index]}" points="{points}"><title>{name}</title></polygon>')
        legend.append(f'<li style="color:{_COLORS[index]}">{name}</li>')
        below = above
    return (
        '<!doctype html><meta charset="utf-8"><title>Memory timeline</title>'
        f"<h1>Memory of arrays over {length / 1e6:.1f} ms; peak {peak / 1e6:.2f} MB</h1>"
        f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(areas)}</svg><ul>{"".join(legend)}</ul>\n'
    )


def _point(when: int, size: int, begin: int, length: int, peak: int, width: int, height: int) -> str:
    return f"{(when - begin) / length * width:.1f},{height - size / peak * height:.1f}"
