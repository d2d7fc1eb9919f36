"""What happens to a job when something happens to it: the catalogue that the tests run and the guide shows.

``test_what_happens.py`` runs every row and compares the guide's tables with them. After a change here:

    python tests/distributed/what_happens.py --write     # with times, medians of three runs

``happening.py`` runs a row; ``unusual.py`` among the programs holds the rows of ``HARMLESS``.
"""

import re
import statistics
import sys
import tempfile
from pathlib import Path

import pytest
from happening import (
    CHECKPOINT,
    RANKS,
    Event,
    check,
    fill_disk,
    forbid_writing,
    happen,
    interrupt,
    memory_group,
    small_disk,
    terminate,
)

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "distributed.md"
WATCHDOG = 1.0
RUNS = 3


def script(name: str, happens: str, status: int, report: str, words: tuple[str, ...] = (), **more) -> Event:
    """A row of ``failing.py``, a plain script."""
    command = (sys.executable, "failing.py", name)
    return Event(name, happens, command, status, report, words, **more)


def early(name: str, happens: str, runner: bool, status: int, report: str, words: tuple[str, ...], **more):
    """A row of ``early.py``, which fails before it imports tenon."""
    start = (
        ("-m", "tenon.distributed", "early.py", "import", "1.5") if runner else ("early.py", "import", "2.5")
    )
    return Event(name, happens, (sys.executable, *start, "3"), status, report, words, **more)


def died(name: str, happens: str, status: int, report: str, words: tuple[str, ...]) -> Event:
    """A row of ``silent_deaths.py``; the launcher may end with the status of a rank that it ended itself."""
    command = (sys.executable, "silent_deaths.py", name)
    return Event(name, happens, command, status, report, words, noticed=True, also=(3, 9, 15))


def stalled(name: str, how: str, happens: str, report: str, words: tuple[str, ...]) -> Event:
    """A row of ``stalling.py``: the other ranks wait for the last one."""
    named = (
        "step 17 has waited ",
        " s for rank 3 ===",
        "ranks 0, 1, 2 at all_reduce(sum) of float64[3] named 'fc.bias' at step 17",
        "call 3, all_reduce(sum) of float64[3] named 'fc.weight' at step 17",
    )
    return Event(
        name, happens, (sys.executable, "stalling.py", how, "one", str(WATCHDOG)), 124, report, named + words,
        reporter="[012]", limit=WATCHDOG + 2, variables={"TENON_WATCHDOG": str(WATCHDOG)},
    )  # fmt: skip


def train(name: str, happens: str, status: int, report: str, words: tuple[str, ...] = (), **more) -> Event:
    """A row of ``tenon train``."""
    command = (sys.executable, "-m", "tenon.cli", "train", "small.toml", "--run", "{run}")
    return Event(f"train_{name}", f"{happens} under `tenon train`", command, status, report, words, **more)


def failing_model(name: str, happens: str, status: int, report: str, words: tuple[str, ...] = (), **more):
    """A row of ``tenon train`` whose model fails as ``name`` says."""
    return train(name, happens, status, report, words, variables={"HOW": name}, left=CHECKPOINT, **more)


BOTH_SIDES = "both sides of the disagreement"
BY_MONITOR = "what killed it, step, host, where it was last seen"


def killed(name: str) -> dict:
    """What a row is like where the signal ``name`` kills the rank."""
    return {"words": (f" was killed by {name}",), "noticed": True}


WRITE_ERROR = "CheckpointWriteError: could not "

