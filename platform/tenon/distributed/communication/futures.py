"""``tenon.futures``: the result of an asynchronous call, with torch's names.

Communication hooks return futures. Engines here complete a collective before they return, so most futures are
done when they are created; ``wait`` blocks for one that another thread completes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

from tenon.errors import CommunicatorError

T = TypeVar("T")
S = TypeVar("S")

__all__ = ["Future", "collect_all", "wait_all"]


class Future(Generic[T]):
    """A result, or an exception in place of one, of an asynchronous call; ``devices`` has no effect.

    >>> future = Future()
    >>> doubled = future.then(lambda done: 2 * done.value())
    >>> future.set_result(21)
    >>> doubled.wait()
    42
    """

    def __init__(self, *, devices: object = None) -> None:
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], object]] = []

    def done(self) -> bool:
        """Whether there is a result or an exception."""
        return self._done.is_set()

    def wait(self) -> T:
        """Block until done; return the result, or raise the exception."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def value(self) -> T:
        """The result of a completed future, as in a callback."""
        if not self.done():
            raise CommunicatorError("value() of a future that is not done. Use wait(), or call it in then().")
        return self.wait()

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """The future of ``callback(self)``, called as soon as this one is done."""
        following: Future[S] = Future()

        def call(done: Future[T]) -> None:
            try:
                result = callback(done)
            except Exception as error:  # raised by ``wait``
                following.set_exception(error)
            else:
                following.set_result(result)

        self.add_done_callback(call)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Call ``callback(self)`` when this future is done, at once if it is already."""
        with self._lock:
            if not self.done():
                self._callbacks.append(callback)
                return
        callback(self)

    def set_result(self, result: T) -> None:
        """Complete the future with ``result``; allowed once."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Complete the future with an exception, which ``wait`` raises."""
        self._finish(None, result)

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        with self._lock:
            if self.done():
                raise CommunicatorError("this future is already done; its result can be set only once.")
            self._value, self._error = value, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def collect_all(futures: Iterable[Future[T]]) -> Future[list[Future[T]]]:
    """A future of the list of all ``futures``, done when the last of them is."""
    pending = list(futures)
    collected: Future[list[Future[T]]] = Future()
    remaining = len(pending)
    lock = threading.Lock()

    def count_down(_: Future[T]) -> None:
        nonlocal remaining
        with lock:
            remaining -= 1
            last = remaining == 0
        if last:
            collected.set_result(pending)

    if not pending:
        collected.set_result(pending)
    for future in pending:
        future.add_done_callback(count_down)
    return collected


def wait_all(futures: Iterable[Future[T]]) -> list[T]:
    """Wait for all ``futures`` and return their results in order; raises the first exception in order."""
    return [future.wait() for future in collect_all(futures).wait()]
