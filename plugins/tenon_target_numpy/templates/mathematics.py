"""Mathematical functions that NumPy lacks."""

from __future__ import annotations

import numpy as np

_NEAR64 = (
    1.1283791670955125738, -0.37612638903183748056, 0.11283791670954878666, -0.026866170645076793248,
    0.0052239776248180144673, -0.00085483269808337899052, 0.00012055331111642710923,
    -0.000014925595266831181565, 1.6461000484121368033e-6, -1.6350312701054695011e-7,
    1.4659775274047435814e-8, -1.137284885679167367e-9, 5.9571761477489114044e-11,
)  # fmt: skip
_FAR64 = (
    0.69155117605643307415, -0.20683126504048622013, 0.11479674120103710733, -0.040647578516950684701,
    -0.0030998090543708088407, 0.018750997234779506987, -0.01727508731993408727, 0.010070828103346952563,
    -0.0039718084073313811903, 0.00086504543394831241797, 0.000070624173294477157883,
    -0.00012112777496112804523, 0.00002762261426474466918, 8.0967076414983943538e-6,
    -5.3635989909620418884e-6, -1.3778221103165723928e-7, 8.0077404866146591078e-7,
    -1.0424699109619192368e-7, -1.0658800590638645192e-7, 4.4869821055121060577e-8,
    -5.2906226839347382631e-9,
)  # fmt: skip
_NEAR32 = (
    1.12837916585, -0.376126266667, 0.112835947152, -0.0268542120106, 0.00518908742343, -0.000801686428717,
    7.87587506269e-5,
)  # fmt: skip
_FAR32 = (
    0.766187007935557, -0.25997472858236476, 0.03781681617269672, 0.042528483945528404, -0.025300615140547326,
    -0.00035436502038264304, 0.004156151339434388, -0.0008315679395720619,
)  # fmt: skip


def polynomial(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    """Evaluate by Horner's rule, lowest coefficient first."""
    result = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        result = result * x + x.dtype.type(c)
    return result


def erf_near(x: np.ndarray) -> np.ndarray:
    """Return ``erf`` of ``|x| <= 1``."""
    return x * polynomial(_NEAR64 if x.dtype.itemsize == 8 else _NEAR32, x * x)


def erfc_far(size: np.ndarray) -> np.ndarray:
    """Return ``erfc`` of ``size >= 1``."""
    double = size.dtype.itemsize == 8
    size = np.minimum(size, size.dtype.type(30.0 if double else 11.0))
    k = 3.75 if double else 2.0
    tail = polynomial(_FAR64 if double else _FAR32, (size - k) / (size + k))
    steps = 65536.0 if double else 256.0
    head = np.floor(size * steps) * (1.0 / steps)
    # exp(-size^2) in two factors: rounding the square would cost digits.
    return tail * np.exp(-head * head) * np.exp((head - size) * (head + size)) / (size + 1.0)


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function."""
    size = np.abs(x)
    far = np.copysign(1.0 - erfc_far(np.maximum(size, x.dtype.type(1))), x)
    return np.where(size < 1, erf_near(np.clip(x, -1, 1)), far)


def erfc(x: np.ndarray) -> np.ndarray:
    """Return ``1 - erf(x)``, accurate also where it is tiny."""
    size = np.abs(x)
    far = erfc_far(np.maximum(size, x.dtype.type(1)))
    near = 1.0 - erf_near(np.clip(x, -1, 1))
    return np.where(size < 1, near, np.where(x < 0, 2.0 - far, far))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-x))``, which keeps the digits of small results; of complex numbers by tanh."""
    if np.iscomplexobj(x):
        return np.tanh(x * 0.5) * 0.5 + 0.5
    return 1.0 / (1.0 + np.exp(-x))
