"""Time every operation of torch's surface, tenon and PyTorch by turns: ``python tests/bench/ops.py``.

``ops.yaml`` says what is called, with at least 100,000 elements. Both libraries are in this process and take turns
call by call; the best of all turns counts, as it changes least from run to run. Forward and backward are timed
apart, with inputs that need gradients where the operation has one. By default everything runs on one thread and
its processor time counts, so that a busy machine disturbs little; ``--threads 2`` counts wall time instead.
``ratio`` is PyTorch's time over tenon's: above 1, tenon is faster; ``*`` marks what is below 0.5, and the reason
stands next to it where ``ops.yaml`` knows one.
"""

import argparse
import gc
import json
import os
import sys
import time
import warnings
from pathlib import Path

from turns import POOLS

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER.parent))

#: The least that a ratio may be.
BAR = 0.5
SHOWN = 10
#: Titles of areas whose names do no work on the elements of a tensor, or do it by functions timed here.
ELSEWHERE = {"autograd", "data", "distributions", "nn.utils", "optim.lr_scheduler"}
#: Seconds of the shortest turn: quicker calls are made several times in it.
TURN = 2e-4


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*", metavar="TEXT", help="operations whose name contains one of these")
    parser.add_argument("--all", action="store_true", help="the whole table, not only the worst ten")
    parser.add_argument("--threads", type=int, default=1, help="more than one: wall time")
    parser.add_argument("--seconds", type=float, default=0.3, help="to spend on a call, in both libraries")
    parser.add_argument("--most", type=int, default=60, help="turns of a call")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    return parser.parse_args()


class Timed:
    """A call in one library: its forward, and the backward of what came out."""

    def __init__(self, lib, name, call):
        from parity.sides import Side, find, flat, parts

        self.lib, side = lib, Side(lib, "float32")
        lib.manual_seed(1)
        if isinstance(call, dict) and "shapes" in call:
            self.run = _optimizer(lib, name, call)
        else:
            given = call
            if isinstance(call, dict):
                function = side.construct(name, call["make"])
                side.leaves += [p for p in function.parameters() if p.requires_grad]
                given = call["call"]
            elif name.startswith("Tensor."):
                function = getattr(lib.Tensor, name.removeprefix("Tensor."))
            else:
                function = find(lib, name)
            positional, keywords = parts(given)
            args, keywords = side.build(positional) if positional else (), side.build(keywords)
            self.run = lambda: function(*args, **keywords)
        self.leaves = side.leaves
        results = flat(self.run())
        self.wanted = [i for i, r in enumerate(results) if getattr(r, "requires_grad", False)]
        self.cotangents = [lib.ones_like(results[i]) for i in self.wanted]
        self.flat = flat

    def turn(self, clock, count):
        """Seconds of a forward and of a backward, or None where there is none."""
        run, backward = self.run, 0.0
        begin = clock()
        for _ in range(count):
            results = run()
        forward = clock() - begin
        if not self.wanted:
            return forward / count, None
        for _ in range(count):
            flat = self.flat(run())
            outs = [flat[i] for i in self.wanted]
            del flat
            begin = clock()
            self.lib.autograd.grad(outs, self.leaves, self.cotangents, allow_unused=True)
            backward += clock() - begin
        del results
        return forward / count, backward / count


def _optimizer(lib, name, call):
    """``step`` of an optimizer over ``times`` parameters of each of the shapes."""
    from parity.sides import find

    shapes = [tuple(shape) for shape in call["shapes"] * call.get("times", 1)]
    params = [lib.nn.Parameter(lib.randn(shape)) for shape in shapes]
    for p in params:
        p.grad = lib.randn(tuple(p.shape))
    return find(lib, name)(params, **call.get("options", {})).step


def text_of(call):
    """A call as it stands in the file, short."""
    return json.dumps(call).replace('"', "").replace("[", "(").replace("]", ")")[:64]


