"""The Trace view: windows over all ranks on one clock, search, and the arguments of a span."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tenon_dashboard.collect import JsonObject
from tenon_dashboard.readers import Reading
from tenon_dashboard.timeline import JOINED, Timeline

Files = Sequence[tuple[int, Reading]]
#: The largest number of lanes in a response; runs of more ranks are shown with fewer threads each.
MOST_LANES = 256


def _ready(files: Files) -> list[tuple[int, int, JsonObject, Timeline]]:
    """Return (rank, shift of its clock, digest, timeline) of each file that has been read."""
    ready = [
        (rank, r.digest, r.timeline) for rank, r in files if r.digest is not None and r.timeline is not None
    ]
    begin = min((digest["origin"] + digest["first"] for _, digest, _ in ready), default=0)
    return [(rank, digest["origin"] - begin, digest, timeline) for rank, digest, timeline in ready]


def window(files: Files, begin: int, end: int, pixels: int) -> JsonObject:
    """Return the spans between two times, as [start, duration, name, category, detail], per lane and level.

    Names and categories are indices into ``names``; joined spans have the name -1 and their number as detail.
    """
    ready = _ready(files)
    last = max((digest["last"] + shift for _, shift, digest, _ in ready), default=1)
    if end <= begin:
        begin, end = 0, max(last, 1)
    pixel = max(1, (end - begin) // pixels)
    names: dict[str, int] = {}
    lanes: list[JsonObject] = []
    for rank, shift, _, timeline in ready:
        for i, lane in enumerate(timeline.lanes[: MOST_LANES - len(lanes)]):
            levels = []
            for level in timeline.window(i, begin - shift, end - shift, pixel):
                drawn = []
                for start, duration, label, detail in level:
                    category, name = timeline.labels[label] if label != JOINED else ("", "")
                    name_index = names.setdefault(name, len(names)) if label != JOINED else JOINED
                    kind = names.setdefault(category, len(names))
                    drawn.append([start + shift, duration, name_index, kind, detail])
                levels.append(drawn)
            lanes.append({"rank": rank, "name": lane["name"], "levels": levels})
    return {"begin": begin, "end": end, "last": last, "names": list(names), "lanes": lanes}


def search(files: Files, only: str, text: str, after: int, back: bool) -> JsonObject:
    """Find the next span (or the last before) of a rank or "all" whose name contains ``text``; count them."""
    searched = text.casefold()
    count, best = 0, None
    ready = [entry for entry in _ready(files) if only in ("all", str(entry[0]))]
    for rank, shift, _, timeline in ready if searched else ():
        labels = frozenset(i for i, (_, name) in enumerate(timeline.labels) if searched in name.casefold())
        count += timeline.count(labels)
        match = timeline.following(labels, after - shift, back)
        if match is not None:
            start, lane, depth, i = match
            here = (start + shift, rank, lane, depth)
            if best is None or (here > best[0] if back else here < best[0]):
                spans = timeline.levels[lane][depth]
                name = timeline.labels[spans.label[i]][1]
                best = (here, {"duration": spans.duration[i], "name": name, "detail": spans.detail[i]})
    if best is None:
        return {"count": count, "found": None}
    (start, rank, lane, depth), more = best
    return {"count": count, "found": {"start": start, "rank": rank, "lane": lane, "level": depth, **more}}


def span_detail(files: Files, rank: int, detail: int) -> dict[str, str]:
    """Return the arguments of a span as texts."""
    for file_rank, _, _, timeline in _ready(files):
        if file_rank == rank and 0 <= detail < len(timeline.details):
            args = timeline.details[detail]
            return {key[:100]: _text(value) for key, value in list(args.items())[:50]}
    return {}


def _text(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:1000]
