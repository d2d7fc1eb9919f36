"""Machine code on disk: compiled once per machine, also if processes die, files are damaged, or several start at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tenon.errors import ArgumentError, BackendError
from tenon_cpu.jit.compiler import compile as jit
from tenon_cpu.jit.compiler import team
from tenon_cpu.jit.compiler.store import Store

pytest.importorskip("numba")
needs_numba = pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}")
pytestmark = needs_numba

PROGRAM = """
import json, sys
import numpy as np
from tenon_cpu.jit.compiler import compile as jit

SOURCE = '''
def doubled(x, out):
    for i in range(x.size):
        out[i] = twice(x[i])
'''

@jit.inlined(fastmath={{"reassoc", "contract", "nsz"}})
def twice(x):
    return x * np.float32(FACTOR)

FACTOR = {factor}
doubled = jit.compiled(SOURCE, "doubled", "void(float32[::1], float32[::1])", {{"twice": twice}})
out = np.empty(3, np.float32)
doubled(np.array([1, 2, 3], np.float32), out)
print(json.dumps([out.tolist(), jit.counts.loaded, jit.counts.compiled]))
"""


@jit.kernel("void(float32[::1], float32[::1])")
def doubled(x, out):
    """Twice ``x``."""
    for i in range(x.size):
        out[i] = x[i] + x[i]


@jit.kernel("int64(int64, float64[::1])")
def counted(first, x):
    """``first`` and the whole sum of ``x``."""
    total = 0.0
    for i in range(x.size):
        total += x[i]
    return first + np.int64(total)


@jit.kernel("void(int64, float64[::1], int64, int64)")
def scratch(room, out, start, stop):
    """1, 2, 3, ..., computed in a temporary array of the kernel."""
    own = np.empty(room, np.float64)
    for i in range(start, stop):
        own[i] = i + 1.0
    for i in range(start, stop):
        out[i] = own[i]


def start(
    folder: Path, tmp_path: Path, factor: int = 2, warnings: str = "error", **environment: str
) -> subprocess.Popen[str]:
    program = tmp_path / f"program_{factor}.py"
    if not program.exists():  # a process started before may be reading it
        program.write_text(PROGRAM.format(factor=factor))
    return subprocess.Popen(
        [sys.executable, "-W", warnings, str(program)],
        env={**os.environ, "TENON_CACHE": str(folder), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> list[object]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out)


def run(
    folder: Path, tmp_path: Path, factor: int = 2, warnings: str = "error", **environment: str
) -> list[object]:
    return finish(start(folder, tmp_path, factor, warnings, **environment))


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.signed"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A cache into which a process has compiled the kernel."""
    place = tmp_path_factory.mktemp("compiled")
    assert run(place / "cache", place, PYTHONHASHSEED="0") == [[2, 4, 6], 0, 1]
    return place / "cache"


@pytest.fixture
def kept(compiled, tmp_path):
    """A copy of it."""
    return shutil.copytree(compiled, tmp_path / "cache")


@pytest.mark.slow
def test_a_second_process_loads_what_the_first_compiled_also_one_that_orders_sets_otherwise(kept, tmp_path):
    assert run(kept, tmp_path, PYTHONHASHSEED="1") == [[2, 4, 6], 1, 0]


def test_what_is_on_disk_is_loaded_without_numba(kept, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "numba.py").write_text("raise ImportError('not to be imported')")

    assert run(kept, tmp_path, PYTHONPATH=str(broken)) == [[2, 4, 6], 1, 0]


@pytest.mark.slow
def test_a_changed_number_in_a_function_that_a_kernel_calls_is_another_kernel(kept, tmp_path):
    assert run(kept, tmp_path, 3) == [[3, 6, 9], 0, 1]
    assert len(entries(kept)) == 2


@pytest.mark.slow
def test_changed_code_of_an_intrinsic_is_another_kernel(monkeypatch):
    """Kernels call it by a name, and what it does is in the class that makes it."""
    before = jit._described({"fused": jit.fused})
    monkeypatch.setattr(jit.inspect, "getsource", lambda made: f"changed {made.__name__}")

    assert "builder.fma" in before and "changed Fused" in jit._described({"fused": jit.fused})


