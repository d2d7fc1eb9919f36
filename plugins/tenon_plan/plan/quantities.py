"""Parse rates and times, and format sizes and times."""

from __future__ import annotations

import re

from tenon.errors import ConfigError

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_RATE = re.compile(r"([\d.]+)\s*([kmgt]?)(bit|b|byte|bytes)(?:/s|ps)?", re.IGNORECASE)
_SIZE = re.compile(r"([\d.]+)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_TIME = re.compile(r"([\d.]+)\s*(us|µs|ms|s)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def read_rate(text: str) -> float:
    """Parse a rate as bytes per second: ``2Gbit``, ``100Gbit/s``, ``250MB/s``; prefixes are powers of ten.

    >>> read_rate("2Gbit")
    250000000.0
    """
    match = _RATE.fullmatch(text.strip())
    number = _number(match[1]) if match else None
    if match is None or number is None or (match[3].lower() == "b" and match[3] != "B"):
        raise ConfigError(
            f"--network {text!r} is not a bandwidth. Write e.g. 10Gbit, or 1.25GB for bytes a second."
        )
    return number * _PREFIXES[match[2].lower()] / (8 if match[3].lower() == "bit" else 1)


def read_size(text: str) -> float:
    """Parse a number of bytes: ``4GB``, ``512MiB``.

    >>> read_size("1.5 GiB")
    1610612736.0
    """
    match = _SIZE.fullmatch(text.strip())
    number = _number(match[1]) if match else None
    if match is None or number is None:
        raise ConfigError(f"--memory {text!r} is not a number of bytes. Write e.g. 4GB, or 4GiB.")
    base = 1024.0 if match[3] else 1000.0
    return number * base ** ("kmgt".index(match[2].lower()) + 1 if match[2] else 0)


def read_time(text: str) -> float:
    """Parse a time as seconds: ``50us``, ``0.1ms``.

    >>> read_time("0.5 s")
    0.5
    """
    match = _TIME.fullmatch(text.strip())
    number = _number(match[1]) if match else None
    if match is None or number is None:
        raise ConfigError(
            f"--latency {text!r} is not a time. Write e.g. 50us or 0.1ms; half of what ping shows."
        )
    return number * _SECONDS[match[2]]


def size(count: float) -> str:
    """Format a number of bytes, with prefixes of powers of ten.

    >>> size(11_200_000)
    '11.2 MB'
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}" if count < 1000 * scale else f"{count / scale:,.0f} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Format a time in seconds.

    >>> duration(0.01234)
    '12.3 ms'
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return (
                f"{seconds / scale:.3g} {unit}"
                if seconds < 1000 * scale
                else f"{seconds / scale:,.0f} {unit}"
            )
    return f"{seconds * 1e6:.0f} µs"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number > 0 else None
