"""``DotGraph``: a drawing of nodes and edges, as text in Graphviz' language or as SVG, without Graphviz."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from pathlib import Path

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z|-?[0-9.]+\Z")
#: Sizes of the SVG in pixels: of a letter, of a line, between boxes, and around everything.
_LETTER, _LINE, _GAP, _MARGIN = 7, 16, 28, 16
_COLORS = {
    "wheat1": "#ffe7ba",
    "lemonchiffon1": "#fffacd",
    "peachpuff1": "#ffdab9",
    "thistle1": "#ffe1ff",
    "khaki1": "#fff68f",
}


@dataclass
class DotNode:
    """A box, and its attributes in Graphviz' language: label, shape, fillcolor, ..."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def get_label(self) -> str:
        """Return the text."""
        return self.attributes.get("label", self.name)


@dataclass
class DotGraph:
    """A drawing: boxes and the arrows between them.

    >>> graph = DotGraph("g", [DotNode("x"), DotNode("y")], [("x", "y")])
    >>> print(graph.to_string())
    digraph g {
    rankdir=TB;
    x;
    y;
    x -> y;
    }
    <BLANKLINE>
    """

    name: str
    nodes: list[DotNode] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)
    rankdir: str = "TB"

    def get_nodes(self) -> list[DotNode]:
        """Return the boxes."""
        return self.nodes

    def get_edges(self) -> list[tuple[str, str]]:
        """Return the arrows: names of boxes, from and to."""
        return self.edges

    def to_string(self) -> str:
        """Return the drawing in Graphviz' language."""
        lines = [f"digraph {_quoted(self.name)} {{", f"rankdir={self.rankdir};"]
        for node in self.nodes:
            attributes = ", ".join(f"{key}={_quoted(value)}" for key, value in node.attributes.items())
            lines.append(f"{_quoted(node.name)} [{attributes}];" if attributes else f"{_quoted(node.name)};")
        lines += [f"{_quoted(a)} -> {_quoted(b)};" for a, b in self.edges]
        return "\n".join([*lines, "}", ""])

    def create_svg(self) -> bytes:
        """Return the drawing as SVG: boxes in rows, each below the sources of its arrows."""
        return _svg(self).encode()

    def write(self, path: str | Path) -> bool:
        """Write the drawing: as SVG to a file ``*.svg``, else in Graphviz' language; return True."""
        data = self.create_svg() if str(path).endswith(".svg") else self.to_string().encode()
        Path(path).write_bytes(data)
        return True

    def write_svg(self, path: str | Path) -> bool:
        """Write the drawing as SVG."""
        Path(path).write_bytes(self.create_svg())
        return True

    def write_raw(self, path: str | Path) -> bool:
        """Write the drawing in Graphviz' language."""
        Path(path).write_text(self.to_string())
        return True

    write_dot = write_raw


def _quoted(text: str) -> str:
    return text if _WORD.match(text) else '"' + text.replace('"', '\\"') + '"'


def _rows(graph: DotGraph) -> list[list[DotNode]]:
    """Return the boxes in rows, by the longest path of arrows that leads to them."""
    above: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for a, b in graph.edges:
        if a in above and b in above:
            above[b].append(a)
    depth: dict[str, int] = {}
    for _ in range(len(graph.nodes)):  # nodes may be in any order; this also terminates for a cycle
        new = {
            name: 1 + max((depth.get(a, 0) for a in sources), default=-1) for name, sources in above.items()
        }
        if new == depth:
            break
        depth = new
    rows: list[list[DotNode]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for node in graph.nodes:
        rows[depth[node.name]].append(node)
    return rows


def _text(node: DotNode) -> list[str]:
    """Return the lines of a box: a record label without its braces and bars."""
    label = node.get_label()
    if label.startswith("{") and label.endswith("}"):
        label = label[1:-1]
    label = label.replace("\\n", "\n").replace("\\l", "\n").replace("\\{", "{").replace("\\}", "}")
    return [line for line in re.split(r"[|\n]", label) if line]


def _svg(graph: DotGraph) -> str:
    texts = {node.name: _text(node) for node in graph.nodes}
    sizes = {
        name: (2 * 8 + _LETTER * max(map(len, lines), default=1), 2 * 6 + _LINE * max(1, len(lines)))
        for name, lines in texts.items()
    }
    places: dict[str, tuple[int, int]] = {}
    y, width = _MARGIN, 0
    for row in _rows(graph):
        x = _MARGIN
        for node in row:
            places[node.name] = (x, y)
            x += sizes[node.name][0] + _GAP
        width = max(width, x - _GAP + _MARGIN)
        y += max(sizes[node.name][1] for node in row) + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" font-family="monospace"'
        ' font-size="12">',
        f"<title>{html.escape(graph.name)}</title>",
        '<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>',
    ]
    for a, b in graph.edges:
        if a in places and b in places:
            x1, y1 = places[a][0] + sizes[a][0] // 2, places[a][1] + sizes[a][1]
            x2, y2 = places[b][0] + sizes[b][0] // 2, places[b][1]
            parts.append(
                f'<path d="M{x1},{y1} C{x1},{y1 + _GAP} {x2},{y2 - _GAP} {x2},{y2}" fill="none"'
                ' stroke="black" marker-end="url(#arrow)"/>'
            )
    for node in graph.nodes:
        (x, top), (w, h) = places[node.name], sizes[node.name]
        color = node.attributes.get("fillcolor", "white").lower()
        parts.append(
            f'<rect x="{x}" y="{top}" width="{w}" height="{h}" rx="6" stroke="black"'
            f' fill="{_COLORS.get(color, color)}"/>'
        )
        for k, line in enumerate(texts[node.name], 1):
            parts.append(f'<text x="{x + 8}" y="{top + k * _LINE}">{html.escape(line)}</text>')
    return "\n".join([*parts, "</svg>", ""])
