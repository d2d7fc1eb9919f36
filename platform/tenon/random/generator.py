"""``Generator`` and the process's default one, with PyTorch's names.

A generator's numbers are drawn on the host, so that a seed gives the same numbers on every device. This layer
is below tensors: a state is a uint8 NumPy array here, which ``tenon.tensors`` wraps by the function that it
passes to ``state_conversion``.

Next: ``continuous.py`` and ``discrete.py`` draw from ``stream_of(generator)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.device import TYPES, Device, DeviceLike
from tenon.errors import DeviceError, RandomArgumentError, UnsupportedError
from tenon.random.mt19937 import MersenneTwister

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

#: PyTorch's device types without generators; those of plugins have other names.
_WITHOUT_NUMBERS = frozenset(TYPES) - {"cpu", "cuda"}
#: Seed of a new Generator, PyTorch's.
DEFAULT_SEED = 67280421310721


class Watch:
    """A callback ``changed(method, repeat)`` for changes of a generator other than draws, such as seeding.

    ``repeat`` is a function that repeats the change; None if that would not have the same effect.
    """

    changed: Callable[[str, Callable[[], object] | None], None] | None = None


class _StateConversion:
    wrap: Callable[[np.ndarray], Any] = staticmethod(lambda array: array)  # a Tensor, once it is set


def state_conversion(wrap: Callable[[np.ndarray], Tensor]) -> None:
    """Make ``get_state`` return ``wrap(uint8 array)``; called once by the tensor layer."""
    _StateConversion.wrap = staticmethod(wrap)


def _as_array(state: Tensor | np.ndarray) -> np.ndarray:
    return np.asarray(getattr(state, "raw", state))


class Generator:
    """A stream of random numbers with its own state: ``torch.Generator``.

    >>> g = Generator().manual_seed(7)
    >>> g.initial_seed()
    7
    """

    __slots__ = ("__weakref__", "_device", "_stream")

    def __init__(self, device: Device | str | int = "cpu") -> None:
        self._device = Device(device)
        if self._device.type in _WITHOUT_NUMBERS:
            raise DeviceError(
                f"{self._device.type.upper()} device type not an accelerator: no random numbers are drawn"
                " there. Use 'cpu', 'cuda' or a plugin's device."
            )
        self._stream = MersenneTwister(DEFAULT_SEED)

    @property
    def device(self) -> Device:
        """The device that was passed to the constructor."""
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Restart from ``seed``; negative ones count down from 2**64. Returns self."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise RandomArgumentError(
                f"manual_seed expected a long, but got {type(seed).__name__} ({seed!r:.40}). Pass an integer."
            )
        value = _checked_seed(seed)
        with self._stream.lock:
            self._stream.reseed(value)
        if Watch.changed is not None:
            Watch.changed("manual_seed", lambda: self._stream.reseed(value))
        return self

    def seed(self) -> int:
        """Restart from a seed taken from the operating system, and return it."""
        if Watch.changed is not None:
            Watch.changed("seed", None)
        value = _entropy()
        with self._stream.lock:
            self._stream.reseed(value)
        return value

    def initial_seed(self) -> int:
        """Return the seed from which the stream started."""
        return self._stream.seed

    def get_state(self) -> Tensor:
        """Return the state: 5056 bytes, interchangeable with PyTorch's of a generator on the CPU."""
        with self._stream.lock:
            state = self._stream.state()
        return _StateConversion.wrap(state)

    def set_state(self, new_state: Tensor | np.ndarray) -> None:
        """Set the state, as ``get_state`` returned it here or in PyTorch."""
        if Watch.changed is not None:
            Watch.changed("set_state", None)
        with self._stream.lock:
            self._stream.set_state(_as_array(new_state))

    def clone_state(self) -> Generator:
        """Return a new generator on the same device and with the same state."""
        return _rebuild(str(self._device), self._raw_state())

    def get_offset(self) -> int:
        """Not defined for this stream: it has no counter."""
        raise UnsupportedError(
            "CPU Generator does not use offset. Save and restore with get_state() and set_state()."
        )

    def set_offset(self, offset: int) -> None:
        """Not defined for this stream: it has no counter."""
        raise UnsupportedError(
            "CPU Generator does not use offset. Save and restore with get_state() and set_state()."
        )

    def _raw_state(self) -> np.ndarray:
        with self._stream.lock:
            return self._stream.state()

    def __repr__(self) -> str:
        return f"<tenon.Generator device={str(self._device)!r} initial_seed={self.initial_seed()}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (str(self._device), self._raw_state())

    def __deepcopy__(self, memo: object) -> Generator:
        return self.clone_state()


def _rebuild(device: str, state: np.ndarray) -> Generator:
    generator = Generator(device)
    generator._stream.set_state(state)
    return generator


def _entropy() -> int:
    return int.from_bytes(os.urandom(8), "little") & 0x1FFFFFFFFFFFFF  # 53 bits are exact as a float64


def _checked_seed(seed: int) -> int:
    value = int(seed)
    if not -(1 << 63) <= value < 1 << 64:
        raise RandomArgumentError(
            f"Overflow when unpacking long long: the seed {value} does not lie in [-0x8000_0000_0000_0000, "
            "0xffff_ffff_ffff_ffff]. Take it modulo 2**64."
        )
    return value & 0xFFFFFFFFFFFFFFFF


#: The generator of functions that are called without one.
default_generator = Generator()
default_generator.seed()
_default_stream = default_generator._stream


def stream_of(generator: Generator | None) -> MersenneTwister:
    """Return the word stream of ``generator``, or of the default generator if it is None."""
    if generator is None:
        return _default_stream
    if not isinstance(generator, Generator):
        raise RandomArgumentError(
            f"expected a Generator, got {type(generator).__name__}. Pass "
            "generator=tenon.Generator().manual_seed(...)."
        )
    return generator._stream


def manual_seed(seed: int) -> Generator:
    """Seed the default generator and return it."""
    return default_generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the default generator from the operating system and return the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed from which the default generator started."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the state of the default generator, 5056 bytes as in PyTorch."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor | np.ndarray) -> None:
    """Set the state of the default generator, as ``get_rng_state`` returned it."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(
    devices: Iterable[DeviceLike] | None = None, enabled: bool = True, device_type: str | None = None
) -> Iterator[None]:
    """Restore the default generator's state at the end of the block.

    ``devices`` and ``device_type`` have no effect: there is one default stream for all devices.
    """
    if not enabled:
        yield
        return
    state = default_generator._raw_state()
    try:
        yield
    finally:
        default_generator.set_state(state)
