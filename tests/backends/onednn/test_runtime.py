"""The cache of prepared primitives, threads, forks, memory, and the section of ``tenon doctor``."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache, caches
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.doctor import rows
from tenon_cpu.onednn.primitives import Primitive
from tenon_cpu.onednn.runtime import available, runtime

needed = pytest.mark.skipif(not available(), reason=available().reason)


def run(code, **environment):
    """Standard output of ``code`` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_cache_is_bounded_and_counts():
    cache = Cache("test", 3)
    made = []

    def make(key):
        return lambda: made.append(key) or key

    try:
        for key in (1, 2, 3, 1, 4, 1, 2):
            assert cache.get(key, make(key)) == key
        assert made == [1, 2, 3, 4, 2]  # 2 left when 4 came: it was the least recently used
        assert cache.counts() == (3, 3, 2, 5)
    finally:
        caches.remove(cache)


def test_each_thread_has_its_own_entries():
    cache = Cache("test", 3)
    seen = []
    try:
        cache.get("k", lambda: "main")
        thread = threading.Thread(target=lambda: seen.append(cache.get("k", lambda: "other")))
        thread.start()
        thread.join()
        assert seen == ["other"]
        assert cache.get("k", lambda: "again") == "main"
    finally:
        caches.remove(cache)


CHANGES = """
import numpy as np
from tenon_cpu import threads
from tenon_cpu.onednn import eager
from tenon_cpu.onednn.runtime import runtime
x = np.random.default_rng(0).normal(size=(300, 300)).astype(np.float32).T
seen = []
for count in (2, 1, 2):
    threads.set_count(count)
    assert np.allclose(eager.matmul(x, x), x @ x, atol=1e-3)
    seen.append((runtime().threads, runtime().openmp.omp_get_max_threads(), eager._floats.counts().size))
print(seen)
"""


@needed
def test_another_number_of_threads_prepares_anew():
    assert run(CHANGES, OMP_NUM_THREADS="2") == "[(2, 2, 1), (1, 1, 1), (2, 2, 1)]"


def test_nothing_to_prepare_is_remembered():
    cache = Cache("test", 3)
    calls = []
    try:
        for _ in range(3):
            assert cache.get("k", lambda: calls.append(1)) is None
        assert calls == [1]
    finally:
        caches.remove(cache)


def test_the_doctor_says_which_library_or_why_none(monkeypatch):
    assert dict(rows())["library"] == available().reason

    said = run("from tenon_cpu.onednn.doctor import rows\nprint(dict(rows()))", TENON_ONEDNN="off")
    assert said == str({"library": "switched off by TENON_ONEDNN=off; NumPy computes instead"})


@needed
def test_the_doctor_shows_threads_and_instructions():
    said = dict(rows())

    assert said["threads"].startswith(f"{runtime().threads} ")
    assert said["instructions"]


@needed
def test_the_doctor_counts_what_a_fresh_process_has_prepared():
    said = run("from tenon_cpu.onednn.doctor import rows\nprint(dict(rows()))")

    assert "'trial product': \"agrees with NumPy's" in said
    assert "'cache of matmul float32': '1 prepared (at most 1024 a thread), 1 hits, 1 misses'" in said


FORKS = """
import os, sys
import numpy as np
from tenon.extend import errors
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.primitives import Primitive
x = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
d = Descriptor.of(x)
def ready(out): return Primitive("matmul", d, d, None, d).execution({c.SRC: x, c.WEIGHTS: x, c.DST: out})
out = np.zeros_like(x)
before = ready(out)
before()
child = os.fork()
if not child:
    fresh = np.zeros_like(x)
    ready(fresh)()
    same = np.allclose(fresh, out, atol=1e-3)
    try:
        before()
        said = "ran"
    except errors.BackendError as error:
        said = "prepared before a fork" in str(error) and "refused"
    print(same, said, flush=True)
    os._exit(0)
os.waitpid(child, 0)
before()
"""


@needed
@pytest.mark.parametrize(
    ("threads", "said"),
    [
        ("1", "True ran"),
        pytest.param(
            "2",
            "True refused",
            marks=pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
        ),
    ],
)
def test_a_forked_child_computes_on_one_thread_and_never_waits_for_the_parents(threads, said):
    assert run(FORKS, OMP_NUM_THREADS=threads) == said


@needed
def test_memory_is_freed_with_its_owners():
    d = Descriptor.rows((8, 8), np.float32)
    x = np.ones((8, 8), np.float32)
    for _ in range(200):
        Primitive("matmul", d, d, None, d).execution({c.SRC: x, c.WEIGHTS: x, c.DST: np.empty_like(x)})()
    before = _resident()

    for _ in range(2000):
        Primitive("matmul", d, d, None, d).execution({c.SRC: x, c.WEIGHTS: x, c.DST: np.empty_like(x)})()

    assert _resident() - before < 4 << 20


def _resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
