"""Short-time Fourier transforms: ``stft`` and its inverse ``istft``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import ops
from tenon.compat.node_names import titled
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.functions import fft
from tenon.functions.creation import view_as_real
from tenon.tensors.creation.create import from_backend_array

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["istft", "stft"]

#: PyTorch's name of a padding mode -> NumPy's.
_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _framing(name: str, n_fft: int, hop_length: int | None, win_length: int | None) -> tuple[int, int]:
    """Return the hop length and the window length; ArgumentError if they are out of range."""
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if hop <= 0:
        raise ArgumentError(f"{name}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise ArgumentError(
            f"{name}: expected 0 < win_length <= n_fft, but got win_length={length}, n_fft={n_fft}"
        )
    return hop, length


def _padded(x: Tensor, width: int, mode: str) -> Tensor:
    """Pad both ends of the signals by ``width`` samples."""
    if mode == "constant":
        return ops.pad(x, widths=((0, 0), (width, width)))
    if mode not in _MODES:
        raise ArgumentError(f"stft: pad_mode must be 'constant' or one of {list(_MODES)}, got {mode!r}")
    size = x.raw.shape[-1]
    if (mode == "reflect" and width >= size) or (mode == "circular" and width > size):
        raise ShapeError(f"stft: {width} samples of padding are too many for a signal of {size} samples")
    return x.index_select(-1, from_backend_array(x, np.pad(np.arange(size), width, mode=_MODES[mode])))


def _window(name: str, x: Tensor, window: Tensor | None, length: int, n_fft: int) -> Tensor:
    """Pad the window, by default of ones, with zeros on both sides to ``n_fft`` samples."""
    if window is not None and tuple(window.raw.shape) != (length,):
        raise ShapeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={length}, but got window with"
            f" size {list(window.raw.shape)}"
        )
    if window is None:
        window = x.real.detach().new_ones(length)
    elif window.raw.dtype.kind in "biu":  # whose squares would wrap
        window = window.to(x.real.dtype)
    left = (n_fft - length) // 2
    return ops.pad(window, widths=((left, n_fft - length - left),))


def _of_stft(input: Tensor, *args: Tensor | int, return_complex: bool | None = None, **kwargs: object) -> str:
    return "Squeeze4" if input.raw.ndim == 1 and return_complex is not False else ""


@titled(_of_stft)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Return the spectra ``[..., frequency, frame]`` of overlapping frames of a signal ``[..., time]``.

    Frames of ``n_fft`` samples start every ``hop_length`` samples (by default ``n_fft // 4``) and are
    multiplied by ``window`` (by default ones, about which PyTorch warns). With ``center`` the signal is
    padded so that the middle of frame ``t`` is at ``t * hop_length``.
    """
    complex_input = input.raw.dtype.kind == "c" or (
        isinstance(window, Value) and window.raw.dtype.kind == "c"
    )
    if input.raw.dtype.kind not in "fc":
        raise DTypeError(f"stft: expected a tensor of floating point or complex values, got {input.dtype}")
    if return_complex is None and not complex_input:
        raise ArgumentError(
            "stft requires the return_complex parameter be given for real inputs, and will further require"
            " that return_complex=True in a future PyTorch release."
        )
    if center and align_to_window is not None:
        raise ArgumentError("stft align_to_window should only be set when center = false")
    if input.raw.ndim not in (1, 2):
        raise ShapeError(f"stft: expected a 1D or 2D tensor, got shape {list(input.raw.shape)}")
    hop, length = _framing("stft", n_fft, hop_length, win_length)
    framed = _window("stft", input, window, length, n_fft)
    x = input if input.raw.ndim == 2 else input.unsqueeze(0)
    if center:
        x = _padded(x, n_fft // 2, pad_mode)
    elif align_to_window:
        x = _padded(x, (n_fft - length) // 2, "constant")
    if not 0 < n_fft <= x.raw.shape[-1]:
        raise ArgumentError(f"stft: expected 0 < n_fft <= {x.raw.shape[-1]}, but got n_fft={n_fft}")
    if onesided and complex_input:
        raise ArgumentError("Cannot have onesided output if window or input is complex")
    half = not complex_input if onesided is None else onesided
    norm = "ortho" if normalized else "backward"
    frames = x.unfold(-1, n_fft, hop) * framed
    result = (fft.rfft if half else fft.fft)(frames, norm=norm).transpose(-1, -2)
    result = result if input.raw.ndim == 2 else result.squeeze(0)
    return result if return_complex or return_complex is None else view_as_real(result)


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Return the signal ``[..., time]`` whose ``stft`` with the same settings is nearest to ``input``.

    The sum of overlapping frames is divided by the sum of the squared windows, which must not be zero.
    ``length`` truncates the signal, or pads it with zeros.
    """
    if input.raw.dtype.kind != "c":
        raise DTypeError(
            "istft requires a complex-valued input tensor matching the output from stft with"
            " return_complex=True."
        )
    if input.raw.ndim not in (2, 3) or not input.raw.size:
        raise ShapeError(
            f"istft: expected a tensor with 2 or 3 dimensions and elements, got {list(input.raw.shape)}"
        )
    hop, width = _framing("istft", n_fft, hop_length, win_length)
    x = input if input.raw.ndim == 3 else input.unsqueeze(0)
    bins, count = x.raw.shape[1:]
    half = bins != n_fft if onesided is None else onesided
    if bins != (n_fft // 2 + 1 if half else n_fft):
        raise ShapeError(
            "istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft="
            f"{n_fft} when onesided={half}, but got {bins}"
        )
    if return_complex and half:
        raise ArgumentError("Cannot have onesided output if window or input is complex")
    framed = _window("istft", x, window, width, n_fft)
    if not return_complex and framed.raw.dtype.kind == "c":
        raise ArgumentError("Complex windows are incompatible with return_complex=False")
    norm = "ortho" if normalized else "backward"
    x = x.transpose(1, 2)
    if return_complex:
        frames = fft.ifft(x, norm=norm)
    else:
        frames = fft.irfft(x if half else x.narrow(-1, 0, n_fft // 2 + 1), n_fft, norm=norm)
    total = n_fft + hop * (count - 1)
    result = _overlapped(frames * framed, total, hop)
    envelope = _overlapped((framed * framed).expand(1, count, n_fft), total, hop)
    start = n_fft // 2 if center else 0
    stop = start + length if length is not None else total - n_fft // 2 if center else total
    result, envelope = (t[:, start : min(stop, total)] for t in (result, envelope))
    if envelope.raw.size and envelope.detach().abs().min().item() <= 1e-11:
        raise ArgumentError(
            "istft: window overlap add min is 0: a window of zeros leaves samples undefined. Use more"
            " overlap, or another window."
        )
    result = result / envelope
    result = ops.pad(result, widths=((0, 0), (0, max(stop - total, 0))))
    return result if input.raw.ndim == 3 else result.squeeze(0)


def _overlapped(frames: Tensor, total: int, hop: int) -> Tensor:
    """Sum overlapping frames ``[batch, frame, sample]`` to signals ``[batch, time]``."""
    return ops.fold_axis(frames, shape=(frames.raw.shape[0], total), axis=1, step=hop)
