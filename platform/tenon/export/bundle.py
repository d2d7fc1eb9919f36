"""Bundles: folders with a graph, its weights, test vectors and the files of each target, with checksums.

::

    manifest.json         what is in the folder: SHA-256 and size of every file, targets, tolerance; the last
                          entry is the SHA-256 of the text before it
    graph.json            the graph; see schema.py
    weights.safetensors   parameters, buffers, optimizer state and constants
    vectors.safetensors   inputs and outputs of a few runs
    c/ ...                the files of a target, here "c"

A bundle is written to a temporary folder that is then renamed, so it is complete or absent. Loading executes
nothing of it, and ignores files that the manifest does not list, such as those that ``make test`` adds. Next:
``verify.py`` runs the targets on the vectors.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tenon import serialize
from tenon.compat.version import __version__
from tenon.engine.types import Array, Nested
from tenon.errors import ArgumentError, BundleError, CheckpointWriteError, LoweringError
from tenon.export import schema
from tenon.export.archive import WEIGHTS, read_tensors, tensors_of
from tenon.export.capture import capture
from tenon.export.captured import CapturedGraph
from tenon.export.json_types import Json
from tenon.export.target import Target
from tenon.export.vectors import Run, Vectors, make_vectors
from tenon.plugins import registry
from tenon.serialize.limits import cut
from tenon.tensors.tensor import Tensor

SCHEMA, VERSION = "tenon.bundle", 1
MANIFEST, GRAPH, VECTORS = "manifest.json", "graph.json", "vectors.safetensors"
#: The largest manifest that is read, the most files of a bundle, and the most characters of a file's name.
_MAX_MANIFEST, _MAX_FILES, _MAX_NAME = 1 << 24, 10_000, 255
_PIECE = 1 << 20


@dataclass(frozen=True)
class Bundle:
    """A bundle that was read: the graph with its weights, the vectors, and the files of each target."""

    folder: Path
    graph: CapturedGraph
    vectors: Vectors
    #: Name of a target -> its files, as paths relative to the folder of the bundle.
    targets: Mapping[str, Sequence[str]]
    #: The content of manifest.json.
    manifest: Mapping[str, Json]


def save(
    what: CapturedGraph | Callable[..., Nested],
    folder: str | os.PathLike[str],
    examples: Sequence[Nested] = (),
    *,
    targets: Sequence[str | Target] = (),
    calls: Sequence[Sequence[Nested]] | None = None,
    train: bool = False,
    tolerance: float | None = None,
    overwrite: bool = False,
    model: Callable[..., Nested] | None = None,
) -> Path:
    """Write a bundle of a captured graph, or of a model or function with ``examples``, to ``folder``.

    ``targets`` are names of plugins' targets, or targets. ``calls`` are the arguments of the test vectors'
    runs (default: the examples; ten runs of a training step); without examples, the first of them is one. If
    any target lacks an op, LoweringError names all of them before anything is written. An existing bundle is
    replaced only with ``overwrite``, and nothing else is. ``model`` is the function that a given graph was
    captured from: it computes the outputs of the vectors.
    """
    _check_options(examples, targets, tolerance)
    destination = free_place(folder, overwrite)
    examples = examples or (calls[0] if calls else ())
    graph = what if isinstance(what, CapturedGraph) else capture(what, *examples, train=train)
    chosen = [each if isinstance(each, Target) else target_named(each) for each in targets]
    _check_names(chosen)
    lowered = _lowered(graph, chosen)
    if calls is None:
        calls = [graph.example_arguments()] * (10 if graph.writes else 1)
    if not calls:
        raise BundleError("calls= is empty: a bundle needs test vectors, by which it is verified.")
    model = model if isinstance(what, CapturedGraph) or train else what
    vectors = make_vectors(graph, [tuple(call) for call in calls], tolerance, model)
    document, arrays = schema.to_document(graph, schema.views_of(graph))
    partial = destination.with_name(f".{destination.name[:200]}.{secrets.token_hex(6)}.partial")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        _write_json(partial / GRAPH, document)
        serialize.save(tensors_of(arrays), partial / WEIGHTS)
        _save_vectors(partial / VECTORS, vectors)
        for target, own in zip(chosen, lowered, strict=True):
            (partial / target.name).mkdir()
            target.write(own, vectors, partial / target.name)
        manifest = json.dumps(_manifest(partial, chosen, vectors), indent=1, allow_nan=False)
        (partial / MANIFEST).write_bytes(sealed(manifest))
        _put_in_place(partial, free_place(destination, overwrite))
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise _write_error(destination, error) from error
        raise
    return destination


def _check_options(examples: object, targets: object, tolerance: object) -> None:
    """Raise ArgumentError for what is given alone in place of a sequence, and for a tolerance of no use."""
    if isinstance(examples, Tensor):
        raise ArgumentError("the examples are a tensor. Give a tuple of the function's arguments: (x,).")
    if isinstance(targets, str | Target):
        raise ArgumentError(f"targets={targets!r} is no list. Give a list of targets, such as ['c'].")
    if tolerance is not None and not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
        raise ArgumentError(f"tolerance={tolerance!r} is no number from 0 on, and finite.")


def free_place(folder: str | os.PathLike[str], overwrite: bool) -> Path:
    """Return the absolute path of ``folder``, where a bundle can be put; BundleError if something is there.

    With ``overwrite`` a bundle or an empty folder may be there, nothing else.
    """
    place = Path(os.path.realpath(folder))
    if not os.path.lexists(place) or (place.is_dir() and not any(place.iterdir())):
        return place
    if not (place / MANIFEST).is_file():
        raise BundleError(
            f"{place} exists and is not a bundle, so it is never replaced. Give another folder."
        )
    if not overwrite:
        raise BundleError(
            f"{place} exists. Give another folder, or overwrite=True (--overwrite) to replace it."
        )
    return place


def _write_error(destination: Path, error: OSError) -> CheckpointWriteError:
    """Return the error for a bundle that could not be written because of ``error``."""
    reason = error.strerror or str(error)
    raised = CheckpointWriteError(
        f"could not write the bundle {str(destination)!r}: {reason}. Nothing of it is left, and what was "
        "there before is untouched."
    )
    raised.errno, raised.filename, raised.strerror = error.errno, str(destination), error.strerror
    return raised


def target_named(name: str) -> Target:
    """Return the target that a plugin offers under ``name``; PluginNotFoundError lists the available ones."""
    return registry.resolve_class("targets", name, Target)()


def _check_names(targets: Sequence[Target]) -> None:
    """Raise BundleError unless each target can have a folder of its own."""
    seen: set[str] = set()
    for target in targets:
        if not target.name.isidentifier():
            raise BundleError(f"the name of a target, {target.name!r}, cannot be that of a folder.")
        if target.name in seen:
            raise BundleError(f"the target {target.name!r} is given twice.")
        seen.add(target.name)


def _lowered(graph: CapturedGraph, targets: Sequence[Target]) -> list[CapturedGraph]:
    """Return the graph in the ops of each target; LoweringError lists the ops that any of them lacks."""
    lowered, problems = [], []
    for target in targets:
        try:
            target.accept(graph)
            lowered.append(target.lowered(graph))
        except LoweringError as error:
            problems.append(f"{target.name}: {error}")
    if problems:
        raise LoweringError("\n".join(problems))
    return lowered


def _save_vectors(path: Path, vectors: Vectors) -> None:
    arrays: dict[str, Array] = {}
    for number, run in enumerate(vectors.runs):
        for side, each in (("inputs", run.inputs), ("outputs", run.outputs)):
            arrays |= {f"{number}.{side}.{i}": array for i, array in enumerate(each)}
    serialize.save(tensors_of(arrays), path)


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", "utf-8")


def _manifest(folder: Path, targets: Sequence[Target], vectors: Vectors) -> dict[str, object]:
    """Return the content of manifest.json for the files in ``folder``."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BundleError(f"a target wrote {path.name!r}, which is not a regular file.")
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files[name] = {"sha256": _digest(path), "bytes": path.stat().st_size}
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "tenon": __version__,
        "targets": [target.name for target in targets],
        "vectors": {
            "runs": len(vectors.runs), "inputs": len(vectors.runs[0].inputs) if vectors.runs else 0,
            "outputs": len(vectors.runs[0].outputs) if vectors.runs else 0,
            "absolute": vectors.absolute, "relative": vectors.relative,
        },
        "files": files,
    }  # fmt: skip


