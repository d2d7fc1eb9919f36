"""Instructions of small eager and compiled work, beside those of an earlier revision.

    python tests/bench/counts.py
    python tests/bench/counts.py --base main~20

On arrays this small nearly all that runs is dispatch, tape, backward, modules and optimizers. Valgrind counts what a
processor would execute, so that a busy machine gives the same numbers as an idle one: two counts of one revision differ
by a few thousandths. ``--base`` takes a revision of this repository, or a folder that holds one; the last column
is the change since.
"""

import argparse
import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Calls before a block, until Python has specialised its code and no cache is empty; calls in a block; blocks.
WARM, CALLS, BLOCKS = 100, 100, 3


def works(T):
    """What is counted: name -> a function of nothing."""
    x, y = T.ones(4, 4), T.full((4, 4), 0.5)
    w = T.full((4, 4), 0.5).requires_grad_()
    return {
        "x + y": lambda: x + y,
        "x + 2": lambda: x + 2,
        "add(x, y)": lambda: T.add(x, y),
        "x + w, taped": lambda: x + w,
        "w * w, taped": lambda: w * w,
        "x @ w, taped": lambda: x @ w,
        "w.exp(), taped": lambda: w.exp(),
        "w.sum(), taped": lambda: w.sum(),
        "w.reshape(16), taped": lambda: w.reshape(16),
        "where(mask, x, w), taped": lambda mask=x > 0: T.where(mask, x, w),
        "y.add_(x)": lambda: y.add_(x),
        "w.sum().backward()": lambda: w.sum().backward(),
        "5 ops and backward": lambda: ((x @ w).relu() + y).sum().backward(),
        "Modules note, a step": note(T),
        "small MLP, a step": mlp(T)[0],
        "small MLP, compiled": mlp(T)[1],
        "Modules note, compiled forward": note_forward(T),
    }


def note(T):
    """A training step of the Modules note."""
    import programs

    return programs.note(T).step


def mlp(T):
    """A training step of a small MLP with Adam: eager, and compiled."""
    T.manual_seed(0)
    layers = T.nn.Linear(16, 32), T.nn.ReLU(), T.nn.Linear(32, 4)
    net, criterion = T.nn.Sequential(*layers), T.nn.CrossEntropyLoss()
    optimizer = T.optim.Adam(net.parameters(), lr=1e-3)
    x, y = T.randn(8, 16), T.arange(8) % 4

    def step():
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, T.compile(step)


def note_forward(T):
    """The forward of the Modules note's network, compiled."""
    import programs

    net = T.compile(programs.note(T).net)
    x = T.ones(4)

    def call():
        with T.no_grad():
            return net(x)

    return call


def repeat(work, times):
    """``times`` calls."""
    for _ in range(times):
        work()


def inside():
    """Under valgrind: blocks of all works in turn; ``getppid`` makes callgrind write down its counts."""
    import tenon

    names = []
    for name, work in works(tenon).items():
        repeat(work, WARM)
        for _ in range(BLOCKS):
            gc.collect()
            gc.disable()
            os.getppid()
            repeat(work, CALLS)
            os.getppid()
            gc.enable()
        names.append(name)
    print(json.dumps(names))


def counted(tree):
    """``{name: instructions of a call}`` with the sources of ``tree``."""
    if shutil.which("valgrind") is None:
        sys.exit("This counts with valgrind, which is not here. Install it, as by apt-get install valgrind.")
    sources = os.pathsep.join(str(tree / top) for top in ("platform", "plugins", "backends"))
    environment = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": sources}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["valgrind", "-q", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={folder}/out",
             sys.executable, __file__, "--inside"],
            check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment,
        )  # fmt: skip
        parts = sorted(Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        totals = [int(path.read_text().rpartition("totals: ")[2].split()[0]) for path in parts]
    blocks = iter(totals[1::2])  # what was before each block lies between them
    names = json.loads(done.stdout.splitlines()[-1])
    return {name: min(next(blocks) for _ in range(BLOCKS)) / CALLS for name in names}


@contextlib.contextmanager
def tree_of(base):
    """The folder of ``base``: itself, or what ``git archive`` gives for a revision."""
    if Path(base).is_dir():
        yield Path(base).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "tree.tar")
        subprocess.run(["git", "-C", ROOT, "archive", "-o", archive, base], check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder)


def main():
    """Count, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", metavar="REVISION", help="compare with this revision, or this folder")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        inside()
        return
    before = {}
    if given.base:
        with tree_of(given.base) as tree:
            before = counted(tree)
    results = []
    for name, now in counted(ROOT).items():
        was = before.get(name)
        results.append({"work": name, "instructions": now, "base": was})
        print(f"{name:34}{now:12,.0f}" + (f"{was:12,.0f}{now / was - 1:+9.2%}" if was else ""))
    if given.json:
        Path(given.json).write_text(json.dumps({"results": results}, indent=1))


if __name__ == "__main__":
    main()
