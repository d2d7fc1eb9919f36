"""The referee of values that differ: the same call with all operands in float64, as numbers that their dtypes hold.

Where torch and tenon differ by rounding, or in a range that a dtype does not have, ours may not be further from that
call's results than torch's are, except by the tolerance of the dtype.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from parity.catalogue import Case
from parity.dtype_sweep import Operand, Outcome, Varied
from parity.sides import TOLERANCE

import tenon

#: How many times as far as torch's a result may be: both round, in other places.
TIMES = 4


class Widened(Varied):
    """A side whose operands are widened after they have been rounded to their dtypes."""

    def tensor(self, spec: str) -> Any:
        before = len(self.leaves)
        x = super().tensor(spec)
        if not hasattr(x, "detach") or (spec[0] in "ikb" and not x.dtype.is_floating_point):
            return x
        wide = x.detach().to(tenon.complex128 if x.dtype.is_complex else tenon.float64)
        if len(self.leaves) > before:
            self.leaves[-1] = wide.requires_grad_()
        return wide


def _distance(x: np.ndarray, exact: np.ndarray, scale: float) -> float:
    """The largest difference of ``x`` and ``exact``; infinite where only one of them is a finite number."""
    if x.dtype.kind == "c":
        return max(_distance(getattr(x, part), getattr(exact, part), scale) for part in ("real", "imag"))
    with np.errstate(all="ignore"):
        rounded = exact.astype(x.dtype)
        difference = np.abs(x.astype(exact.dtype) - exact)
        same = (x == rounded) | (np.isnan(x) & np.isnan(rounded))
    difference = np.where(same, 0, np.where(np.isnan(difference), np.inf, difference))
    return float(difference.max(initial=0)) / scale


def further(torch: Any, case: Case, operands: tuple[Operand | None, ...]) -> str | None:
    """In which part tenon is further from the exact result than torch, and by how much; None if in none.

    A part that cannot be judged, as the wide call has no such part, counts as further.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = Outcome(torch, case, operands), Outcome(tenon, case, operands)
        exact = Outcome(tenon, case, operands, side=Widened)
    for what, expected in theirs.parts.items():
        found, wide = ours.parts.get(what), exact.parts.get(what)
        if found is wide is None:  # without a derivative of this order, torch has zeros
            continue
        if found is None or wide is None or len(found) != len(wide) or len(found) != len(expected):
            return f"{what}: {exact.error or exact.no_gradient or 'other parts'}"
        for a, b, z in zip(found, expected, wide, strict=True):
            if not all(isinstance(v, tuple) and len(v) == 3 for v in (a, b, z)):
                continue
            if a[1] != z[1] or a[2].dtype.kind not in "fc":
                if np.array_equal(a[2], b[2]):
                    continue
                return f"{what}: {a[0]}{list(a[1])}, wide {z[0]}{list(z[1])}"
            finite = np.abs(z[2][np.isfinite(z[2])])
            scale = max(float(finite.max(initial=0)), 1.0)
            away, torchs = _distance(a[2], z[2], scale), _distance(b[2], z[2], scale)
            names = [a[0], *(o.dtype for o in operands if o is not None and what != "result")]
            if away > max(TIMES * torchs, 10 * max(TOLERANCE.get(name, 0) for name in names)):
                return f"{what}: {away:.2g} away, torch {torchs:.2g}"
    return None