def sealed(manifest: str) -> bytes:
    """Return the content of manifest.json for its JSON text: the SHA-256 of what is before it comes last."""
    body = manifest[: manifest.rindex("}")].rstrip().encode()
    return body + _seal(body)


def _seal(body: bytes) -> bytes:
    return f',\n "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _put_in_place(partial: Path, destination: Path) -> None:
    """Rename the finished folder to ``destination``, replacing a former bundle."""
    if not (destination / MANIFEST).exists():
        os.rename(partial, destination)  # to nothing, or to an empty folder
        return
    former = destination.with_name(f".{destination.name[:200]}.{secrets.token_hex(6)}.former")
    os.rename(destination, former)
    try:
        os.rename(partial, destination)
    except BaseException:
        os.rename(former, destination)
        raise
    shutil.rmtree(former)


def load(folder: str | os.PathLike[str]) -> Bundle:
    """Read a bundle; BundleError names files that are changed or missing. Nothing in it is executed."""
    try:
        return _loaded(Path(os.path.abspath(folder)))
    except OSError as error:
        raise BundleError(f"cannot read the bundle {os.fspath(folder)!r}: {cut(error)}.") from error


def _loaded(place: Path) -> Bundle:
    manifest = _read_manifest(place)
    files = _checked_files(place, manifest)
    for name in (GRAPH, WEIGHTS, VECTORS):
        if name not in files:
            raise BundleError(f"{place / MANIFEST} lists no {name}, which every bundle has.")
    document = schema.parse(_content(place / GRAPH, schema.MAX_FILE), str(place / GRAPH))
    graph = schema.from_document(document, read_tensors(place / WEIGHTS), str(place / GRAPH))
    vectors = _read_vectors(place, manifest, graph)
    names = manifest.get("targets")
    if not isinstance(names, list) or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise BundleError(f"{place / MANIFEST}: targets is {names!r:.200}, not a list of names.")
    targets = {name: [file for file in files if file.startswith(f"{name}/")] for name in names}
    return Bundle(place, graph, vectors, targets, manifest)