EVENTS = (
    script(
        "exception", "an uncaught exception", 1, "traceback, module path, step, host",
        ("step 17 failed with RuntimeError", "in module: features.3.conv", "ValueError: a bad value"),
        traceback=True,
    ),
    script(
        "thread", "an uncaught exception in another thread", 1, "the same, and the thread's name",
        ("in thread: loader", "ValueError: a bad value"), traceback=True,
    ),
    script(
        "memory", "`MemoryError` (by `ulimit -v`)", 1, "traceback, step, host",
        ("step 17 failed with MemoryError", "in use_up_memory"), traceback=True,
    ),
    script("exit", "`sys.exit(3)`", 3, "the line that called it", ("called sys.exit(3)", "failing.py")),
    script("exit_with_text", '`sys.exit("text")`', 1, "the text", ("no data in /data",)),
    script("raised_exit", "`raise SystemExit(3)`", 3, '"raised SystemExit(3)"', ("raised SystemExit(3)",)),
    script("interrupt", "Ctrl-C that reaches one rank", 130, '"was interrupted"', ("was interrupted",)),
    script(
        "ctrl_c", "Ctrl-C at `mpirun`", 130, '"was interrupted" (Open MPI: by `mpirun`)',
        ("was interrupted",),
        reporter="[0123]", act=interrupt, launcher_reports=True,
    ),
    script(
        "early_import", "an import error after `import tenon`", 1, "traceback",
        ("ModuleNotFoundError: No module named 'a_module_that_is_not_there'",), traceback=True,
    ),
    early(
        "runner", "one before it, with `python -m tenon.distributed`", True, 1, "traceback",
        ("No module named 'a_module_that_is_not_there'",), traceback=True,
    ),
    early(
        "no_runner", "one before it, without (MPICH, Linux)", False, 1,
        "which rank; its traceback stands above",
        ("cannot start: rank 3 ended before `import tenon`", "a_module_that_is_not_there"),
        reporter="[01]", complaints=1, mpich="Open MPI's launcher ends the job by itself",
    ),
    script("kill", "SIGKILL", 9, BY_MONITOR, **killed("SIGKILL")),
    script(
        "out_of_memory", "the kernel's out-of-memory killer (memory limit of a control group)", 9,
        "the same, and that memory ran out", surroundings=memory_group, noticed=True,
        words=(" was killed by SIGKILL", "memory ran out: the kernel's out-of-memory killer"),
    ),
    script("terminate", "SIGTERM in a plain script", 15, BY_MONITOR, **killed("SIGTERM")),
    died("segfault", "a segmentation fault", 11, "the line that crashed, step, host", (" was killed by SIGSEGV ===", "in string_at")),
    died("bus_error", "a bus error", 7, "the same", (" was killed by SIGBUS ===", "in read_beyond_a_file")),
    died("immediate_exit", "`os._exit(3)`", 9, "the line that called it", ("step 17 called os._exit(3)", "silent_deaths.py")),
    script(
        "skipped_collective", "the program ends while others communicate", 1,
        "the rank that left, and the call that waits for it",
        (
            "rank 3 at the end of its program",
            "ranks 0, 1, 2 at all_reduce(sum) of float64[3] named 'fc.weight' at step 17",
        ),
        reporter="[0123]", traceback=True,
    ),
    script(
        "shapes", "an all-reduce of another shape", 1, BOTH_SIDES,
        ("ranks 0, 1, 2 at all_reduce(sum) of float64[3] ", "rank 3 at all_reduce(sum) of float64[4] "),
        reporter="[0123]", traceback=True,
    ),
    script(
        "swapped", "two all-reduces of one shape, swapped", 1, BOTH_SIDES,
        ("ranks 0, 1, 2 at all_reduce(sum) of float64[3] named 'fc.weight'", "rank 3 at", "named 'fc.bias'"),
        reporter="[0123]", traceback=True,
    ),
    script(
        "skipped_parameter", "a parameter skipped", 1, BOTH_SIDES,
        ("ranks 0, 1, 2 at all_reduce(sum) of float64[3] named 'fc.bias'", "rank 3 at", "'head.weight'"),
        reporter="[0123]", traceback=True,
    ),
    script(
        "models", "another model", 1, "the parameters that differ",
        ("'weight: torch.float32[3]'", "'weight: torch.float32[2]'"), reporter="[0123]", traceback=True,
    ),
    stalled(
        "hang", "sleep", f"it hangs, `TENON_WATCHDOG={WATCHDOG:g}`",
        "the late rank, its last collective, where it is",
        ("rank 3 (process ", "is computing", "in sleep_deep_inside", "stalling.py:"),
    ),
    stalled(
        "stop", "stop", f"it is stopped (SIGSTOP), `TENON_WATCHDOG={WATCHDOG:g}`",
        'the same, and "it is stopped"',
        ("rank 3 (process ", "last heartbeat", "it is stopped (SIGSTOP)"),
    ),
    failing_model(
        "exception", "an exception in the model", 1, "traceback, module path, step, host",
        ("step 3 failed with ValueError", "in module: (the model itself)", "a bad value"), traceback=True,
    ),
    failing_model(
        "exit", "`sys.exit(3)`", 3, "the line that called it", ("step 3 called sys.exit(3)", "small.py"),
    ),
    failing_model(
        "raised_exit", "`raise SystemExit(3)`", 3, "the line that raised it",
        ("step 3 raised SystemExit(3)", "small.py"),
    ),
    train(
        "import", "an import error", 1, "traceback",
        ("failed with ModuleNotFoundError", "a_module_that_is_not_there"),
        variables={"HOW": "import"}, traceback=True,
    ),
    failing_model("kill", "SIGKILL", 9, BY_MONITOR, **killed("SIGKILL")),
    train(
        "terminate", "SIGTERM to all, a scheduler's,", 143,
        "none: the step is finished and saved (Open MPI: status 1; send SIGUSR1 for 138)",
        ("stopped by SIGTERM after step ", "resume with: mpirun -n 4 tenon train --resume"),
        reporter="", left=CHECKPOINT, act=terminate, launcher_reports=True,
    ),
    train(
        "full_disk", "no room for a checkpoint", 1, "the file and the reason",
        (WRITE_ERROR, "No space left on device"),
        reporter="0", traceback=True, left=CHECKPOINT, surroundings=small_disk, act=fill_disk,
    ),
    train(
        "read_only", "a disk turned read-only", 1, "the file and the reason",
        (WRITE_ERROR, "Read-only file system"),
        reporter="0", traceback=True, left=CHECKPOINT, surroundings=small_disk, act=forbid_writing,
    ),
    Event(
        "configurations", "another configuration under `tenon train`",
        (
            "sh", "-c",
            f"exec {sys.executable} -m tenon.cli train small.toml --run {{run}}"
            " --set seed=${{PMI_RANK-$OMPI_COMM_WORLD_RANK}}",
        ),
        2, "none: one line with the keys that differ",
        ("seed: rank 0 has 0, rank 1 has 1, rank 2 has 2, rank 3 has 3",), reporter="", timed=False,
    ),
)  # fmt: skip

