"""The raw 32-bit stream of PyTorch's CPU generator: MT19937, seeded by ``init_genrand``.

NumPy's bit generator computes the words; this class makes small draws cheap and exchanges states with
PyTorch. Words are fetched into a buffer of four state blocks, so that a draw of a few numbers is a slice and
does not call the bit generator. The state at a position is computed from a recorded earlier state. As in
PyTorch, the second half of the last Box-Muller pair belongs to the state of the stream.

States are exchanged as the 5056 bytes of ``torch.get_rng_state()``.

Next: ``box_muller.py`` and the distributions convert words to numbers; ``generator.py`` is the public class.
"""

from __future__ import annotations

import threading
from typing import Any, TypeAlias

import numpy as np

from tenon.errors import RandomStateError
from tenon.random.loops import loops_for

#: Size of the state block of MT19937, in words.
BLOCK = 624
#: Words fetched at once for small draws.
BUFFER = 4 * BLOCK

#: The memory layout of PyTorch's ``CPUGeneratorImplState`` on a 64-bit little-endian machine.
STATE_LAYOUT = np.dtype(
    [
        ("seed", "<u8"),
        ("left", "<i4"),
        ("seeded", "<i4"),
        ("next", "<u8"),
        ("key", "<u8", (BLOCK,)),
        ("normal_x", "<f8"),
        ("normal_y", "<f8"),
        ("normal_rho", "<f8"),
        ("normal_is_valid", "<i4"),
        ("padding", "<i4"),
        ("next_float", "<f4"),
        ("next_float_is_valid", "<u4"),
    ]
)

_EMPTY = np.empty(0, np.uint32)

#: Distance from the recorded state at which a new one is recorded.
_REBASE = 1 << 17


#: A state of NumPy's bit generator, a dict to which "fresh" is added; None: as the seed leaves it.
BitsState: TypeAlias = Any