def test_processes_that_start_together_compile_once(tmp_path):
    folder = tmp_path / "cache"
    processes = [start(folder, tmp_path) for _ in range(3)]

    results = [finish(process) for process in processes]

    assert all(values == [2, 4, 6] for values, _, _ in results)
    assert sum(compiled for _, _, compiled in results) == 1
    assert sum(loaded for _, loaded, _ in results) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign"])
def test_a_damaged_entry_is_not_read(kept, damage):
    (entry,) = entries(kept)
    whole = entry.read_bytes()
    store = Store(entry.parent)
    assert store.read(entry.stem) is not None
    changed = bytes([*whole[:-1], whole[-1] ^ 1])
    entry.write_bytes({"cut": whole[:-100], "flipped": changed, "empty": b"", "foreign": b"x" * 99}[damage])

    assert store.read(entry.stem) is None


@pytest.mark.slow
def test_an_entry_that_cannot_be_read_is_compiled_again_and_replaced(kept, tmp_path):
    (entry,) = entries(kept)
    entry.write_bytes(entry.read_bytes()[:-100])

    assert run(kept, tmp_path) == [[2, 4, 6], 0, 1]
    assert run(kept, tmp_path) == [[2, 4, 6], 1, 0]


@pytest.mark.slow
def test_an_entry_that_is_not_machine_code_is_compiled_again(kept, tmp_path):
    (entry,) = entries(kept)
    Store(entry.parent).write(entry.stem, b"no machine code at all")

    assert run(kept, tmp_path) == [[2, 4, 6], 0, 1]
    assert run(kept, tmp_path) == [[2, 4, 6], 1, 0]


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_costs_the_cache_only(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")

    assert run(blocked / "cache", tmp_path) == [[2, 4, 6], 0, 1]


@pytest.mark.slow
def test_a_folder_that_others_may_write_to_is_not_read(kept, tmp_path):
    (entry,) = entries(kept)
    entry.parent.chmod(0o777)

    assert run(kept, tmp_path, warnings="ignore") == [[2, 4, 6], 0, 1]


def test_a_disk_that_refuses_is_told_of_once(tmp_path, monkeypatch):
    store = Store(tmp_path / "cache")

    def full(*args, **attrs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tenon_cpu.jit.compiler.store.tempfile.mkstemp", full)
    with pytest.warns(UserWarning, match="No space left on device.*TENON_CACHE"):
        store.write("key", b"body")
    store.write("key", b"body")

    assert not store.usable
    assert store.read("key") is None


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    folder = tmp_path / "cache"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                "import sys, time; from pathlib import Path; from tenon_cpu.jit.compiler.store import Store\n"
                f"with Store(Path({str(folder)!r})).locked('key'): print('held', flush=True); time.sleep(60)"
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    start_time = time.monotonic()
    with Store(folder).locked("key"):
        pass

    assert time.monotonic() - start_time < 10
    holder.stdout.close()


@pytest.mark.slow
def test_one_process_waits_for_the_lock_of_another(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from tenon_cpu.jit.compiler.store import Store\n"
        f"store = Store(Path({str(tmp_path / 'cache')!r}))\n"
        "with store.locked('key'):\n"
        "    print('in', time.monotonic(), flush=True); time.sleep(0.3); print('out', time.monotonic())\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    stays = sorted(
        tuple(float(line.split()[1]) for line in p.communicate(timeout=300)[0].splitlines())
        for p in processes
    )

    assert stays[0][1] <= stays[1][0]


def test_the_oldest_entries_are_forgotten_when_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr("tenon_cpu.jit.compiler.store._MOST_ENTRIES", 8)
    store = Store(tmp_path / "cache")
    for i in range(9):
        store.write(f"key-{i}", b"body")
        os.utime(tmp_path / "cache" / f"key-{i}.signed", (i, i))

    assert store.read("key-0") is None
    assert store.read("key-8") == b"body"


def test_calls_with_other_types_are_refused_and_not_compiled_silently():
    source = "def half(x, out):\n    for i in range(x.size):\n        out[i] = x[i] / 2\n"
    half = jit.compiled(source, "half", "void(float32[::1], float32[::1])")

    with pytest.raises(TypeError, match="half is compiled for"):
        half(np.zeros(2), np.zeros(2))


@pytest.mark.parametrize(
    "given",
    [
        (np.zeros(2, np.float32),),
        (np.zeros(4, np.float32)[::2], np.zeros(2, np.float32)),
        (np.zeros((2, 1), np.float32), np.zeros(2, np.float32)),
        ([0.0, 0.0], np.zeros(2, np.float32)),
        (np.zeros(2, np.float32), None),
        (np.zeros(2, np.float32), np.frombuffer(b"12345678", np.float32)),
    ],
    ids=["too few", "strided", "of another rank", "a list", "none", "read-only"],
)
def test_arrays_that_do_not_fit_are_refused(given):
    with pytest.raises(TypeError, match=r"doubled is compiled for void\(float32\[::1\], float32\[::1\]\)"):
        doubled(*given)


@pytest.mark.parametrize("number, error", [("1", TypeError), (1 << 70, OverflowError), (1.5, TypeError)])
def test_numbers_that_do_not_fit_raise_as_in_python(number, error):
    with pytest.raises(error):
        counted(number, np.zeros(1))


def test_a_kernel_takes_subclasses_and_gives_a_number_back():
    class Named(np.ndarray):
        pass

    assert counted(np.int64(-1), np.full(3, 2.0).view(Named)) == 5
    assert counted(7, np.zeros(0)) == 7


def test_a_kernel_with_memory_of_its_own_releases_it():
    room = 1 << 20
    out = np.zeros(room)
    for _ in range(3):
        scratch(room, out, 0, room)
    before = resident()

    for _ in range(50):
        scratch(room, out, 0, room)

    assert (out[0], out[-1]) == (1.0, float(room))
    assert resident() - before < 64 * room  # 50 that are kept would be 400


def test_a_kernel_that_gets_no_memory_says_so_alone_and_in_a_team():
    out, more_than_there_is = np.zeros(8), 1 << 50

    with pytest.raises(MemoryError, match="scratch could not allocate memory"):
        scratch(more_than_there_is, out, 0, 8)
    with pytest.raises(MemoryError, match="scratch could not allocate memory"):
        team.run(scratch, (more_than_there_is, out), 8)

    team.run(scratch, (8, out), 8)
    assert out.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_two_threads_run_a_kernel_at_once():
    out = np.zeros(1 << 22)
    done: list[float] = []
    workers = [threading.Thread(target=lambda: done.append(counted(1, out))) for _ in range(2)]

    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert done == [1, 1]


def test_arguments_that_a_kernel_rejects_are_reported_with_those_it_accepts():
    with pytest.raises(ArgumentError, match="it returns void or int64"):
        jit.kernel("void(complex64[::1])")(doubled.function)


def resident() -> int:
    """Bytes of resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_asking_again_for_the_same_source_gives_the_same_function():
    source = "def negated(x, out):\n    for i in range(x.size):\n        out[i] = -x[i]\n"

    first = jit.compiled(source, "negated", "void(float32[::1], float32[::1])")
    second = jit.compiled(source, "negated", "void(float32[::1], float32[::1])")

    assert first is second


def test_division_by_zero_follows_ieee():
    source = "def divided(x, y, out):\n    for i in range(x.size):\n        out[i] = x[i] / y[i]\n"
    divided = jit.compiled(source, "divided", "void(float32[::1], float32[::1], float32[::1])")
    out = np.empty(3, np.float32)

    divided(np.array([1, -1, 0], np.float32), np.zeros(3, np.float32), out)

    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("flag", ["nnan", "ninf", "fast"])
def test_flags_that_forget_nan_and_infinity_are_refused(flag):
    with pytest.raises(ArgumentError, match=flag):
        jit.compiled("def f(x):\n    return x\n", "f", "float32(float32)", fastmath={flag})


def test_numba_can_be_turned_off(tmp_path):
    process = start(tmp_path / "cache", tmp_path, TENON_NUMBA="0")
    _, err = process.communicate(timeout=300)

    assert process.returncode == 1
    assert BackendError.__name__ in err
    assert "turned off by TENON_NUMBA" in err


def test_a_missing_numba_says_how_to_get_it(tmp_path):
    (tmp_path / "numba.py").write_text("raise ModuleNotFoundError('no numba', name='numba')")
    process = start(tmp_path / "cache", tmp_path, PYTHONPATH=str(tmp_path))
    _, err = process.communicate(timeout=300)

    assert "tenon-platform[fast]" in err
