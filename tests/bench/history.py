"""The history of speed: instructions of small work at commits that touched speed, and a plot of them.

    python tests/bench/history.py                 # count this tree, add a line for its commit, draw the plot
    python tests/bench/history.py --revision REV  # count another revision
    python tests/bench/history.py --plot          # draw only

``history/counts.json`` holds a JSON object a line, in the order of the commits: what ``counts.py`` counts, which does
not depend on how busy a machine is. A commit is counted once; counting it again replaces its line. The plot,
``docs/images/instructions.svg``, shows each work next to the first line.
"""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import counts
import numpy

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FILE = HERE / "history" / "counts.json"
PLOT = ROOT / "docs" / "images" / "instructions.svg"
WIDTH, HEIGHT, LEFT, TOP, LEGEND = 900, 420, 60, 30, 270
COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#6cc5b0",
    "#3ca951",
    "#ff8ab7",
    "#a463f2",
    "#97bbf5",
    "#9c6b4e",
    "#9498a0",
)


def git(*words):
    """What git prints."""
    return subprocess.run(
        ["git", "-C", ROOT, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def entry(revision):
    """A line of the history: who, when, on what, and the counts."""
    commit, date, subject = git("log", "-1", "--format=%h%n%cs%n%s", revision).splitlines()
    with counts.tree_of(revision) as tree:
        found = counts.counted(tree)
    return {
        "commit": commit, "date": date, "subject": subject,
        "python": platform.python_version(), "numpy": numpy.__version__, "machine": platform.machine(),
        "instructions": {name: round(number) for name, number in found.items()},
    }  # fmt: skip


def read(file=FILE):
    """All lines."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def put(lines, new, position):
    """``lines`` with ``new`` in place of the line of its commit, or where ``position(commit)`` sorts it."""
    others = [line for line in lines if line["commit"] != new["commit"]]
    return sorted([*others, new], key=lambda line: position(line["commit"]))


def age(commit):
    """How many commits lead to ``commit``."""
    return int(git("rev-list", "--count", commit))


def ratios(lines):
    """``{work: [(index of the line, instructions over the first line that has the work)]}``."""
    found = {}
    for index, line in enumerate(lines):
        for work, number in line["instructions"].items():
            found.setdefault(work, []).append((index, number))
    return {work: [(i, n / points[0][1]) for i, n in points] for work, points in found.items()}


def drawn(lines):
    """The plot as SVG: a line a work, 1.0 at the first commit that has it; lower is less to execute."""
    works = ratios(lines)
    values = [ratio for points in works.values() for _, ratio in points] or [1.0]
    low, high = min(*values, 0.9), max(*values, 1.1)
    right, bottom = WIDTH - LEGEND, HEIGHT - 60

    def x(index):
        return LEFT + (right - LEFT) * (index / max(len(lines) - 1, 1))

    def y(ratio):
        return bottom - (bottom - TOP) * (ratio - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-size="13">Instructions of a call, beside the first commit shown</text>',
    ]
    for step in range(5):
        ratio = low + (high - low) * step / 4
        parts.append(
            f'<line x1="{LEFT}" x2="{right}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio:.2f}</text>')
    for index, line in enumerate(lines):
        label = f"<title>{escape(line['subject'])}</title>{line['commit']} {line['date']}"
        anchor = "start" if index == 0 else "end" if index == len(lines) - 1 else "middle"
        height = bottom + 18 + 14 * (index % 2)
        parts.append(f'<text x="{x(index):.1f}" y="{height}" text-anchor="{anchor}">{label}</text>')
    for number, (work, points) in enumerate(works.items()):
        colour = COLOURS[number % len(COLOURS)]
        dash = ' stroke-dasharray="5 3"' if number >= len(COLOURS) else ""
        way = " ".join(f"{x(i):.1f},{y(ratio):.1f}" for i, ratio in points)
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts += [
            f'<circle cx="{x(i):.1f}" cy="{y(ratio):.1f}" r="2.5" fill="{colour}"/>' for i, ratio in points
        ]
        row = TOP + 10 + number * 20
        parts.append(
            f'<line x1="{right + 20}" x2="{right + 44}" y1="{row - 4}" y2="{row - 4}" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        parts.append(f'<text x="{right + 50}" y="{row}">{escape(work)} {points[-1][1]:.3f}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main():
    """Count, add, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--revision", default="HEAD", help="the revision to count; this one by default")
    parser.add_argument("--plot", action="store_true", help="count nothing")
    given = parser.parse_args()
    lines = read()
    if not given.plot:
        if given.revision == "HEAD" and git("status", "--porcelain", "--", "platform", "plugins", "backends"):
            sys.exit("There are uncommitted changes, which no line of a commit should count. Commit first.")
        lines = put(lines, entry(given.revision), age)
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text("".join(json.dumps(line) + "\n" for line in lines))
    PLOT.write_text(drawn(lines))
    for work, points in ratios(lines).items():
        print(f"{work:34}{points[-1][1]:8.3f}")


if __name__ == "__main__":
    main()
