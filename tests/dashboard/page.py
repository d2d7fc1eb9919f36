"""The dashboard's page in a Chromium, and the runs that it shows in tests."""

import gzip

import browser
import traces
from traces import memory, span

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

#: Files of ranks 2, 3, ... that are wrong in other ways, and what is said of each.
BAD = {
    gzip.compress(b'{"traceEvents": [' + b"[" * 200_000): "values nested too deep",
    gzip.compress(
        b'{"traceEvents": [{"ph": "X", "ts": NaN, "dur": 5.0, "name": "some name"}]}'
    ): "NaN is not a JSON",
    gzip.compress(b'{"traceEvents": [{"ph": "X", "name": "' + b"A" * 9_000_000): "a value longer than",
    gzip.compress(b'{"traceEvents": {"a": 1}}'): "traceEvents is not a list",
    gzip.compress(b'{"a": "\xff\xfe"}'): "not UTF-8",
    gzip.compress(b'{"traceEvents": []}')[:-6] + b"wrong!": "damaged gzip",
    b"\x00" * 10_000: "begins with",
}


def write_runs(logdir):
    traces.training_run(logdir / "slow", ranks=4, steps=5, ops=10, slow=2)
    traces.training_run(logdir / "even", ranks=2, steps=5, ops=10)
    fused = {
        "Kernel": 1,
        "Source ops": ["mul", "add"],
        "Source": "model.py:12",
        "FLOPs": 10**6,
        "Bytes": 2000,
    }
    gpu = {"device": 0, "stream": 7, "grid": [4, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 50}
    events = [
        span("cpu_op", MARKUP, 0, 10, Module=f"Net.{MARKUP}", **{"Input Dims": [[MARKUP]]}),
        span("cpu_op", "tenon::fused_mul_add", 20, 10, **fused),
        span("cpu_op", "tenon::program", 15, 20, Program="<tenon program 3>"),
        span("kernel", "volta_sgemm", 20, 5, pid=0, tid=7, **gpu),
        memory(5, 2048, 1, 2048, MARKUP, MARKUP),
        {"ph": "X", "name": "no time"},
        span("user_annotation", "ProfilerStep#3", 0, 100),
    ]
    traces.write(logdir / "hostile", events)
    (logdir / "hostile" / f"{MARKUP[:9]}_1.1.pt.trace.json.gz").write_bytes(b"no trace")
    for rank, data in enumerate(BAD, 2):
        (logdir / "hostile" / f"node_{rank}.1.pt.trace.json.gz").write_bytes(data)
    outside = traces.write(logdir.parent / "outside", [span("cpu_op", "secret", 0, 1)])
    (logdir / "hostile" / "node_99.1.pt.trace.json.gz").symlink_to(outside)


class Page:
    """The dashboard's frame."""

    def __init__(self, window, logdir, address):
        self.window, self.logdir, self.address = window, logdir, address
        self.tab = window.open(f"{address}#tenon")
        window.enter_frame()

    def turn_to(self):
        if self.window.turn_to(self.tab):
            self.window.enter_frame()

    def settle(self):
        ready = """
            if (document.querySelector("progress")) return false;
            if (document.querySelector("[aria-selected=true]")?.id === "tab-trace")
                return document.querySelector("canvas")?.dataset.lanes > 0;
            return document.querySelector(".panels")?.getAttribute("aria-busy") === "false";
        """
        browser.wait_for(lambda: self.window.run(ready), "the view")

    def choose(self, label, value):
        changed = self.window.run(
            """
            const labels = [...document.querySelectorAll("label")];
            const box = labels.find((l) => l.textContent.startsWith(arguments[0])).querySelector("select");
            if (box.value === arguments[1]) return false;
            box.value = arguments[1]; box.dispatchEvent(new Event("change")); return true;""",
            label,
            value,
        )
        if changed:
            self.settle()

    def show(self, view, run="slow", compare="", ranks="all"):
        self.choose("Run", run)
        self.choose("Compare", compare)
        self.choose("Ranks", ranks)
        self.window.click(self.window.run("return document.getElementById(arguments[0])", f"tab-{view}"))
        self.settle()

    def rows(self, caption):
        """The cells of the table whose caption begins so."""
        return self.window.run(
            """const table = [...document.querySelectorAll("table")].find((t) => t.caption.textContent.startsWith(arguments[0]));
            return [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));""",
            caption,
        )

    def text(self, selector):
        return self.window.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
        )