class MersenneTwister:
    """Words of MT19937 in order: ``take(n)`` returns the next n as uint32.

    Callers acquire ``lock`` while they draw; ``next_normal`` is the pending half of a double Box-Muller pair.
    """

    __slots__ = (
        "_at",
        "_base",
        "_bits",
        "_buffer",
        "_drawn",
        "_seeder",
        "_size",
        "last_draw",
        "lock",
        "next_normal",
        "normals",
        "seed",
    )

    def __init__(self, seed: int) -> None:
        self.lock = threading.Lock()
        self._bits: np.random.MT19937 | None = None
        self._seeder: np.random.RandomState | None = None
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Start the stream of ``seed`` (0 <= seed < 2**64); the state is built at the first draw."""
        self.seed = seed
        self._restart(None, None)

    def _restart(self, base: BitsState, next_normal: float | None) -> None:
        """Continue from ``base``, a state of NumPy's bit generator; None: from the seed."""
        self._base = base
        #: Words drawn from the engine since ``_base`` (None: since seeding); -1 before the first draw.
        self._drawn = -1
        self._buffer = _EMPTY
        self._at = self._size = 0
        self.next_normal = next_normal
        #: Unit normals computed ahead: (position of the first, words per draw, values), see ``ahead.py``.
        self.normals: tuple[int, int, np.ndarray] | None = None
        #: Words and end of the last small draw with an incomplete block.
        self.last_draw: tuple[int, int] | None = None

    def _engine(self) -> np.random.MT19937:
        """The bit generator, positioned after the last word of the buffer."""
        bits, seeder = self._bits, self._seeder
        if bits is None or seeder is None:
            bits = self._bits = np.random.MT19937(0)
            seeder = self._seeder = np.random.RandomState(bits)
        if self._drawn < 0:
            if self._base is None:
                seeder.seed(self.seed & 0xFFFFFFFF)
            else:
                bits.state = self._base
            self._drawn = 0
        return bits

    def take(self, n: int) -> np.ndarray:
        """Return the next ``n`` words. Do not write to the result: it may be a view of the buffer."""
        start = self._at
        end = start + n
        if end <= self._size:
            self._at = end
            return self._buffer[start:end]
        out = np.empty(n, np.uint32)
        head = self._size - start
        out[:head] = self._buffer[start:]
        if n - head >= BUFFER:
            fast = loops_for(n)
            if fast is None or not fast.words(self._engine(), out[head:]):
                out[head:] = self._engine().random_raw(n - head)
            self._drawn += n - head
            self._buffer, self.normals = _EMPTY, None
            self._at = self._size = 0
        else:
            self._refill()
            out[head:] = self._buffer[: n - head]
            self._at = n - head
        return out

    def ahead(self) -> tuple[int, np.ndarray]:
        """The position in the buffer and the words from there to its end, without consuming them."""
        if self._at == self._size:
            self._refill()
        return self._at, self._buffer[self._at :]

    def position(self) -> int:
        """Position in the buffer, comparable with ``ahead`` until the next refill."""
        return self._at

    def skip(self, n: int) -> None:
        """Consume ``n`` words of the buffer."""
        self._at += n

    def _refill(self) -> None:
        bits = self._engine()
        if self._drawn > _REBASE:
            self._base, self._drawn = {**bits.state, "fresh": False}, 0
        self._buffer = bits.random_raw(BUFFER).astype(np.uint32)
        self._drawn += BUFFER
        self.normals = None
        self._at, self._size = 0, BUFFER

    def state(self) -> np.ndarray:
        """The state as a uint8 array of 5056 bytes, PyTorch's layout."""
        key, position, fresh = self._key_and_position()
        record = np.zeros(1, STATE_LAYOUT)
        record["seed"] = self.seed
        record["left"] = BLOCK + 1 - position
        record["seeded"] = 1
        record["next"] = 0 if fresh else position
        record["key"] = key
        if self.next_normal is not None:
            record["normal_is_valid"] = 1
            record["normal_y"] = self.next_normal
        return record.view(np.uint8)

    def _key_and_position(self) -> tuple[np.ndarray, int, bool]:
        """MT19937's block of words, the position in it, and whether no word was drawn since seeding."""
        buffered = self._size - self._at
        bits = self._engine()
        if buffered:
            bits = _bits_of(self.seed, self._base)
            bits.random_raw(self._drawn - buffered, output=False)
        fresh = self._drawn == buffered and (self._base is None or self._base["fresh"])
        state = bits.state
        if not fresh:
            self._base, self._drawn = {**state, "fresh": False}, buffered
        return state["state"]["key"], int(state["state"]["pos"]), fresh

    def set_state(self, state: np.ndarray) -> None:
        """Set the state; if it is malformed, raise an error without changing the stream."""
        data = np.ascontiguousarray(state)
        if data.dtype != np.uint8 or data.ndim != 1:
            raise RandomStateError(
                f"RNG state must be a torch.ByteTensor (1-d, uint8), got {data.ndim}-d {data.dtype}. "
                "Pass what get_state() or get_rng_state() returned."
            )
        if data.size != STATE_LAYOUT.itemsize:
            raise RandomStateError(
                f"Expected a CPUGeneratorImplState of size {STATE_LAYOUT.itemsize} but found the input RNG "
                "state "
                f"size to be {data.size}. Pass what get_state() or get_rng_state() returned."
            )
        record = data.view(STATE_LAYOUT)[0]
        left, following = int(record["left"]), int(record["next"])
        if not record["seeded"] or not 0 < left <= BLOCK or following > BLOCK:
            raise RandomStateError(
                f"Invalid mt19937 state: seeded={int(record['seeded'])}, left={left}, next={following} "
                f"(expected 1, 1 to {BLOCK}, 0 to {BLOCK}). The bytes are damaged; the generator was not "
                "changed."
            )
        key = record["key"].astype(np.uint32)
        # PyTorch writes next = 0 where the block has not been stepped since seeding.
        fresh = left == 1 and following == 0
        base = {"bit_generator": "MT19937", "state": {"key": key, "pos": BLOCK + 1 - left}, "fresh": fresh}
        self.seed = int(record["seed"])
        self._restart(base, float(record["normal_y"]) if record["normal_is_valid"] else None)


def _bits_of(seed: int, base: BitsState) -> np.random.MT19937:
    """A bit generator in the state ``base``, or seeded as PyTorch does if that is None."""
    bits = np.random.MT19937(0)
    if base is None:
        np.random.RandomState(bits).seed(seed & 0xFFFFFFFF)
    else:
        bits.state = base
    return bits
