"""The documentation is correct: examples run, tables agree with the code, links are valid."""

import doctest
import importlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from tenon.cli import main
from tenon.training import config

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
SOURCES = [
    path
    for top in ("platform", "plugins", "backends")
    for path in sorted((ROOT / top).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
TRACKED = [
    path
    for name in subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    if (path := ROOT / name).is_file()
]


def dotted(path):
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def code_blocks(text, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize("path", SOURCES, ids=dotted)
def test_examples_in_docstrings_hold(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(dotted(path))
    except ModuleNotFoundError as error:
        if error.name not in ("cupy", "numba", "mpi4py"):
            raise
        pytest.skip(f"{error.name} is not installed")

    results = doctest.testmod(module)

    assert results.failed == 0
    assert results.attempted > 0 or dotted(path) == "tenon.plugins.hookspecs"


def run_code_of(page):
    """Run the Python blocks of a guide one after the other; what they define."""
    names = {}
    for block in code_blocks((GUIDE / page).read_text()):
        exec(compile(block, page, "exec"), names)
    return names


def test_code_of_getting_started_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    run_code_of("getting-started.md")

    assert (tmp_path / "net.pt").exists()


def test_code_of_the_training_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    names = run_code_of("training.md")
    splits = names["load"](samples=40)

    assert len(splits.train) == 32 and len(splits.test) == 8
    assert names["Net"](hidden=4)(splits.train[0][0]).shape == (2,)


def test_code_of_the_guide_to_distributions_runs():
    assert run_code_of("distributions.md")["reward"].mean() > 0.8


@pytest.mark.filterwarnings("ignore:Error detected in:tenon.errors.TenonWarning")
@pytest.mark.parametrize("page", ["errors.md", "autograd.md"])
def test_sessions_are_as_the_guide_shows_them(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

    results = doctest.testfile(
        str(GUIDE / page), module_relative=False, optionflags=options, encoding="utf-8"
    )

    assert results.attempted > 15 and results.failed == 0


ANSWERS = re.findall(r"^\| `tenon (train .*?)` \| (.*?) \|$", (GUIDE / "errors.md").read_text(), re.M)


@pytest.mark.parametrize(("command", "answer"), ANSWERS, ids=[command for command, _ in ANSWERS])
def test_mistakes_on_the_command_line_are_answered_as_the_guide_says(tmp_path, monkeypatch, command, answer):
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(main, command.split())

    assert done.exit_code == 2
    assert answer in done.output and len(done.output.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page", ["getting-started.md", "training.md"])
def test_configurations_in_the_guides_are_valid(page):
    blocks = code_blocks((GUIDE / page).read_text(), "toml")

    assert blocks
    for block in blocks:
        config.resolve([tomllib.loads(block)])


def test_every_configuration_key_is_documented_with_its_default():
    text = (GUIDE / "training.md").read_text().partition("## Settings")[2].partition("\n## ")[0]
    shown = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|", text, re.M))

    assert shown == {key: default for key, default in keys(config.RunConfig)}


def keys(model, prefix=""):
    for name, field in model.model_fields.items():
        section = next((t for t in kinds(field.annotation) if issubclass(t, BaseModel)), None)
        if section is not None:
            yield from keys(section, f"{prefix}{name}.")
        elif field.is_required():
            yield prefix + name, "required"
        else:
            yield prefix + name, "" if field.default is None else f"`{written(field.default)}`"


def kinds(annotation):
    parts = getattr(annotation, "__args__", None) or (annotation,)
    return [part for part in parts if isinstance(part, type)]


def written(value):
    """``value`` as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


PAGES = [p for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]]


def test_links_lead_to_files():
    links = [
        (page, link)
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in link
    ]

    assert [(str(page.relative_to(ROOT)), a) for page, a in links if not (page.parent / a).exists()] == []


def test_files_that_are_named_exist():
    places = ("platform", "plugins", "backends", "tests", "docs", "examples", "deploy")
    wanted = rf"`((?:{'|'.join(places)})/[\w./-]+\.\w+)`"
    named = [(page, name) for page in PAGES for name in re.findall(wanted, page.read_text())]

    assert [(str(page.relative_to(ROOT)), name) for page, name in named if not (ROOT / name).exists()] == []


def test_the_index_lists_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = [p for p in (ROOT / "docs").rglob("*.md") if p.name != "README.md"]

    assert [str(p) for p in pages if f"({p.relative_to(ROOT / 'docs')})" not in index] == []


def test_decisions_have_context_options_choice_and_consequence():
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))

    assert [int(p.name[:4]) for p in records] == list(range(1, len(records) + 1))
    for path in records:
        text = path.read_text()
        assert text.startswith(f"# {path.name[:4]}: "), path.name
        for part in ("Context", "Options", "Choice", "Consequence"):
            assert f"**{part}.**" in text, f"{path.name} has no {part}"


def test_every_example_is_listed():
    listed = (ROOT / "examples" / "README.md").read_text()
    found = {
        p.name for p in (ROOT / "examples").iterdir() if p.name not in ("README.md", "__pycache__", "runs")
    }

    assert [name for name in found if f"`{name}" not in listed] == []


@pytest.mark.slow
@pytest.mark.skipif(not TRACKED, reason="not a git checkout")
def test_no_file_names_a_place_on_somebodys_machine():
    place = re.compile(r"(?<![\w.])/(?:home|root|Users|work)/\w")

    found = [str(p.relative_to(ROOT)) for p in TRACKED if place.search(p.read_text("utf-8", errors="ignore"))]

    assert found == []
