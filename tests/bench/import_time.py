"""Time ``import tenon`` in fresh interpreters, and see what it loads: ``python tests/bench/import_time.py``.

The time is that of a whole interpreter that imports the library, less that of one that imports nothing; both
take turns. ``min`` is what the import costs on a quiet machine. ``import tenon`` itself does not even load
NumPy, so the time to the first module and tensor is shown too, and NumPy's own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

BAR = 0.25
#: What must not be loaded by ``import tenon``: plugins and backends, and the libraries that they are for.
HEAVY = [
    "tenon_cpu", "tenon_cuda", "tenon_mpi", "tenon_optimizers", "tenon_recipes", "tenon_tensorboard",
    "numba", "cupy", "mpi4py", "torch", "tensorboardX", "pydantic", "rich", "click",
]  # fmt: skip


def seconds(code):
    """Wall time of an interpreter that runs ``code``."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def loaded(code):
    """The modules of ``HEAVY`` that ``code`` loads."""
    report = f"{code}; import json, sys; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", report], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--with-torch", action="store_true", help="time PyTorch's import too")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    given = parser.parse_args()
    programs = {"nothing": "pass", "numpy": "import numpy", "tenon": "import tenon"}
    programs["tenon.nn, a tensor"] = "import tenon; tenon.nn.Linear; tenon.zeros(1)"
    if given.with_torch:
        programs["torch"] = "import torch"
    for code in programs.values():
        seconds(code)  # byte code and disk cache
    times = {name: [] for name in programs}
    for _ in range(given.rounds):
        for name, code in programs.items():
            times[name].append(seconds(code))
    base = min(times["nothing"]), statistics.median(times["nothing"])
    results = {"bar": BAR, "loaded": loaded("import tenon"), "seconds": {}}
    print(f"{'import':20}{'min s':>8}{'median s':>10}")
    for name in programs:
        if name != "nothing":
            lowest, middle = min(times[name]) - base[0], statistics.median(times[name]) - base[1]
            results["seconds"][name] = {"min": lowest, "median": middle}
            print(f"{name:20}{lowest:8.3f}{middle:10.3f}" + (f"   bar {BAR}" if name == "tenon" else ""))
    print("loaded by import tenon, of what should not be:", ", ".join(results["loaded"]) or "nothing")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