def _read_manifest(place: Path) -> dict[str, Json]:
    path = place / MANIFEST
    if not path.is_file():
        raise BundleError(f"{place} is not a bundle: there is no {MANIFEST} in it.")
    if path.is_symlink():
        raise BundleError(f"{path} is reached by a symbolic link, which no bundle has.")
    content = _content(path, _MAX_MANIFEST)
    manifest = schema.parse(content, str(path))
    schema.check_schema(manifest, SCHEMA, VERSION, str(path))
    body = content[: -len(_seal(b""))]
    if content != body + _seal(body):
        raise BundleError(f"{path} was changed since the bundle was written: its SHA-256 differs.")
    return manifest


def _content(path: Path, most: int) -> bytes:
    """Return the bytes of a file that has at most ``most``."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise BundleError(f"{path} has {size:,} bytes; at most {most:,} are read.")
        return file.read(size)  # not of ``most``, for which Python would allocate the memory


def _checked_files(place: Path, manifest: Mapping[str, Json]) -> list[str]:
    """Return the names of the files after checking that all exist and are unchanged."""
    files = manifest.get("files")
    if not isinstance(files, dict) or len(files) > _MAX_FILES:
        raise BundleError(f"{place / MANIFEST} has no list of files, or one of more than {_MAX_FILES:,}.")
    for name, entry in files.items():
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\\" in name or str(pure) != name:
            raise BundleError(f"{place / MANIFEST} lists {name!r:.200}, which may lie outside of the bundle.")
        if not name.isprintable() or len(name) > _MAX_NAME:
            raise BundleError(
                f"{place / MANIFEST} lists {name!r:.200}, unprintable or over {_MAX_NAME} characters."
            )
        path = place / name
        if not path.exists():
            raise BundleError(f"{path} is missing.")
        if any(part.is_symlink() for part in (path, *path.parents) if place in part.parents):
            raise BundleError(f"{path} is reached by a symbolic link, which no bundle has.")
        if not isinstance(entry, dict) or not path.is_file():
            raise BundleError(f"{path} is not a regular file, or the manifest does not describe it.")
        if path.stat().st_size != entry.get("bytes") or _digest(path) != entry.get("sha256"):
            raise BundleError(f"{path} was changed since the bundle was written: its SHA-256 differs.")
    return list(files)


def _read_vectors(place: Path, manifest: Mapping[str, Json], graph: CapturedGraph) -> Vectors:
    arrays = read_tensors(place / VECTORS)
    counts = {"inputs": len(graph.arguments), "outputs": len(graph.outputs)}
    try:
        stated = manifest["vectors"]
        number, *tolerance = (stated[key] for key in ("runs", "absolute", "relative"))
        if type(number) is not int or not 0 < number <= _MAX_FILES:
            raise ValueError(f"{number!r:.80} runs")
        if len(arrays) != number * sum(counts.values()):
            raise ValueError(f"{len(arrays)} arrays for {number} runs")
        runs = [
            Run(*([arrays[f"{n}.{side}.{i}"].raw for i in range(count)] for side, count in counts.items()))
            for n in range(number)
        ]
        absolute, relative = map(float, tolerance)
        if not (0 <= absolute < math.inf and 0 <= relative < math.inf):
            raise ValueError(f"a tolerance of {absolute} + {relative} x |output|")
        return Vectors(runs, absolute, relative)
    except (LookupError, OverflowError, TypeError, ValueError) as error:
        raise BundleError(f"{place / VECTORS} does not fit the graph: {error!r}.") from error
