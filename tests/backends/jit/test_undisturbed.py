"""Compilation completes even if a signal interrupts the main thread."""

import importlib
import signal
import subprocess
import sys
import threading

import pytest

from tenon_cpu.jit.compiler import compile as jit
from tenon_cpu.jit.compiler.undisturbed import undisturbed


def test_work_is_done_in_another_thread_and_returns_or_raises():
    where = undisturbed(threading.current_thread)
    nested = undisturbed(lambda: (threading.current_thread(), where()))

    assert where() is not threading.main_thread()
    assert len(set(nested())) == 1  # a thread of its own is enough

    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda: 1 / 0)()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_what_a_signal_raises_leaves_the_work_whole():
    lock, interrupted, done = threading.RLock(), threading.Event(), []

    @undisturbed
    def work():
        with lock:
            if not done:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
                interrupted.wait(30)
            done.append(len(done))
        return done[-1]

    def interrupt(*given):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert done == []
        interrupted.set()
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert work() == 1  # after the one that went on
    assert done == [0, 1]


ENDING = """
import signal, threading, time
from tenon_cpu.jit.compiler.undisturbed import undisturbed

def work():
    started.set()
    interrupted.wait(30)
    time.sleep(0.3)
    print("whole")

def interrupt(*given):
    raise KeyboardInterrupt

started, interrupted = threading.Event(), threading.Event()
signal.signal(signal.SIGUSR1, interrupt)
threading.Thread(target=lambda: started.wait() and signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)).start()
try:
    undisturbed(work)()
except KeyboardInterrupt:
    print("interrupted")
    interrupted.set()
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_a_program_that_ends_on_a_signal_ends_after_the_work():
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=300)

    assert (done.returncode, done.stdout) == (0, "interrupted\nwhole\n"), done.stderr


@pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}")
def test_numba_is_imported_where_no_signal_can_leave_half_of_it(monkeypatch):
    real, where = importlib.import_module, []
    monkeypatch.setattr(
        importlib, "import_module", lambda name: where.append(threading.current_thread()) or real(name)
    )

    assert jit._Numba().load().__name__ == "numba"
    assert where and threading.main_thread() not in where
