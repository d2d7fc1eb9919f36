"""TensorBoard's own tabs in a real Chromium: what they draw of a run that ``tenon train`` wrote."""

import json

import pytest

from tenon_tensorboard.times import times_of

pytest.importorskip("tensorboard")

import browser

pytestmark = pytest.mark.slow

#: Every element that matches, inside of shadow trees too.
DEEP = """
window.deep = (selector, root = document) => {
    const found = [];
    (function walk(node) {
        for (const e of node.querySelectorAll("*")) {
            if (e.matches(selector)) found.push(e);
            if (e.shadowRoot) walk(e.shadowRoot);
        }
    })(root.shadowRoot ?? root);
    return found;
};
"""


class Tabs:
    """TensorBoard's page."""

    def __init__(self, window, address):
        self.window, self.address, self.place = window, address, None

    def open(self, tab, script):
        """Show a tab; the first true value of a script there."""
        if self.place is None:
            self.place = self.window.open(f"{self.address}#{tab}")
        self.window.turn_to(self.place)
        found = "deep('.plugin-name').find((name) => name.textContent.trim().toLowerCase() === arguments[0])"
        self.wait(f"return {found} && ({found}.click(), true)", tab, tab.partition("&")[0].replace("_", " "))
        return self.wait(script, tab)

    def wait(self, script, what, *arguments):
        def found():
            self.window.run(DEEP)
            return self.window.run(script, *arguments)

        return browser.wait_for(found, what)


@pytest.fixture(scope="module")
def tabs(board):
    window, _, address = board
    return Tabs(window, address)


@pytest.fixture
def run(board):
    return board[1] / "digits"


def metrics(run):
    """What the run wrote down itself: {name: [value, ...]}."""
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        for name, value in json.loads(line).items():
            found.setdefault(name, []).append(value)
    return found


def test_scalars_are_drawn_with_the_numbers_of_the_run(run, tabs):
    script = """
        const charts = deep("tf-scalar-card").map((card) => [card.tag, deep("vz-line-chart2", card)[0]]);
        const points = charts.map(([tag, chart]) => [tag, Object.values(chart?._seriesDataCache ?? {})[0]]);
        return points.length >= 5 && points.every(([, values]) => values?.length)
            && points.map(([tag, values]) => [tag, values.map((p) => [p.step, p.scalar])])"""

    drawn = dict(tabs.open("scalars&tagFilter=loss%7Caccuracy%7Cgradient_norm", script))

    known = metrics(run)
    assert {"train/loss", "test/loss", "test/accuracy", "gradient_norm"} <= set(drawn)
    assert [step for step, _ in drawn["gradient_norm"]] == [2, 4, 6]
    assert [value for _, value in drawn["test/accuracy"]] == pytest.approx(known["test_accuracy"], rel=1e-5)
    assert [value for _, value in drawn["test/loss"]] == pytest.approx(known["test_loss"], rel=1e-5)


def test_the_custom_layout_has_both_categories_and_their_charts(tabs):
    script = """
        const cards = deep("tf-custom-scalar-multi-line-chart-card");
        const found = cards.map((card) => [card.title, Object.keys(deep("vz-line-chart2", card)[0]?._seriesDataCache ?? {})]);
        return found.length === 6 && found.every(([, series]) => series.length) && found"""

    drawn = dict(tabs.open("custom_scalars", script))

    assert list(drawn) == ["loss", "accuracy", "learning rate", "speed", "memory", "gradients"]
    assert {name.split(" ")[0] for name in drawn["loss"]} == {"train/loss", "test/loss"}


def test_histograms_show_weights_and_gradients_at_their_steps(tabs):
    script = """
        const cards = deep("tf-histogram-loader").map((card) => [card.tag, deep("path.outline", card).length]);
        return cards.length && cards.every(([, lines]) => lines) && cards"""

    drawn = dict(tabs.open("histograms", script))

    assert {"gradients/classifier.2.bias", "gradients/features.0.weight"} <= set(drawn)
    assert set(drawn.values()) == {2}


def test_hyperparameters_are_a_row_of_the_table_with_the_results(run, tabs):
    script = """
        const cells = deep("vaadin-grid-cell-content").map((cell) => cell.textContent.trim());
        return cells.includes("digits") && cells"""

    cells = tabs.open("hparams", script)

    assert {"batch_size", "test/accuracy", "512.00"} <= set(cells)
    assert f"{metrics(run)['test_accuracy'][1]:.5f}" in cells


def test_texts_are_the_configuration_and_the_model(run, tabs):
    script = """
        const texts = deep("tf-text-loader").map((card) => [card.tag, deep("code", card).map((c) => c.textContent)]);
        return texts.length === 2 && texts.every(([, code]) => code.length) && texts"""

    texts = dict(tabs.open("text", script))

    assert json.loads(texts["config/text_summary"][0]) == json.loads((run / "config.json").read_text())
    assert texts["model/text_summary"][0].startswith("DigitsNet(\n  (features): Sequential(\n")


def test_the_graph_shows_modules_and_colours_them_by_compute_time(run, tabs):
    nodes = "const n = deep('g.node').map((g) => g.getAttribute('data-name')); return n.length > {} && n"
    assert set(tabs.open("graphs", nodes.format(2))) == {"input", "DigitsNet", "output"}

    tabs.window.run("deep('paper-item').find((i) => i.textContent.trim() === 'forward').click()")
    radio = "deep('paper-radio-button').find((r) => r.name === 'compute_time')"
    tabs.wait(f"return !{radio}.disabled", "the times")
    tabs.window.run(f"{radio}.click()")
    fill = """
        const node = deep("g.node").find((g) => g.getAttribute("data-name") === "DigitsNet");
        const fill = getComputedStyle(node.querySelector(".nodecolortarget")).fill;
        return fill.startsWith("rgb") && fill"""
    colour = tabs.wait(fill, "the colour")
    tabs.window.run("deep('tf-graph-scene')[0].fire('node-toggle-expand', {name: 'DigitsNet'})")
    inside = tabs.wait(nodes.format(5), "the modules inside")
    # The tab forgets a selection that comes while it draws.
    said = """
        deep("tf-graph-scene")[0].fire("node-select", {name: "DigitsNet"});
        const leaves = deep("tf-node-info").flatMap((info) => deep("*:not(style)", info)).filter((e) => !e.children.length);
        const texts = leaves.map((e) => e.textContent.trim()); return texts.includes("Compute Time") && texts"""
    texts = tabs.wait(said, "the node's numbers")

    (trace,) = run.glob("*.pt.trace.json.gz")
    times = times_of(trace)["forward"]
    left_out = {path for path, op in times if op == "dropout_mask"}  # the graph is that of the finished model
    spent = sum(
        time for (path, _), time in times.items() if path.startswith("DigitsNet") and path not in left_out
    )
    number, unit = texts[texts.index("Compute Time") + 1].split(" ")
    assert {"DigitsNet/features", "DigitsNet/classifier"} <= set(inside)
    assert float(number) * {"ms": 1000, "μs": 1}[unit] == pytest.approx(spent, rel=0.02)
    assert "512×10" in texts and colour != "rgb(255, 255, 255)"
