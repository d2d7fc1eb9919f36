"""Machine code on disk: one entry per kernel, written once per machine however many ranks start together.

An entry is keyed by the kernel's source, signature and flags; its folder by everything else that the code
depends on: Python, numba, LLVM and the processor's features. ``locked`` lets one process compile while the
others wait: the lock is the kernel's (``flock``), so that it dies with its holder. Entries carry a digest of
their bytes; one that does not match, or that cannot be read, is compiled again and replaced by renaming.

Loading an entry runs it. So a folder is not used if others may write to it or to a folder above it
(``private_folders.py``), and an entry is not read unless this account signed it (``user_key``), or root owns
it. The signature covers the entry's key, so that entries cannot take each other's place.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from tenon.extend import user_key
from tenon_cpu.jit.compiler import private_folders

try:
    import fcntl
except ImportError:  # not on Windows: every process compiles for itself
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"tenon-kernel-2\n"
_DIGEST = 32
_NONE = bytes(_DIGEST)  # the signature where the account can keep no key
_LOCKS = 32
_PATIENCE = 180.0  # seconds; a stopped process must not delay the others forever
_MOST_ENTRIES = 4000


class Store:
    """Entries in ``folder``; with None, or if the folder cannot be used, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        # The folder that is checked is the one that is used, whatever a link on the way names later.
        self.folder = folder = None if folder is None else Path(os.path.realpath(folder))
        self.reason = "off" if folder is None else ""
        self._own = threading.RLock()
        if folder is not None:
            self.reason = _unusable(folder)
            if self.reason and (folder.exists() or folder.is_symlink()):
                _warn(f"compiled kernels in {folder} are not used: {self.reason}")
        self._refused = False

    @property
    def usable(self) -> bool:
        """Whether entries are kept."""
        return not self.reason

    def read(self, key: str) -> bytes | None:
        """The bytes kept under ``key``; None if there are none, or damaged ones."""
        if self.folder is None or self.reason:
            return None
        try:
            with open(self.folder / f"{key}.signed", "rb") as file:
                owner = os.fstat(file.fileno()).st_uid
                content = file.read()
        except OSError:
            return None
        middle, start = len(_MAGIC) + _DIGEST, len(_MAGIC) + 2 * _DIGEST
        body = content[start:]
        digest = _digest(key, body)
        if content[: len(_MAGIC)] != _MAGIC or digest != content[len(_MAGIC) : middle]:
            return None
        if not _is_own(digest, content[middle:start], owner):
            if not self._refused:
                self._refused = True
                _warn(
                    f"compiled kernels in {self.folder} are not used: this account did not sign {key}.signed"
                )
            return None
        return body

    def write(self, key: str, body: bytes) -> None:
        """Keep ``body`` under ``key``; if that fails, warn once and keep nothing from then on."""
        if self.folder is None or self.reason:
            return
        try:
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    digest = _digest(key, body)
                    signature = user_key.digest(digest, create=True) or _NONE
                    file.write(_MAGIC + digest + signature + body)
                os.replace(temporary, self.folder / f"{key}.signed")
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            self._prune()
        except OSError as error:
            self.reason = f"{self.folder} cannot be written: {error.strerror or error}"
            warnings.warn(
                f"compiled kernels are not cached: {self.reason}. Every start compiles them again; set"
                " TENON_CACHE to a folder that you own.",
                stacklevel=3,
            )

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the lock of ``key`` against other processes and threads, where the file system has locks."""
        with self._own, contextlib.ExitStack() as cleanup:
            if self.folder is not None and not self.reason and fcntl is not None:
                try:
                    number = int(hashlib.sha256(key.encode()).hexdigest(), 16) % _LOCKS
                    handle = os.open(self.folder / f"lock-{number:02}", os.O_RDWR | os.O_CREAT, 0o600)
                    cleanup.callback(os.close, handle)
                    _wait(handle)
                except OSError:  # a file system without locks, or one that became read-only
                    cleanup.close()
            yield

    def entries(self) -> tuple[int, int]:
        """The number of entries, and their size in bytes."""
        if self.folder is None or self.reason:
            return 0, 0
        sizes = [size for _, size, _ in self._listed()]
        return len(sizes), sum(sizes)

    def _listed(self) -> list[tuple[float, int, str]]:
        entries = []
        assert self.folder is not None
        with os.scandir(self.folder) as files:
            for file in files:
                if file.name.endswith(".signed"):
                    with contextlib.suppress(OSError):  # another process may have replaced it
                        status = file.stat()
                        entries.append((status.st_mtime, status.st_size, file.path))
        return entries

    def _prune(self) -> None:
        """Delete the oldest quarter of the entries if there are more than ``_MOST_ENTRIES``."""
        assert self.folder is not None
        # Names alone: reading the time of each of some thousand files costs as much as a small kernel.
        if sum(name.endswith(".signed") for name in os.listdir(self.folder)) > _MOST_ENTRIES:
            for _, _, path in sorted(self._listed())[: _MOST_ENTRIES // 4]:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _wait(handle: int) -> None:
    """Take the lock; after ``_PATIENCE`` go on without it, which costs a second compilation at worst."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                return
            time.sleep(0.02)


def _unusable(folder: Path) -> str:
    """Create ``folder``; return why it cannot be used, or an empty string."""
    try:
        private_folders.make(folder)
    except OSError as error:
        return f"{folder} cannot be created: {error.strerror or error}"
    return private_folders.problem(folder)


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(b"\n".join((key.encode(), body))).digest()


def _is_own(digest: bytes, signature: bytes, owner: int) -> bool:
    """Whether this account has signed ``digest``, or root owns the entry, or there is no key to sign with."""
    own = user_key.digest(digest)
    if own is not None and hmac.compare_digest(own, signature):
        return True
    if not hasattr(os, "geteuid"):
        return True
    if owner == 0 and os.geteuid() != 0:
        return True  # made by an administrator, in folders that only root can write to
    return own is None and signature == _NONE and owner == os.geteuid()


def _warn(text: str) -> None:
    warnings.warn(f"{text}. They are compiled again; set TENON_CACHE to a folder that you own.", stacklevel=4)
