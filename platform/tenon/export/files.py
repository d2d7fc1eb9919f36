"""``tenon.export.save`` and ``load``: of programs in a file, as PyTorch's, and of bundles in a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tenon.engine.types import Nested
from tenon.errors import ArgumentError
from tenon.export import bundle, program_file
from tenon.export.bundle import Bundle
from tenon.export.captured import CapturedGraph
from tenon.export.exported_program import ExportedProgram
from tenon.export.target import Target


def save(
    what: ExportedProgram | CapturedGraph | Callable[..., Nested],
    f: str | os.PathLike[str] | BinaryIO,
    examples: Sequence[Nested] = (),
    *,
    targets: Sequence[str | Target] = (),
    calls: Sequence[Sequence[Nested]] | None = None,
    train: bool = False,
    tolerance: float | None = None,
    overwrite: bool = False,
    extra_files: Mapping[str, str | bytes] | None = None,
    opset_version: Mapping[str, int] | None = None,
    pickle_protocol: int = 2,
) -> Path | None:
    """Write an ``ExportedProgram`` to the file ``f``, as PyTorch does, or anything else to a bundle ``f``.

    The arguments up to ``overwrite`` are those of bundles, see ``bundle.save``; a program with ``targets``
    becomes a bundle too. ``extra_files`` go into the file of a program, by name. ``opset_version`` and
    ``pickle_protocol`` have no effect: nothing is pickled.
    """
    if isinstance(what, ExportedProgram) and not targets:
        program_file.save(what, f, extra_files)
        return None
    if not isinstance(f, str | os.PathLike):
        raise ArgumentError(f"a bundle is a folder, not a {type(f).__name__}. Give its path.")
    return bundle.save(
        what.captured if isinstance(what, ExportedProgram) else what, f, examples,
        targets=targets, calls=calls, train=train, tolerance=tolerance, overwrite=overwrite,
    )  # fmt: skip


def load(
    f: str | os.PathLike[str] | BinaryIO,
    *,
    extra_files: dict[str, Any] | None = None,  # values of any type are replaced by text
    expected_opset_version: Mapping[str, int] | None = None,
) -> ExportedProgram | Bundle:
    """Read a program from the file ``f``, or a bundle from the folder ``f``; nothing in it is executed.

    The values of ``extra_files`` are replaced by the text of the files of these names. BundleError for a
    damaged file.
    """
    if isinstance(f, str | os.PathLike) and Path(f).is_dir():
        return bundle.load(f)
    return program_file.load(f, extra_files)
