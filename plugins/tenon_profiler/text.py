"""Numbers and tables as text, in PyTorch's format."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.extend import errors

_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def time_text(microseconds: float, unit: str | None = None) -> str:
    """Return a time with its unit, by default the largest that is not above it.

    >>> time_text(1234.5), time_text(1234.5, "us")
    ('1.234ms', '1234.500us')
    """
    if unit is None:
        unit = next((name for name, size in _UNITS.items() if microseconds >= size), "us")
    if unit not in _UNITS:
        raise errors.ArgumentError(f"time_unit={unit!r} is not one of {', '.join(_UNITS)}.")
    return f"{microseconds / _UNITS[unit]:.3f}{unit}"


def size_text(count: int) -> str:
    """Return a number of bytes with its unit.

    >>> size_text(-2048)
    '-2.00 KB'
    """
    for limit, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(count) >= limit:
            return f"{count / limit:.2f} {unit}"
    return f"{count} B"


def percent(part: float, total: float) -> str:
    """Return ``part`` as percentage of ``total``; "--" if that is 0."""
    return f"{100 * part / total:.2f}%" if total else "--"


def draw(columns: Sequence[tuple[str, list[str], int]], header: str | None) -> str:
    """Return a table of columns, each given by title, cells, and the largest width to show (0: any)."""
    truncated = [
        (title, [c if not limit or len(c) <= limit else c[: limit - 3] + "..." for c in cells])
        for title, cells, limit in columns
    ]
    widths = [max([len(title), *map(len, cells)]) for title, cells in truncated]
    line = "  ".join("-" * width for width in widths)
    rows = [
        [title for title, _ in truncated],
        *map(list, zip(*(cells for _, cells in truncated), strict=True)),
    ]
    texts = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    top = [] if header is None else [line, header]
    return "\n".join([*top, line, texts[0], line, *texts[1:], line])
