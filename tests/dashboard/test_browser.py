"""The dashboard in a real Chromium: what each view shows, that nothing runs and that no request leaves."""

import shutil
import urllib.error
import urllib.request

import browser
import pytest
import traces
from page import BAD, MARKUP

pytestmark = pytest.mark.slow


def test_overview_shows_the_split_of_each_rank_and_says_who_is_late(page):
    page.show("overview")

    rows = page.rows("Mean step of each rank")
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert rows[0][1:8] == [
        "4.55 ms", "2.50 ms · 54.9 %", "200 µs · 4.4 %", "1.35 ms · 29.7 %", "150 µs · 3.3 %", "300 µs · 6.6 %", "50.0 µs · 1.1 %",
    ]  # fmt: skip
    assert rows[2][2] == "3.75 ms · 82.4 %" and rows[2][4] == "100 µs · 2.2 %"
    (first,) = page.text(".advice li")
    assert first.startswith("Rank 0 waits 30 % of each step in all_reduce: rank 2 comes last to 100 %")
    assert len(page.rows("Each step")) == 5
    bars = page.window.run(
        "return [...document.querySelectorAll('.chart')].map((c) => c.querySelectorAll('rect').length)"
    )
    assert bars == [4 * 6, 5 * 6]
    assert page.text(".legend li") == ["compute", "communication", "wait", "data", "optimizer", "other"]


def test_operators_sort_by_any_column_and_filter_by_text(page):
    page.show("operators")

    rows = page.rows("Operators")
    assert rows[0][:7] == ["AddmmBackward0", "", "16.9 ms", "27.1 %", "33.8 ms", "200", "84.4 µs"]
    linear = next(row for row in rows if row[0] == "tenon::linear")
    assert linear[1:6] == ["64x32, 64x32", "11.3 ms", "18.1 %", "11.3 ms", "100"]
    assert linear[7:10] == ["2.33 GFLOP/s", "139 MiB/s", "4.7 %"]
    page.window.run(
        "[...document.querySelectorAll('thead button')].find((b) => b.textContent === 'operator').click()"
    )
    assert [row[0] for row in page.rows("Operators")] == sorted((row[0] for row in rows), key=str.lower)
    assert page.window.run("return document.querySelector('th[aria-sort]').textContent") == "operator"
    page.window.run(
        "const i = document.querySelector('input[type=search]'); i.value = 'lin'; i.dispatchEvent(new"
        " Event('input'))"
    )
    assert [row[0] for row in page.rows("Operators")] == ["tenon::linear"]
    page.window.run(
        "const i = document.querySelector('input[type=search]'); i.value = ''; i.dispatchEvent(new"
        " Event('input'))"
    )
    page.choose("Group by", "name")
    assert page.text("thead th")[:2] == ["operator", "self"]
    page.choose("Ranks", "2")
    assert next(row for row in page.rows("Operators") if row[0] == "tenon::linear")[1] == "3.75 ms"


@pytest.mark.slow
def test_two_runs_are_compared_side_by_side(page):
    page.show("operators", compare="even")
    linear = next(row for row in page.rows("Self time") if row[0] == "tenon::linear")
    assert linear == ["tenon::linear", "11.3 ms", "5.00 ms", "−6.25 ms", "0.44", "100", "50"]

    page.show("overview", compare="even")
    assert page.text(".panel h2.run") == ["slow", "even"]
    assert page.text(".advice")[1] == "Nothing stands out."


def test_modules_show_a_tree_that_folds_and_a_flame_graph_that_zooms(page):
    page.show("modules")

    rows = page.rows("Modules")
    assert [row[0].lstrip("▾▸") for row in rows] == ["NetNet", "layers", "0Linear", "1Linear"]
    assert rows[0][1:7] == ["20", "22.5 ms", "0", "33.8 ms", "27.2 MFLOP", "80.0 KiB"]
    page.window.run("document.querySelector('[aria-expanded]').click()")
    assert len(page.rows("Modules")) == 1
    page.window.run("document.querySelector('[aria-expanded]').click()")
    assert page.text(".flame button") == ["Net", "layers", "0 Linear", "1 Linear"]
    page.window.run("document.querySelectorAll('.flame button')[2].click()")
    assert page.text(".flame button") == ["0 Linear"]
    page.window.run(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Show the whole"
        " model').click()"
    )
    assert len(page.text(".flame button")) == 4


