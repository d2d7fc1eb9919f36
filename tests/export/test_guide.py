"""The guides to exporting and to traces: every block runs."""

import json
import re
from pathlib import Path

import pytest

from tenon.export import schema, values

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"


@pytest.mark.parametrize(("guide", "count"), [("export.md", 10), ("torchscript.md", 2)])
def test_code_of_the_guide_runs(guide, count):
    blocks = re.findall(r"^```python\n(.*?)^```", (GUIDE / guide).read_text("utf-8"), re.M | re.S)
    space = {}

    for block in blocks:
        exec(compile(block, "<guide>", "exec"), space)

    assert len(blocks) == count


def test_the_example_of_the_schema_is_read():
    import tenon

    text = (GUIDE / "graph-json.md").read_text("utf-8")
    document = json.loads(re.search(r"^```json\n(.*?)^```", text, re.M | re.S).group(1))
    weights = {"0.weight": tenon.ones(3, 4), "0.bias": tenon.ones(3)}

    graph = schema.from_document(document, weights, "graph.json")

    assert graph.run(tenon.ones(7, 4)).tolist() == [[5.0] * 3] * 7


def test_every_form_of_a_value_in_the_guide_is_read():
    forms = re.findall(r'`(\{".*?\})`', (GUIDE / "graph-json.md").read_text("utf-8"))
    decoder = values.Decoder(lambda ref: ref, ["height"])

    for form in forms:
        values.decode(json.loads(form), decoder)

    assert len(forms) >= 8
