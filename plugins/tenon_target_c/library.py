"""The C kernels: which file defines which function, and what else it needs.

A file that begins with ``/* For T = f32 i64. */`` is a template: it is read once for each type, where ``T``
stands for the type and ``$`` for its suffix in names.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "kernels"
_DEFINITION = re.compile(r"^(?:void|int|float|double|long|int64_t) (k_\w+)\(([^{;]*)\)\n\{", re.MULTILINE)
_STATIC = re.compile(r"^static (?:inline )?[\w *]+?\*?(k_\w+)\(", re.MULTILINE)
_CALL = re.compile(r"\b(k_\w+)\b")
_TEMPLATE = re.compile(r"/\* For T = ([\w ]+)\. \*/\n")
_TYPES = {
    "f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "i16": "int16_t", "i8": "int8_t",
    "u8": "uint8_t",
}  # fmt: skip
_INCLUDE = re.compile(r"^#include <[\w.]+>\n", re.MULTILINE)


@dataclass(frozen=True)
class KernelFile:
    """A file of kernels: its text without includes, its includes, definitions and uses."""

    name: str
    text: str
    includes: tuple[str, ...]
    prototypes: tuple[str, ...]
    defines: frozenset[str]
    uses: frozenset[str]


@functools.cache
def files() -> dict[str, KernelFile]:
    """Return all files by name."""
    texts = {}
    for path in sorted(FOLDER.rglob("*.c")):
        text = path.read_text()
        template = _TEMPLATE.match(text)
        if template is None:
            texts[path.stem] = text
            continue
        for suffix in template.group(1).split():
            typed = re.sub(r"\bT\b", _TYPES[suffix], text[template.end() :])
            texts[f"{path.stem}_{suffix}"] = typed.replace("$", suffix)
    return {name: _kernel_file(name, text) for name, text in sorted(texts.items())}


def _kernel_file(name: str, text: str) -> KernelFile:
    prototypes = tuple(m.group(0).rpartition("\n")[0] + ";" for m in _DEFINITION.finditer(text))
    defines = frozenset(m.group(1) for m in _DEFINITION.finditer(text)) | frozenset(_STATIC.findall(text))
    uses = frozenset(_CALL.findall(text)) - defines
    includes = tuple(i.strip() for i in _INCLUDE.findall(text))
    return KernelFile(name, _INCLUDE.sub("", text).strip() + "\n", includes, prototypes, defines, uses)


@functools.cache
def _file_of() -> dict[str, str]:
    return {function: f.name for f in files().values() for function in f.defines}


def needed(functions: Iterable[str]) -> list[KernelFile]:
    """Return the files that define ``functions``, each after those that it uses."""
    ordered: dict[str, None] = {}
    where = _file_of()

    def visit(name: str) -> None:
        if name in ordered:
            return
        for function in sorted(files()[name].uses):
            if function in where and where[function] != name:
                visit(where[function])
        ordered[name] = None

    for function in functions:
        if function in where:
            visit(where[function])
    return [files()[name] for name in ordered]


def mentioned(text: str) -> list[str]:
    """Return the kernels that a text of C calls."""
    return _CALL.findall(text)


def kernels_source(functions: Iterable[str]) -> tuple[str, str]:
    """Return the texts of ``kernels.c`` and ``kernels.h``."""
    used = needed(functions)
    includes = sorted({i for f in used for i in f.includes} | {"#include <stddef.h>"})
    source = "\n".join(['#include "kernels.h"', "", *includes, "", *(f.text for f in used)])
    mathematics = (FOLDER / "mathematics.h").read_text().strip()
    prototypes = "\n".join(p for f in used for p in f.prototypes)
    header = f"#ifndef KERNELS_H\n#define KERNELS_H\n\n{mathematics}\n\n{prototypes}\n\n#endif\n"
    return source, header
