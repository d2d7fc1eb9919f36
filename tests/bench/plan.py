"""`tenon plan` beside the run that it predicts: time of a step and peak memory, on 1, 2 and 4 ranks of this machine.

A plan and a run take turns; the figures are medians of the rounds. The run is `tenon train` of the model of 1.1
million parameters in ``tests/training/programs/wide.py``, which a plugin times on each rank. On a quiet machine.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tenon.testing.suites.communicator import find_mpirun

PROGRAMS = Path(__file__).parents[1] / "training" / "programs"
#: Divisions of the model, by name; each has a mark for the sizes that are this number of ranks.
WAYS = {
    "data": (),
    "shard": ("parallel.shard={ranks}",),
    "tensor": (
        "parallel.tensor={ranks}",
        'parallel.tensor_plan={{"layers.0"="colwise", "layers.2"="rowwise"}}',
    ),
    "pipeline": ("parallel.pipeline={ranks}",),
}


def settings(way, ranks, options):
    chosen = [text.format(ranks=ranks) for text in WAYS[way]]
    chosen += [f"batch_size={options.batch}", f"model_options.width={options.width}", "log.tensorboard=false"]
    return [part for text in chosen for part in ("--set", text)]


def planned(folder, way, ranks, options):
    """Seconds of a step and peak bytes of a rank, as `tenon plan` says."""
    command = [sys.executable, "-m", "tenon.cli", "plan", "-n", str(ranks), "wide.toml", "--json"]
    if way == "data":
        command += ["--ranks-per-node", str(ranks)]
    done = subprocess.run(
        [*command, *settings(way, ranks, options)], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    if way == "data":
        return found["seconds"]["step"], found["memory"]["peak_training"]
    (mesh,) = found["meshes"]
    return mesh["seconds"], max(mesh["peaks"])


def measured(folder, way, ranks, options):
    """The same of a run: the median step of rank 0, and the peak of the rank that needs most."""
    place = folder / "plugin"
    launcher = [find_mpirun(), "-n", str(ranks)] if ranks > 1 else []
    command = [*launcher, sys.executable, "-m", "tenon.cli", "train", "wide.toml"]
    command += [
        *settings(way, ranks, options),
        "--set",
        f"epochs={options.epochs}",
        "--set",
        "checkpoint.every=0",
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "TIMED": str(folder), "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    timed = [json.loads((folder / f"timed-{rank}.json").read_text()) for rank in range(ranks)]
    return timed[0]["seconds"], max(each["peak"] for each in timed)


def prepare(folder):
    """Put the model and the plugin into ``folder``."""
    for name in ("wide.py", "wide.toml"):
        shutil.copy(PROGRAMS / name, folder)
    info = folder / "plugin" / "timing-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: timing\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[tenon]\ntiming = timing\n")
    shutil.copy(PROGRAMS / "timing.py", folder / "plugin")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks")
    parser.add_argument("--ways", default=",".join(WAYS), help="divisions of the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=30, help="of 640 samples, that the measured run trains")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    print(f"{'':12}{'step: plan':>12}{'run':>10}{'ratio':>7}   {'peak: plan':>12}{'run':>10}{'ratio':>7}")
    for ranks in map(int, options.ranks.split(",")):
        for way in options.ways.split(","):
            if way != "data" and (
                ranks == 1 or (way == "pipeline" and ranks > 2)
            ):  # of five layers, three compute
                continue
            rounds = []
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory(prefix="tenon-bench-") as name:
                    folder = Path(name)
                    prepare(folder)
                    rounds.append(
                        (*planned(folder, way, ranks, options), *measured(folder, way, ranks, options))
                    )
            time, peak, real_time, real_peak = (
                statistics.median(column) for column in zip(*rounds, strict=True)
            )
            results.append(
                {
                    "ranks": ranks,
                    "way": way,
                    "seconds": [time, real_time],
                    "peak": [peak, real_peak],
                    "rounds": rounds,
                }
            )
            print(
                f"{ranks} x {way:8}{1e3 * time:9.1f} ms{1e3 * real_time:7.1f} ms{time / real_time:7.2f}"
                f"   {peak / 1e6:9.0f} MB{real_peak / 1e6:7.0f} MB{peak / real_peak:7.2f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"results": results}))


if __name__ == "__main__":
    main()
