"""How soon the dashboard shows a large run: 8 ranks, 100 steps, 2,000 ops a step, as the profiler writes them.

``python tests/bench/dashboard.py`` asks the routes as the page does; ``--browser`` looks on in a real Chromium,
``--cores 1`` gives everything one core, ``--memory`` adds two changes of memory an op.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import resource
import sys
import tempfile
import threading
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "dashboard"))

import browser

VIEWS = ("overview", "operators", "modules", "memory", "kernels", "distributed")
BASE = 1_790_000_000_000_000_000
LAYERS = 20


def span(kind, name, at, length, args):
    return (
        f'{{"ph":"X","cat":"{kind}","name":"{name}","pid":100,"tid":100,"ts":{at // 1000}.{at % 1000:03d},'
        f'"dur":{length // 1000}.{length % 1000:03d},"args":{{{args}}}}}'
    )


def change(at, size, address, total, owner):
    return (
        f'{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":100,"tid":100,"ts":{at // 1000}.{at % 1000:03d},"args":{{"Bytes":'
        f' {size}, "Addr": {address}, "Total Allocated": {total}, "Total Reserved": {total},"Device Type": 0,'
        f' "Device Id": -1, {owner}}}}}'
    )


def lines(rank, steps, ops, memory):
    """The events of one rank, one a line, as the profiler words them."""
    at, number, half = 15_414_269_148_185 + 777 * rank, 0, ops // 2
    for step in range(steps):
        begin = at
        for i in range(2 * half):
            layer = i * LAYERS // half if i < half else (2 * half - 1 - i) * LAYERS // half
            phase = "forward" if i < half else "backward"
            number += 1
            length = 4000 + 13 * (i * 7 % 100) + 11 * (step + rank)
            name = f"tenon::{('linear', 'relu', 'add', 'layer_norm', 'matmul')[i % 5]}"
            own = f'"Phase": "{phase}", "Module": "Net.layers.{layer}"'
            where = f'"Module": "Net.layers.{layer}", "Phase": "{phase}"'
            if memory:
                yield change(at, 4096, number, 4096 * (i + 1), f'"Op": "{name}", {where}')
                yield change(at + 1, -4096, number, 4096 * i, f'"Op": "{name}", {where}')
            shapes = f'"Input Dims": [[64, {32 + layer}], [64, 32], [64]]'
            kinds = '"Input type": ["float", "float", "float"], "FLOPs": 262144.0, "Bytes": 24832'
            yield span("cpu_op", name, at, length, f'"External id":{number},{own}, {shapes}, {kinds}')
            at += length + 300
        meet, wait, transfer = at, 20_000 + 50_000 * (rank != 3), 30_000
        counted = f'"External id":{number},"Number": {step}'
        yield span("tenon_wait", "wait: all_reduce", at, wait, counted)
        yield span(
            "tenon_transfer", "transfer: all_reduce", at + wait, transfer, f'{counted}, "Bytes": 65536'
        )
        at += wait + transfer
        times = (
            f'"Wait us": {wait / 1000}, "Transfer us": {transfer / 1000}, "Number": {step}, "Bytes": 65536'
        )
        yield span("user_annotation", "gloo:all_reduce", meet, at - meet, f'"External id":{number},{times}')
        yield span("user_annotation", f"ProfilerStep#{step}", begin, at - begin, f'"External id":{number}')


def write(folder, rank, ranks, steps, ops, memory):
    """One rank's trace."""
    clock = {"id": "boot", "offset_ns": 0, "error_ns": 0, "aligned": True}
    machine = {"device": "cpu", "threads": 1, "flops_per_second": 5e10, "bytes_per_second": 1e10}
    tenon = {
        "format": 1,
        "rank": rank,
        "world_size": ranks,
        "host": "node",
        "clock": clock,
        "machine": machine,
    }
    head = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE, "host_name": "node", "tenon": tenon})
    packer = zlib.compressobj(6, wbits=31)
    with (folder / f"node_{rank}.{1000 + rank}.pt.trace.json.gz").open("wb") as file:
        file.write(packer.compress(f'{head[:-1]}, "traceEvents": [\n'.encode()))
        for line in lines(rank, steps, ops, memory):
            file.write(packer.compress(f"{line},\n".encode()))
        end = '{"ph": "i", "s": "g", "name": "Record Window End", "pid": 100, "tid": 100, "ts": 1.0}\n]}\n'
        file.write(packer.compress(end.encode()) + packer.flush())


