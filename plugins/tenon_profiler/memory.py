"""Memory over time, by what it is for: torch's memory timeline."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tenon.extend import errors
from tenon_profiler.events import Event

CATEGORIES = ("forward", "backward", "optimizer", "data")
_COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44")


def changes(events: Iterable[Event], device: str) -> list[Event]:
    """Allocations and releases on ``device`` in order of time; TraceError if there are none."""
    kind, _, number = device.partition(":")
    index = -1 if kind == "cpu" else int(number or 0)
    found = [e for e in events if e.name == "[memory]" and e.get("Device Id", -1) == index]
    if not found:
        raise errors.TraceError(f"no memory of {device} was recorded. Profile with profile_memory=True.")
    return sorted(found, key=lambda e: e.begin)


def timeline(found: Iterable[Event]) -> tuple[list[int], list[list[int]]]:
    """Of changes: times in nanoseconds, and bytes after each, one list per time in ``CATEGORIES``' order."""
    totals = [0] * len(CATEGORIES)
    times, sizes = [], []
    for event in found:
        totals[CATEGORIES.index(event.get("Phase"))] += event.get("Bytes")
        times.append(event.begin)
        sizes.append(list(totals))
    return times, sizes


def export(events: Iterable[Event], path: str | os.PathLike[str], device: str) -> None:
    """``.raw.json.gz``: every change; ``.json``, ``.json.gz``: the timeline; ``.html``: a picture of it."""
    name, found = str(path), changes(events, device)
    if name.endswith(".html"):
        Path(path).write_text(_page(*timeline(found)))
        return
    if name.endswith(".raw.json.gz"):
        value: Any = [
            [e.begin, "create" if e.get("Bytes") > 0 else "destroy", e.get("Op"), e.get("Bytes")]
            for e in found
        ]
    elif name.endswith((".json", ".json.gz")):
        value = timeline(found)
    else:
        raise errors.ArgumentError(f"{name!r}: expected a name that ends with .html, .json or .json.gz.")
    text = json.dumps(value).encode()
    Path(path).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


def _page(times: Sequence[int], sizes: Sequence[Sequence[int]], width: int = 960, height: int = 360) -> str:
    """A page with a stacked curve, drawn without anything from outside."""
    peak = max(sum(each) for each in sizes) or 1
    begin, length = times[0], max(times[-1] - times[0], 1)
    below = [0] * len(times)
    areas, legend = [], []
    for index, name in enumerate(CATEGORIES):
        above = [b + s[index] for b, s in zip(below, sizes, strict=True)]
        forth = [_point(t, b, begin, length, peak, width, height) for t, b in zip(times, below, strict=True)]
        back = [_point(t, a, begin, length, peak, width, height) for t, a in zip(times, above, strict=True)]
        points = " ".join([*forth, *reversed(back)])
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
