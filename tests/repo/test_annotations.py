"""``Any`` in annotations has a comment that gives the reason."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def lines_without_reason(path):
    """The numbers of the lines of ``path`` that read the name ``Any`` without a comment beside or above it."""
    text = path.read_text()
    lines = text.split("\n")
    if not any(
        "Any" in line and "#" not in line and not line.startswith(("from ", "import ")) for line in lines
    ):
        return []
    named = {n.lineno for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name) and n.id == "Any"}
    return [n for n in sorted(named) if "#" not in lines[n - 1] and not lines[n - 2].lstrip().startswith("#")]


@pytest.mark.slow
def test_any_is_used_with_a_reason():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for top in ("platform/tenon", "plugins", "backends")
        for path in sorted((ROOT / top).rglob("*.py"))
        for number in lines_without_reason(path)
    ]

    assert not found, f"name the type, or say why it is any in a comment: {found}"


def test_a_reason_is_a_comment(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("a: Any = 1\nb: Any = 2  # of any type\n# of any type\nc: Any = 3\nd: dict[str, Any]\n")

    assert lines_without_reason(file) == [1, 5]