def measure(name, call, libraries, given, clock):
    """The best forward and backward of both, over interleaved turns."""
    timed = [Timed(lib, name, call) for lib in libraries]
    gc.freeze()  # no collection looks at what the libraries are made of
    best = [[float("inf")] * 2 for _ in timed]
    begin, counts = time.perf_counter(), []
    for each in timed:  # machine code is compiled, pools and caches fill
        for _ in range(2):
            each.turn(clock, 1)
        counts.append(max(1, round(TURN / max(sum(filter(None, each.turn(clock, 1))), 1e-6))))
    turns = 0
    while turns < 3 or (turns < given.most and time.perf_counter() - begin < given.seconds):
        for i in (0, 1) if turns % 2 else (1, 0):
            found = timed[i].turn(clock, counts[i])
            best[i] = [
                None if new is None else min(new, old) for new, old in zip(found, best[i], strict=True)
            ]
        turns += 1
    return best


def read():
    """The file ``ops.yaml``."""
    import yaml

    return yaml.safe_load((FOLDER / "ops.yaml").read_text())


def tiers():
    """The tier of every name whose time can grow with the elements it works on, 1 or 2, by its short form."""
    from parity.coverage import areas, has

    found = {}
    for title, holder, names in areas():
        if title not in ELSEWHERE:
            for tier in (2, 1):
                full = [f"{holder}.{name}" if holder else name for name in names.get(tier, ())]
                for name in filter(has, full):
                    found[short(name)] = min(tier, found.get(short(name), tier))
    return found


def short(name):
    """A name as it stands for the same code: the function of a method or of a layer."""
    name = name.removeprefix("special.").removeprefix("linalg.")
    return name.rpartition(".")[2].replace("_", "").lower().removesuffix("loss")


def reasons():
    """Why an operation may take more than twice PyTorch's time, by name."""
    return {name: why for why, names in read()["slower"].items() for name in names.split()}


def unlisted():
    """Names of tiers 1 and 2 that ``ops.yaml`` neither times nor says nothing needs timing of."""
    data = read()
    named = {short(name) for group in data["timed"] for name in group["names"].split()}
    named |= {short(name) for name in f"{' '.join(data['same'])} {data['free']}".split()}
    return sorted(set(tiers()) - named)


def main():
    given = arguments()
    os.environ.update(dict.fromkeys(POOLS, str(given.threads)))
    import torch

    import tenon

    torch.set_num_threads(given.threads)
    warnings.simplefilter("ignore")
    clock = time.thread_time if given.threads == 1 else time.perf_counter
    results, failed, known = [], [], tiers()
    for group in read()["timed"]:
        for name in group["names"].split():
            if given.only and not any(text in name for text in given.only):
                continue
            for call in group["calls"]:
                found = {"op": name, "tier": known.get(short(name), 2), "call": text_of(call)}
                try:
                    ours, theirs = measure(name, call, (tenon, torch), given, clock)
                except Exception as error:
                    failed.append({**found, "error": f"{type(error).__name__}: {error}"[:200]})
                    continue
                for part, a, b in zip(("forward", "backward"), ours, theirs, strict=True):
                    if a is not None and b is not None:
                        results.append({**found, "part": part, "tenon": a, "torch": b, "ratio": b / a})
    show(results, failed, given)
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"threads": given.threads, "results": results, "failed": failed}, file, indent=1)


def show(results, failed, given):
    """The worst, or all, and how many are below the bar."""
    print(f"{'':9}{'tenon us':>10}{'torch us':>10}{'ratio':>7}")
    known = reasons()

    def line(r):
        low = r["ratio"] < BAR
        why = f": {known[r['op']]}" if low and r["op"] in known else ""
        print(
            f"{r['part']:9}{r['tenon'] * 1e6:10.1f}{r['torch'] * 1e6:10.1f}{r['ratio']:7.2f}{'*' if low else ' '}"
            f" T{r['tier']} {r['op']} {r['call']}{why}"
        )

    for r in results if given.all else ():
        line(r)
    for tier in sorted({r["tier"] for r in results}):
        own = sorted((r for r in results if r["tier"] == tier), key=lambda r: r["ratio"])
        below = [r for r in own if r["ratio"] < BAR]
        unknown = sum(r["op"] not in known for r in below)
        print(
            f"tier {tier}: {len(own)} times, {len(below)} below {BAR}, {unknown} of them for no stated reason; the"
            " worst:"
        )
        for r in own[:SHOWN]:
            line(r)
    for f in failed:
        print(f"failed: {f['op']} {f['call']}: {f['error']}")


if __name__ == "__main__":
    main()
