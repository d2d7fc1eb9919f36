"""Accessibility of the dashboard: keyboard, screen reader roles and both colour schemes, in a real Chromium."""

import browser
import pytest

pytestmark = pytest.mark.slow
VIEWS = ("overview", "operators", "modules", "memory", "kernels", "distributed", "trace")
#: Everything that acts, but those that arrow keys reach: other tabs, other boxes of the flame graph.
CONTROLS = """
const wanted = [...document.querySelectorAll("button, select, input, summary, canvas, .scroll")].filter((e) =>
    e.checkVisibility() && !e.disabled && e.tabIndex >= 0);
"""
TAB, LEFT, RIGHT, DOWN, ENTER = "\ue004", "\ue012", "\ue014", "\ue015", "\ue007"
#: Texts whose colour is nearer than 4.5 to 1 to what is behind them: WCAG's formula.
CONTRAST = """
const parse = (text) => {
    const [r, g, b, a = 1] = (text.startsWith("color(srgb")
        ? text.match(/[\\d.]+/g).map((n, i) => (i < 3 ? n * 255 : +n)) : text.match(/[\\d.]+/g).map(Number));
    return [r, g, b, a];
};
const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
const light = (colour) => colour.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) layers.unshift(getComputedStyle(at));
    return layers.reduce((found, style) => {
        const colours = [over(parse(style.backgroundColor), found)];
        const bar = style.backgroundImage.match(/rgba?\\([^)]*\\)/);
        if (bar && style.backgroundSize !== "0px") colours.push(over(parse(bar[0]), found));
        return colours.sort((p, q) => ratio(p, ink(e)) - ratio(q, ink(e)))[0];
    }, [255, 255, 255]);
};
const ink = (e) => parse(e instanceof SVGElement ? getComputedStyle(e).fill : getComputedStyle(e).color);
return [...document.querySelectorAll("body *")]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
    .filter((e) => e.checkVisibility() && !e.disabled && !["OPTION", "TITLE"].includes(e.tagName))
    .map((e) => [e.textContent.trim().slice(0, 40), ratio(over(ink(e), behind(e)), behind(e))])
    .filter(([, found]) => found < 4.5);
"""
INK = """
const style = getComputedStyle(document.documentElement);
const names = ["compute", "communication", "wait", "data", "optimizer", "other", "module", "annotation", "joined"];
return import("./static/lanes.js").then(({ inkOn }) => names.map((name) => {
    const back = style.getPropertyValue(`--${name}`).trim();
    return [back, inkOn(back)];
}));
"""


@pytest.mark.parametrize("view", VIEWS)
def test_the_tab_key_reaches_everything_that_acts(page, view):
    page.show(view)
    count = page.window.run(f"{CONTROLS} window.met = new Set(); return wanted.length")
    page.window.run("document.addEventListener('focusin', (event) => window.met.add(event.target))")
    page.window.run("document.querySelector('select').focus()")

    page.window.keys(TAB * (count + 5))

    missed = page.window.run(
        f"{CONTROLS} return wanted.filter((e) => !window.met.has(e)).map((e) => e.outerHTML)"
    )
    assert missed == [] and count >= 4


def test_tables_sort_and_folds_open_by_keyboard(page):
    page.show("operators", run="even")
    page.window.run("document.querySelectorAll('thead button')[0].focus()")
    page.window.keys(ENTER)
    assert page.window.run("return document.querySelector('th[aria-sort]').textContent") == "operator"

    page.show("overview")
    page.window.run("document.querySelector('summary').focus()")
    page.window.keys(ENTER)
    assert page.window.run("return document.querySelector('details').open")


def test_the_flame_graph_is_walked_and_zoomed_by_keyboard(page):
    page.show("modules")
    focused = "return document.activeElement.getAttribute('aria-label')"
    page.window.run("document.querySelector('.flame button').focus()")

    page.window.keys(DOWN + DOWN)
    first = page.window.run(focused)
    page.window.keys(RIGHT)
    second = page.window.run(focused)
    page.window.keys(ENTER)

    assert first.startswith("Net.layers.0 (Linear)") and second.startswith("Net.layers.1 (Linear)")
    assert page.text(".flame button") == ["1 Linear"]
    page.window.run(
        "[...document.querySelectorAll('button')].find((b) => b.textContent.startsWith('Show the')).click()"
    )


def test_the_timeline_moves_by_keyboard_and_says_where_it_is(page):
    page.show("trace", run="even")
    page.window.run("document.querySelector('canvas').focus()")
    where = "[...document.querySelectorAll('.tools [role=status]')].at(-1).textContent"

    page.window.keys("+")
    browser.wait_for(lambda: page.window.run(f"return {where}").startswith("10.3 ms"), "the zoom")
    begin = page.window.run(f"return {where}")
    page.window.keys(RIGHT)
    assert page.window.run(f"return {where}") != begin
    page.window.keys(LEFT)
    assert page.window.run(f"return {where}") == begin


def heard(page):
    """[role, name] of what a screen reader meets in the dashboard."""
    tree = page.window.protocol("Page.getFrameTree")["frameTree"]
    (frame,) = [c["frame"]["id"] for c in tree["childFrames"] if c["frame"]["url"].endswith("name=tenon")]
    nodes = page.window.protocol("Accessibility.getFullAXTree", frameId=frame)["nodes"]
    return [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]


@pytest.mark.parametrize("view", VIEWS)
def test_everything_has_a_name_for_screen_readers(page, view):
    page.show(view, run="hostile" if view == "kernels" else "slow")

    met = heard(page)

    roles = {role for role, _ in met}
    acting = {
        "button",
        "combobox",
        "searchbox",
        "tab",
        "application",
        "image",
        "region",
        "table",
        "progressbar",
    }
    assert [role for role, name in met if role in acting and not name.strip()] == []
    assert [name for role, name in met if role == "tab"] == [v.capitalize() for v in VIEWS]
    assert ("tabpanel", view.capitalize()) in met and ("heading", "Profiles of tenon") in met
    assert ("tablist", "Views") in met and "status" in roles
    expected = {"overview": "image", "memory": "image", "distributed": "image", "trace": "application"}
    assert expected.get(view, "table") in roles


def test_a_screen_reader_hears_the_heads_of_rows_and_columns(page):
    page.show("distributed")

    met = heard(page)

    assert (
        "table",
        "Collectives over all chosen ranks; bandwidth is bytes over transfer time, without the wait",
    ) in met
    assert ("rowheader", "all_reduce") in met and ("columnheader", "bandwidth") in met


def test_every_text_can_be_read_in_light_and_dark(page):
    flip = "window.parent.document.body.classList.toggle('dark-mode')"
    try:
        for theme in ("light", "dark"):
            browser.wait_for(
                lambda theme=theme: page.window.run("return document.documentElement.dataset.theme") == theme,
                theme,
            )
            for back, text in page.window.run(INK):
                assert contrast(back, text) >= 4.5
            for view in VIEWS:
                page.show(view, run="hostile" if view == "kernels" else "slow")
                assert page.window.run(CONTRAST) == [], (theme, view)
            page.window.run(flip)
    finally:
        page.window.run("window.parent.document.body.classList.remove('dark-mode')")


def contrast(*colours):
    light = []
    for colour in colours:
        shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(light) + 0.05) / (min(light) + 0.05)