HARMLESS = {
    "uneven": ("uneven shards of the data", "the mean over all samples: the weights of one rank alone"),
    "empty": ("no samples on some ranks", "the same"),
    "larger_world": ("more ranks than samples", "`DistributedSampler` repeats some, `ShardedSampler` none"),
    "three": ("three ranks", "the weights of one rank alone"),
    "some_ranks": ("a parameter that some ranks do not use", "counts as zero there; one warning names it"),
    "unused": ("a parameter that no rank uses", "keeps `grad = None`; the same warning"),
    "seeds": ("ranks with different seeds", "the parameters of rank 0 everywhere"),
    "caught": ("`sys.exit(3)` or `raise SystemExit(3)` that is caught", "nothing"),
}


def rows(times: dict[str, str]) -> list[list[str]]:
    """The table of events, without the heading; ``times`` by the event's name."""
    return [[e.happens, str(e.status), e.report, e.left, times.get(e.name, "")] for e in EVENTS]


def harmless_rows() -> list[list[str]]:
    """The table of cases that do not end the job."""
    return [list(row) for row in HARMLESS.values()]


def measured(event: Event) -> str:
    """The median time from the event to the end of the job's last process, each run checked."""
    seconds = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            try:
                ending = happen(event, Path(folder))
            except pytest.skip.Exception as reason:
                return f"not run: {reason}"
        check(event, ending)
        seconds.append(ending.seconds)
    return f"{statistics.median(seconds):.1f} s" if event.timed else "at the start"


def read(text: str, table: str) -> list[list[str]]:
    """The rows of the table of that name in the guide."""
    found = re.search(rf"<!-- {table} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None, f"{GUIDE} has no table {table!r}"
    lines = found[1].strip().splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def write(text: str, table: str, heading: list[str], body: list[list[str]]) -> str:
    """``text`` with that table replaced."""
    lines = ["| " + " | ".join(row) + " |" for row in [heading, ["---"] * len(heading), *body]]
    replaced = f"<!-- {table} -->\n" + "\n".join(lines) + "\n<!-- end -->"
    return re.sub(rf"<!-- {table} -->\n.*?<!-- end -->", lambda _: replaced, text, flags=re.DOTALL)


def main() -> None:
    """Measure every event and write both tables into the guide."""
    if sys.argv[1:] != ["--write"]:
        sys.exit(f"usage: python {sys.argv[0]} --write")
    times = {}
    for event in EVENTS:
        times[event.name] = measured(event)
        print(f"{event.name:20} {times[event.name]}", flush=True)
    text = GUIDE.read_text()
    heading = [f"to one of {RANKS} ranks", "exit status", "the one report", "left behind", "all over after"]
    text = write(text, "events", heading, rows(times))
    text = write(text, "harmless", ["what is unusual", "what comes of it"], harmless_rows())
    GUIDE.write_text(text)


if __name__ == "__main__":
    main()
