"""Compiling is completed beside a main thread that a signal takes away."""

import signal
import threading
import time

import pytest

from tenon_cpu.jit.undisturbed import undisturbed


def test_work_is_done_in_another_thread_and_returns_or_raises():
    where = undisturbed(threading.current_thread)
    nested = undisturbed(lambda: (threading.current_thread(), where()))

    assert where() is not threading.main_thread()
    assert len(set(nested())) == 1  # a thread of its own is enough

    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda: 1 / 0)()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_what_a_signal_raises_leaves_the_work_whole():
    lock, done = threading.RLock(), []

    @undisturbed
    def work():
        with lock:
            time.sleep(0.3)
            done.append(len(done))
        return done[-1]

    def interrupt(*given):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert work() == 1  # after the one that went on
    assert done == [0, 1]