def test_memory_shows_the_curve_the_peak_and_its_owners(page):
    page.show("memory", ranks="1")

    assert page.rows("Memory of each") == [["1", "cpu", "9.00 KiB", "4.55 ms", "1.00 KiB", "1.00 KiB", "10"]]
    assert page.rows("Rank 1, cpu")[0] == [
        "Net.layers.0",
        "tenon::linear",
        "forward",
        "4.00 KiB",
        "44.4 %",
        "1",
    ]
    assert page.text(".chart .strong") == ["peak 9.00 KiB"]
    assert page.text(".chart .axis") == ["since the run's first event (ms)", "allocated (KiB)"]


def test_distributed_shows_waits_bytes_and_bandwidth(page):
    page.show("distributed")

    assert page.rows("Arrival")[0] == ["2", "5 of 5", "1.25 ms"]
    assert page.rows("Collectives") == [
        ["all_reduce", "24.8 ms", "20", "20.8 ms", "83.8 %", "4.00 ms", "19.1 MiB", "4.66 GiB/s"]
    ]


@pytest.mark.slow
def test_the_trace_zooms_by_keys_searches_and_lists_what_it_shows(page):
    page.show("trace", run="even")

    assert page.text(".tools .note")[1] == "16.5 ms from 0"
    page.window.run("document.querySelector('canvas').focus()")
    page.window.keys("++")
    browser.wait_for(lambda: page.text(".tools .note")[1].startswith("6.45 ms"), "the zoom")
    page.window.keys("0")
    page.window.run("document.querySelector('.tools input').focus()")
    page.window.keys("adamw_step\ue007")
    browser.wait_for(lambda: page.text(".chosen strong") == ["tenon::adamw_step"], "the match")
    assert page.text(".tools .note")[0] == "10 found"
    assert dict(zip(page.text(".chosen dt"), page.text(".chosen dd"), strict=True)) == {
        "rank": "0", "start": "2.95 ms", "time": "300 µs", "Phase": "optimizer", "Bytes": "4000000",
    }  # fmt: skip
    page.window.run("document.querySelector('summary').click()")
    shown = ["tenon::adamw_step", "0", "300 µs", "2.95 ms", "2", "100 / 1"]
    browser.wait_for(lambda: shown in page.rows("The longest spans"), "the table")


@pytest.mark.slow
def test_hostile_names_are_shown_as_text_and_bad_files_are_named(page):
    page.show("operators", run="hostile")

    assert MARKUP in [row[0] for row in page.rows("Operators")]
    assert any("More than 100 %: the machine was busy" in note for note in page.text(".note"))
    problems = page.text(".problem p")
    assert (
        "Rank 1 is left out. <img src=_1.1.pt.trace.json.gz: begins with 'no trace', not with a JSON object."
        in problems
    )
    assert any("an event of node_0.1.pt.trace.json.gz left out: `ts` is not a number." in p for p in problems)
    for rank, said in enumerate(BAD.values(), 2):
        start = f"Rank {rank} is left out. node_{rank}.1.pt.trace.json.gz: "
        assert any(p.startswith(start) and said in p for p in problems), (said, problems)
    assert len(problems) == 1 + 1 + len(BAD)
    for view in ("overview", "modules", "memory", "distributed", "trace"):
        page.show(view, run="hostile")
        assert "secret" not in page.window.run("return document.body.textContent")
    page.show("kernels", run="hostile")
    assert page.rows("Each kernel") == [
        [
            "tenon::fused_mul_add",
            "mul, add",
            "10.0 µs",
            "1",
            "10.0 µs",
            "100 GFLOP/s",
            "191 MiB/s",
            "model.py:12",
        ]
    ]
    assert page.rows("Runs of each compiled") == [["<tenon program 3>", "20.0 µs", "1", "20.0 µs"]]
    assert page.rows("Kernels on GPUs") == [
        ["volta_sgemm", "cuda:0", "5.00 µs", "1", "5.00 µs", "4x1x1", "256x1x1", "50 %"]
    ]
    assert page.window.run("return document.title") == "tenon"
    assert page.window.run("return document.querySelectorAll('img, .panels script').length") == 0


