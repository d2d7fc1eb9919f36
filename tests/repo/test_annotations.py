"""``Any`` stands in annotations where a comment says why, and elsewhere less often from change to change."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Lines with ``Any`` and no comment, on the line or just above it. Only lower it.
WITHOUT_REASON = 4


def lines_without_reason(path):
    """The numbers of the lines of ``path`` that read the name ``Any`` without a comment beside or above it."""
    text = path.read_text()
    if "Any" not in text:
        return []
    lines = text.split("\n")
    named = {n.lineno for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name) and n.id == "Any"}
    return [n for n in sorted(named) if "#" not in lines[n - 1] and not lines[n - 2].lstrip().startswith("#")]


def test_any_without_a_reason_gets_rarer():
    found = {
        path: lines
        for top in ("platform/tenon", "plugins", "backends")
        for path in sorted((ROOT / top).rglob("*.py"))
        if (lines := lines_without_reason(path))
    }
    count = sum(map(len, found.values()))

    most = sorted(found, key=lambda path: -len(found[path]))[:5]
    assert count <= WITHOUT_REASON, f"name the type, or say why: most in {[str(p) for p in most]}"
    assert count > WITHOUT_REASON - 20, f"fewer than before, {count}: lower WITHOUT_REASON"


def test_a_reason_is_a_comment(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("a: Any = 1\nb: Any = 2  # of any type\n# of any type\nc: Any = 3\nd: dict[str, Any]\n")

    assert lines_without_reason(file) == [1, 5]