class Peak(threading.Thread):
    """The most memory that this process and those that it started held together, in bytes."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.ended = 0, threading.Event()

    def run(self):
        while not self.ended.wait(0.1):
            self.most = max(self.most, sum(map(held, family(os.getpid()))))


def family(pid):
    with contextlib.suppress(OSError):
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from family(int(child))
    yield pid


def held(pid):
    """Bytes of a process, shared ones counted once."""
    with contextlib.suppress(OSError):
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        return next(1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return 0


def answers(logdir):
    """Ask as the page does: until there is something to show, until all is read, then every view."""
    from tensorboard.plugins import base_plugin
    from werkzeug.test import Client

    from tenon_dashboard.dashboard import Dashboard

    peak = Peak()
    peak.start()
    dashboard = Dashboard(base_plugin.TBContext(logdir=str(logdir)))
    apps = dashboard.get_plugin_apps()

    def ask(route, **query):
        answer = Client(apps[route]).get(route, query_string=query)
        assert answer.status_code == 200, answer.get_data()
        return json.loads(answer.get_data())

    begun, found = time.perf_counter(), {}
    ask("/runs")
    while True:
        shown = ask("/view", run="run", view="overview")
        if shown.get("steps"):
            found.setdefault("first view", time.perf_counter() - begun)
            found.setdefault("ranks in it", len(shown["known"]))
            found.setdefault("steps in it", len(shown["steps"]))
        if not any(file["reading"] for file in shown["files"]):
            break
        time.sleep(0.2)
    found["all read"] = time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    for view in VIEWS:
        at = time.perf_counter()
        ask("/view", run="run", view=view)
        found[view] = time.perf_counter() - at
    at = time.perf_counter()
    whole = ask("/trace", run="run", pixels=1200)
    found["trace"] = time.perf_counter() - at
    at = time.perf_counter()
    ask(
        "/trace", run="run", pixels=1200, begin=whole["end"] // 2, end=whole["end"] // 2 + whole["end"] // 100
    )
    found["trace, a hundredth"] = time.perf_counter() - at
    at = time.perf_counter()
    ask("/search", run="run", text="layer_norm", after=whole["end"] // 2)
    found["search"] = time.perf_counter() - at
    dashboard.close()
    peak.ended.set()
    peak.join()
    found["memory, MiB"] = peak.most / 2**20
    found["processor time of this process"] = used[0].ru_utime + used[0].ru_stime
    return found | {"spans": shown["spans"]}


TASKS = """
window.tasks = []; new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((e) => e.duration)))
    .observe({type: "longtask", buffered: true});"""


def looked_at(logdir, folder):
    """The same in Chromium: seconds until each view stands, and its longest main-thread task."""
    with browser.tensorboard(logdir) as address, contextlib.closing(browser.Browser(folder)) as window:
        browser.answers(address)
        begun, found = time.perf_counter(), {}
        window.open(f"{address}#tenon")
        window.enter_frame()
        window.run(TASKS)
        rows = "return document.querySelectorAll('.panels tbody tr').length"
        browser.wait_for(lambda: window.run(rows), "the overview")
        found["first view in Chromium"] = time.perf_counter() - begun
        found["of it after TensorBoard's page"] = window.run("return performance.now()") / 1e3
        browser.wait_for(lambda: not window.run("return document.querySelector('progress')"), "the end", 300)
        found["all read in Chromium"] = time.perf_counter() - begun
        longest = "return Math.max(0, ...window.tasks.splice(0))"
        found["longest task while reading, ms"] = window.run(longest)
        drawn = """return document.querySelector(".panels").getAttribute("aria-busy") === "false"
            && (arguments[0] !== "trace" || document.querySelector("canvas")?.dataset.lanes > 0)"""
        for view in (*VIEWS, "trace"):
            at = time.perf_counter()
            window.run(f"document.getElementById('tab-{view}').click()")
            browser.wait_for(lambda view=view: window.run(drawn, view), view)
            found[f"{view} in Chromium"] = time.perf_counter() - at
            time.sleep(0.3)
            found[f"longest task of {view}, ms"] = window.run(longest)
        window.run("document.querySelector('canvas').focus()")
        window.keys("++++++--0")
        time.sleep(1.0)
        found["longest task of zooming, ms"] = window.run(longest)
        assert not window.severe()
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--ops", type=int, default=2000)
    options.add_argument("--memory", action="store_true")
    options.add_argument("--browser", action="store_true")
    options.add_argument("--cores", type=int)
    options.add_argument("--keep", type=pathlib.Path, help="write the run here, or use what is there")
    options.add_argument("--json", type=pathlib.Path)
    chosen = options.parse_args()
    if chosen.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.cores])
    with tempfile.TemporaryDirectory() as scratch:
        logdir = chosen.keep or pathlib.Path(scratch) / "logs"
        if not (logdir / "run").exists():
            (logdir / "run").mkdir(parents=True)
            with concurrent.futures.ProcessPoolExecutor() as pool:
                sizes = (chosen.ranks, chosen.steps, chosen.ops, chosen.memory)
                list(
                    pool.map(
                        write, *zip(*((logdir / "run", r, *sizes) for r in range(chosen.ranks)), strict=True)
                    )
                )
        found = answers(logdir)
        if chosen.browser:
            found |= looked_at(logdir, pathlib.Path(scratch) / "profile")
    for name, value in found.items():
        print(f"{name:36} {value:12,.2f}" if isinstance(value, float) else f"{name:36} {value:12,}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"results": found}))


if __name__ == "__main__":
    main()