def test_arrow_keys_go_through_the_tabs(page):
    page.show("overview")

    page.window.run("document.getElementById('tab-overview').focus()")
    page.window.keys("\ue014")
    page.settle()

    assert page.window.run("return document.activeElement.id") == "tab-operators"
    assert page.text("[role=tab][aria-selected=true]") == ["Operators"]


def test_colours_follow_the_dark_mode_of_tensorboard(page):
    look = "return [document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor]"
    before = page.window.run(look)
    flip = "window.parent.document.body.classList.toggle('dark-mode')"

    page.window.run(flip)
    browser.wait_for(lambda: page.window.run(look) != before, "the other theme")
    after = page.window.run(look)
    page.window.run(flip)

    assert {before[0], after[0]} == {"light", "dark"}
    assert {before[1], after[1]} == {"rgb(255, 255, 255)", "rgb(32, 33, 36)"}
    browser.wait_for(lambda: page.window.run(look) == before, "the first theme")


@pytest.mark.slow
def test_a_run_that_goes_on_is_drawn_again_and_one_that_is_removed_makes_room(page):
    events, end = traces.training_step(0, 0.0)
    more, _ = traces.training_step(1, end)
    text = traces.text(events + more)
    cut = text.index("ProfilerStep#0") + 200
    path = page.logdir / "live" / "node_0.1.pt.trace.json.part"
    path.parent.mkdir()
    path.write_text(text[:cut])
    look = "document.dispatchEvent(new Event('visibilitychange'))"
    names = "return [...document.querySelector('.choices select').options].map((o) => o.value)"

    def looked_again(condition):
        page.window.run(look)
        return condition()

    browser.wait_for(lambda: looked_again(lambda: "live" in page.window.run(names)), "the new run")
    page.show("overview", run="live")
    assert [row[0] for row in page.rows("Each step")] == ["0"]
    assert page.text(".status") == ["1 of 1 traces unfinished: still being written, or cut off"]

    with path.open("a") as file:
        file.write(text[cut:-5])
    browser.wait_for(lambda: looked_again(lambda: len(page.rows("Each step")) == 2), "the next step")
    with path.open("a") as file:
        file.write(text[-5:])
    path.rename(path.with_suffix(""))
    browser.wait_for(lambda: looked_again(lambda: page.text(".status") == ["1 trace"]), "the end")

    shutil.rmtree(path.parent)
    browser.wait_for(lambda: looked_again(lambda: "live" not in page.window.run(names)), "the run's end")
    page.settle()
    assert page.window.run("return document.querySelector('.choices select').value") == "slow"
    assert page.rows("Mean step of each rank") and page.text(".problem") == []
    # What the page requested during the run.
    assert all("run=live" in line and "404" in line for line in page.window.severe())


@pytest.mark.slow
def test_runs_of_other_ranks_and_operators_are_compared_as_far_as_they_go(page):
    page.show("operators", run="even", compare="hostile")
    rows = {row[0]: row[1:] for row in page.rows("Self time")}
    assert rows["tenon::fused_mul_add"] == ["0", "10.0 µs", "+10.0 µs", "only B", "0", "1"]
    assert rows["tenon::relu"] == ["5.00 ms", "0", "−5.00 ms", "0.00", "50", "0"]

    page.show("overview", run="slow", compare="even", ranks="3")
    assert page.rows("Mean step of each rank")[0][0] == "3"
    assert page.text(".panel .note") == ["This run has nothing of rank 3."]


@pytest.mark.parametrize(
    "path",
    [
        "static/../views.py",
        "static/%2e%2e/views.py",
        "static/..%2fviews.py",
        "static//etc/passwd",
        "static/x.js",
    ],
)
def test_no_path_leads_to_other_files(page, path):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{page.address}data/plugin/tenon/{path}")
