"""Numbers and tables as text, as torch writes them."""

from __future__ import annotations

from collections.abc import Sequence


def time_text(microseconds: float) -> str:
    """
    >>> time_text(1234.5)
    '1.234ms'
    """
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= limit:
            return f"{microseconds / limit:.3f}{unit}"
    return f"{microseconds:.3f}us"


def size_text(count: int) -> str:
    """
    >>> size_text(-2048)
    '-2.00 KB'
    """
    for limit, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(count) >= limit:
            return f"{count / limit:.2f} {unit}"
    return f"{count} B"


def percent(part: float, whole: float) -> str:
    """``part`` of ``whole``."""
    return f"{100 * part / whole:.2f}%" if whole else "--"


def draw(columns: Sequence[tuple[str, list[str], int]], header: str | None) -> str:
    """Columns under their titles; each is a title, its cells, and the most characters shown, or 0."""
    cut = [
        (title, [c if not most or len(c) <= most else c[: most - 3] + "..." for c in cells])
        for title, cells, most in columns
    ]
    widths = [max([len(title), *map(len, cells)]) for title, cells in cut]
    line = "  ".join("-" * width for width in widths)
    rows = [[title for title, _ in cut], *map(list, zip(*(cells for _, cells in cut), strict=True))]
    texts = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    top = [] if header is None else [line, header]
    return "\n".join([*top, line, texts[0], line, *texts[1:], line])
