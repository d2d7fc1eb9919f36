"""What profiles cost in instructions: ``python tests/bench/profiler.py --instructions``.

Valgrind counts what a processor would execute, which does not depend on how busy the machine is: two runs give the
same numbers. One process goes through all states in turn, each in two blocks, which differ by a hundredth at
most, as random numbers are drawn ahead. The step is that of the Modules note. Garbage is collected before each block,
not in it.
"""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: What profiles record, and what is counted of it.
KINDS = {
    "nothing": {},
    "shapes": {"record_shapes": True},
    "shapes and memory": {"record_shapes": True, "profile_memory": True},
}
NEVER, LOADED, AFTER = "the profiler never loaded", "loaded, never used", "after a profile"
INSIDE = {f"in a profile with {kind}": options for kind, options in KINDS.items()}
STATES = {"step": (NEVER, LOADED, AFTER, *INSIDE), "op": (AFTER, *INSIDE)}
WHAT = {"step": "a step of the Modules note", "op": "an addition of 4 x 4"}
#: Blocks of each state; ops for each step.
BLOCKS, OPS = 2, 10


def main(count):
    """Print and return the instructions of a step and of an op in each state: the least of its blocks."""
    if shutil.which("valgrind") is None:
        sys.exit(
            "--instructions needs valgrind, which is not here. Install it, as by apt-get install valgrind."
        )
    with tempfile.TemporaryDirectory() as folder:
        counts = iter(counted(count, Path(folder)))
    found, differ = {}, 0.0
    for work, states in STATES.items():
        found[work] = {}
        for state in states:
            blocks = [next(counts) for _ in range(BLOCKS)]
            differ = max(differ, max(blocks) / min(blocks) - 1)
            found[work][state] = min(blocks) / (count if work == "step" else OPS * count)
        first = found[work][states[0]]
        print(f"instructions of {WHAT[work]}:")
        for state, number in found[work].items():
            print(f"    {number:9.0f}  {number / first - 1:+8.2%}  {state}")
    print(f"blocks of one state differ by {differ:.2%} at most")
    return found


def counted(count, folder):
    """Instructions of every block, in order."""
    subprocess.run(
        ["valgrind", "-q", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={folder}/out",
         sys.executable, __file__, str(count)],
        check=True, stdout=sys.stderr,
        env=os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    parts = sorted(folder.glob("out.*"), key=lambda path: int(path.suffix[1:]))
    totals = [int(path.read_text().rpartition("totals: ")[2].split()[0]) for path in parts]
    return totals[1::2]  # what was before each block lies between them


def inside(count):
    """Under valgrind: all blocks."""
    import programs

    import tenon

    step, x = programs.note(tenon).step, tenon.ones(4, 4)
    repeat(step, count)
    assert "tenon_profiler.profile" not in sys.modules  # its names are declared, and no more
    blocks(step, count)
    import tenon.profiler

    assert tenon.profiler.profile is not None  # the plugin is loaded now
    blocks(step, count)
    with tenon.profiler.profile(**KINDS["shapes and memory"]):
        repeat(step, count)
    for work, times in ((step, count), (lambda: x + x, OPS * count)):
        blocks(work, times)
        for options in KINDS.values():
            with tenon.profiler.profile(**options):
                blocks(work, times)


def blocks(work, times):
    """All of a state; before them, so often that Python has specialised its code."""
    repeat(work, times)
    for _ in range(BLOCKS):
        gc.collect()
        gc.disable()
        os.getppid()  # callgrind writes down what it has, and begins anew
        repeat(work, times)
        os.getppid()
        gc.enable()


def repeat(work, times):
    """``times`` calls."""
    for _ in range(times):
        work()


if __name__ == "__main__":
    inside(int(sys.argv[1]))
