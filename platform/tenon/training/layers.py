"""The layers of a configuration: TOML files and ``--set path=value``, from whoever wrote them.

What is read is bounded in length, depth and size of numbers before anything is computed from it, and errors
name keys and values in one line of limited length. Next: ``config.py``, which merges and validates layers.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tenon.errors import CheckpointError, ConfigError
from tenon.serialize.regular_files import open_regular

#: A table of TOML: options of a component, or a layer of the configuration with a table per section.
Table: TypeAlias = dict[str, Any]

#: Levels of tables and arrays in a configuration: far more than it needs, far fewer than recursion allows.
_DEEPEST = 32
_LONGEST, _LONGEST_LINE = 1 << 20, 2000
#: Strings and comments, which are skipped; dotted keys and numbers; brackets.
_TOKENS = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|\'{3}.*?\'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*'''
    r"""|[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++)*+|[\[\]{}]""",
    re.DOTALL,
)
#: Digits of a number that Python reads, and far fewer than keys may have.
_DIGITS = 4300
_BARE_KEY = re.compile(r"[\w-]+", re.ASCII)


def is_file(what: str) -> bool:
    """Whether ``what``, an argument of a command, is a configuration file and not the name of a recipe."""
    return what.endswith((".toml", ".json"))


def read_file(path: Path) -> Table:
    """Read the file at ``path`` as a configuration layer: TOML, or JSON such as a run's ``config.json``."""
    try:
        with open_regular(path) as file:
            text = file.read(_LONGEST + 1)
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {str(path)!r}.") from None
    except CheckpointError:
        raise ConfigError(f"cannot read {str(path)!r}: it is not a regular file.") from None
    except (OSError, ValueError) as error:  # a path with a null character
        raise ConfigError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', error)}.") from None
    if len(text) > _LONGEST:
        raise ConfigError(f"{path} is longer than a configuration may be, {_LONGEST:,} bytes.")
    try:
        return _parse_json(text.decode()) if path.suffix == ".json" else _parse(text.decode())
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:  # of TOML, of JSON, of UTF-8
        raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from None


def read_override(text: str) -> Table:
    """``"optimizer.lr=0.01"`` as a layer. The value is parsed as TOML, or is a string if that fails."""
    path, equals, value = text.partition("=")
    keys = [k.strip() for k in path.split(".")]
    if not equals or not all(keys):
        raise ConfigError(f"--set {shortened(text)}: expected KEY=VALUE, e.g. --set optimizer.lr=0.01")
    if len(keys) > _DEEPEST:
        raise ConfigError(f"--set {dotted(keys)}: more than {_DEEPEST} levels deep, the limit.")
    try:
        parsed = _parse(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    except ConfigError as error:
        raise ConfigError(f"--set {dotted(keys)} = {shortened(value)}: {error}") from None
    layer: Table = {keys[-1]: parsed}
    for key in reversed(keys[:-1]):
        layer = {key: layer}
    return layer


def _parse(text: str) -> Table:
    """The table that ``text`` says; ConfigError for nesting and numbers beyond what the parser takes."""
    depth = 0
    for match in _TOKENS.finditer(text):
        token = match[0]
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token, 0)
        quoted = token[0] in "\"'#"
        problem = ""
        if max(depth, 0 if quoted else token.count(".")) > _DEEPEST:
            problem = f"nested more than {_DEEPEST} levels deep, the limit"
        elif len(token) > _DIGITS and not quoted and token[0] in "0123456789-":
            problem = f"a number of {len(token):,} digits, more than {_DIGITS:,}, the limit"
        if problem:
            raise ConfigError(f"{problem} (at line {text.count(chr(10), 0, match.start()) + 1})")
    return tomllib.loads(text)


def _parse_json(text: str) -> Table:
    """The object that ``text`` says, without what is null: it means the default."""

    def without_null(pairs: list[tuple[str, object]]) -> Table:
        return {key: value for key, value in pairs if value is not None}

    found = json.loads(text, object_pairs_hook=without_null)
    if not isinstance(found, dict):
        raise ConfigError(f"a {type(found).__name__} is no configuration; it must be an object of keys.")
    return found


def check_values(layer: Mapping[str, object], path: tuple[str, ...] = ()) -> None:
    """ConfigError for tables that are too deep, integers beyond 64 bits, NaN and null characters."""
    for key, value in layer.items():
        _check_value(value, (*path, key))


def _check_value(value: object, path: tuple[str, ...]) -> None:
    if isinstance(value, Mapping):
        if len(path) > _DEEPEST:
            raise ConfigError(f"{dotted(path)} is nested more than {_DEEPEST} levels deep, the limit.")
        check_values(value, path)
    elif isinstance(value, list):
        for part in value:
            _check_value(part, path)
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ConfigError(f"{dotted(path)} = {shortened(value)}: does not fit in 64 bits")
    elif isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{dotted(path)} = nan: is not a number")
    elif isinstance(value, str) and "\0" in value:  # which no name, path or device has
        raise ConfigError(f"{dotted(path)} = {shortened(value)}: contains a null character")


def dotted(path: Iterable[object]) -> str:
    """``path`` as a key of a file, quoted where TOML requires it; long and deep ones shortened."""
    keys = [str(key) for key in path]
    deep = len(keys) > 8
    shown = [key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in keys[: 4 if deep else None]]
    return ".".join(_middle_left_out(key) for key in shown) + "..." * deep


def shortened(value: object) -> str:
    """``value`` as in a file; the middle of a long one is left out."""
    if isinstance(value, int) and abs(value) >= 10**60:
        return f"an integer of {value.bit_length()} bits"
    return _middle_left_out(repr(value))


def _middle_left_out(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:50]} ... {text[-20:]}"


def in_one_line(text: str) -> str:
    """``text`` without line breaks and control characters, which files and names may contain; the middle of
    a long one is left out."""
    text = " ".join(filter(None, map(str.strip, text.splitlines())))
    if len(text) > _LONGEST_LINE:
        text = f"{text[: _LONGEST_LINE - 500]} ... {text[-500:]}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
