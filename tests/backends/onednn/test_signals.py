"""Signals that arrive while oneDNN uses the stack pointer for the heap do not corrupt memory."""

import ctypes
import os
import subprocess
import sys
import threading

import pytest

import tenon
from tenon_cpu.onednn import available
from tenon_cpu.onednn.runtime import runtime
from tenon_cpu.onednn.signal_stacks import cover_team, cover_thread, covered

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)

PROGRAM = """
import signal, time, tenon

wide, rows = tenon.randn(1, 128, 384), tenon.randn(1, 4, 128, 128)
heads = wide[..., 256:].view(1, 128, 4, 32).transpose(1, 2)
large, part = tenon.randn(512, 512), tenon.randn(512, 600)[:, :512]
wanted, seen = (rows @ heads, large @ part), []


def come(number, frame):
    seen.append(number)
    kept = [bytearray(size) for size in (64, 600, 4096, 65536, 262144)]


signal.signal(signal.SIGALRM, come)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
end = time.monotonic() + 1.5
while time.monotonic() < end or len(seen) <= 10:
    assert tenon.equal(rows @ heads, wanted[0]) and tenon.equal(large @ part, wanted[1])
signal.setitimer(signal.ITIMER_REAL, 0)
print("seen", len(seen))
"""


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_timer_in_the_middle_of_products_breaks_nothing(threads):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "OMP_NUM_THREADS": threads, "PYTHONFAULTHANDLER": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 10


def in_thread(work):
    """Return the result of ``work`` in a new thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are given on Linux only")
def test_each_thread_that_uses_onednn_has_a_stack_for_signals():
    def work():
        before = covered()
        tenon.randn(256, 300) @ tenon.randn(300, 256)
        return before, covered()

    assert in_thread(work) == (False, True)


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are given on Linux only")
def test_a_stack_that_is_there_stays_and_one_of_ours_goes_with_its_thread():
    def work():
        cover_thread()
        cover_thread()
        return covered()

    assert [in_thread(work) for _ in range(50)] == [True] * 50


@pytest.mark.skipif(sys.platform != "linux", reason="signal stacks are given on Linux only")
def test_openmps_threads_have_stacks_too():
    openmp, found = runtime().openmp, []
    if openmp is None or not hasattr(openmp, "GOMP_parallel"):
        pytest.skip("this oneDNN has no OpenMP threads")

    def look(_):
        found.append(covered())

    def work():
        cover_thread()
        cover_team(openmp, 3)
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look)
        openmp.GOMP_parallel(region, None, ctypes.c_uint(3), ctypes.c_uint(0))

    in_thread(work)
    assert found == [True] * 3
