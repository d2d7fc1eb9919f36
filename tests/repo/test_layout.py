"""The layout of the tree: small files, nouns as names, nothing that shadows the standard library."""

import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [p for top in ("platform", "plugins", "backends") for p in sorted((ROOT / top).rglob("*.py"))]
LIMIT = 400
#: Files of code that a folder may show, also of tests, and what the root of tenon may hold: files and folders.
FILES_IN_A_FOLDER, ENTRIES_OF_THE_ROOT = 40, 32


def name(path):
    return str(path.relative_to(ROOT))


def test_platform_is_not_a_package():
    assert not (ROOT / "platform" / "__init__.py").exists(), "it would shadow the standard library's platform"


def test_the_standard_library_platform_wins_in_the_repository_root():
    import sys

    found = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.system())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout.strip()


def test_files_stay_small():
    lines = {name(path): len(path.read_text().splitlines()) for path in SOURCES}

    assert {n: count for n, count in lines.items() if count > LIMIT} == {}, "look for the second noun inside"


def test_folders_show_no_more_files_than_one_can_look_through():
    shown = Counter(name(path.parent) for path in [*SOURCES, *(ROOT / "tests").rglob("*.py")])

    assert {n: count for n, count in shown.items() if count > FILES_IN_A_FOLDER} == {}, (
        "which ones belong together?"
    )


def test_the_root_of_tenon_is_short():
    tenon = ROOT / "platform" / "tenon"
    entries = {path.name for path in tenon.iterdir() if path.name != "__pycache__" and holds_sources(path)}

    assert len(entries) <= ENTRIES_OF_THE_ROOT, sorted(entries)


def holds_sources(path):
    """Whether ``path`` is a file, or a folder with one: a checkout may have folders with old byte code only."""
    return path.is_file() or any(p.suffix in (".py", ".pyi") for p in path.rglob("*"))


def test_every_file_says_what_it_is():
    bare = [name(path) for path in SOURCES if not path.read_text().lstrip().startswith('"""')]

    assert bare == [], "without a module docstring"


def test_no_file_has_a_name_that_says_nothing():
    banned = {"utils", "helpers", "common", "misc", "base"}
    public_faces = {
        "platform/tenon/utils",
        "platform/tenon/nn/utils",
        "plugins/tenon_distributions/distributions/utils",
        "platform/tenon/distributed/algorithms/model_averaging/utils",
        "platform/tenon/cuda/amp/common",
    }  # PyTorch's own names

    found = [name(p) for p in SOURCES if p.stem in banned]

    assert [f for f in found if not any(f.startswith(face) for face in public_faces)] in (
        [],
        ["platform/tenon/nn/modules/utils.py"],
    )


def test_sources_hold_no_placeholders():
    marks = ("TODO", "FIXME", "XXX")

    found = [f"{name(p)}: {m}" for p in SOURCES for m in marks if m in p.read_text()]

    assert found == []
