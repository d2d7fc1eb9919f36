"""Sign with a secret key of this user account, to recognise files that the account has written itself.

The key is 32 random bytes in ``tenon/key`` below ``XDG_CONFIG_HOME`` (``~/.config``), created on first use
and readable by its owner only. A signature is not a checksum: it says who wrote the text, and with
HMAC-SHA256 (RFC 2104) nobody can make one without the key.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
from pathlib import Path

from tenon.config import environment

_BYTES = 32
#: File -> its identity, and the key that was read from it.
_kept: dict[str, tuple[tuple[int, ...], bytes]] = {}


def sign(text: str) -> str:
    """Return the signature of ``text`` in hexadecimal; empty where the account can keep no key."""
    key = _key(create=True)
    return "" if key is None else hmac.digest(key, _bytes_of(text), "sha256").hex()


def is_signed(text: str, signature: str) -> bool:
    """Return whether ``signature`` is that of ``text`` by this account's key."""
    key = _key(create=False)
    if key is None:
        return False
    own = hmac.digest(key, _bytes_of(text), "sha256").hex()
    return hmac.compare_digest(own.encode(), _bytes_of(signature))


def _bytes_of(text: str) -> bytes:
    """``text`` in UTF-8; a file may hold half a surrogate pair."""
    return text.encode(errors="surrogatepass")


def digest(content: bytes, *, create: bool = False) -> bytes | None:
    """Return the signature of ``content`` as 32 bytes; None where the account has no key, or with ``create``
    can keep none."""
    key = _key(create)
    return None if key is None else hmac.digest(key, content, "sha256")


def path() -> Path:
    """Return where the key is kept."""
    return Path(_file())


def _file() -> str:
    """``path()`` as a string, which takes a third of the time of a Path: it is asked for with each kernel."""
    folder = environment("XDG_CONFIG_HOME")
    if not folder:
        folder = os.path.expanduser("~/.config")
        if folder.startswith("~"):
            raise RuntimeError("This account has no home folder to keep a key in; set XDG_CONFIG_HOME.")
    return os.path.join(folder, "tenon", "key")


def _key(create: bool) -> bytes | None:
    """Return the key; None if others could have read or written it, or there is none and none can be made.

    The file is read once, and again when it is another one or has been changed.
    """
    try:
        file = _file()
        try:
            status = os.stat(file)
        except FileNotFoundError:
            if not create:
                return None
            _create(Path(file))
            status = os.stat(file)
        kept = _kept.get(file)
        if kept is not None and kept[0] == _identity(status):
            return kept[1]
        with open(file, "rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_uid != os.getuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                return None
            key = opened.read(_BYTES + 1)
    except (OSError, RuntimeError):
        return None  # a read-only home, or none
    if len(key) != _BYTES:
        return None
    _kept[file] = _identity(status), key
    return key


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Return what differs if the file was changed, or replaced, or this process became another user's."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_ctime_ns,
        status.st_mtime_ns,
        status.st_size,
        os.getuid(),
    )


def _create(file: Path) -> None:
    """Write a new key beside ``file`` and move it there unless another process was first."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(os.urandom(_BYTES))
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(temporary, file)
    finally:
        temporary.unlink()
