"""Differences, quantiles, histograms and covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.engine.aval import refuse_kinds
from tenon.engine.op import table as f
from tenon.engine.operands import need_flags
from tenon.engine.value import Value
from tenon.engine.watchers import watched_creation
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.kernels.shapes import AxisError, normalize_axis
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.reduction import shared
from tenon.tensors.named_results import named_result
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor


class Statistics(Family):
    """Methods that compute statistics: differences, quantiles, modes, histograms and covariances."""

    __slots__ = ()

    @as_function()
    def diff(
        self, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
    ) -> Tensor:
        """Return the differences of consecutive elements along ``dim``, taken ``n`` times; each time makes
        the axis one shorter. ``prepend`` and ``append`` are joined to the ends before."""
        if not self.raw.ndim:
            raise ShapeError("diff expects input to be at least one-dimensional, got a 0-d tensor")
        if n < 0:
            raise ArgumentError(f"order must be non-negative but got {n}")
        if n == 0:
            return f.alias(self)
        axis = normalize_axis(dim, self.raw.ndim)
        for p in (prepend, append):
            if p is not None:
                self._check_joined(p, axis)
        parts = [p for p in (prepend, self, append) if p is not None]
        x: Tensor = f.cat(*parts, axis=axis) if len(parts) > 1 else self
        for _ in range(n):
            size = x.raw.shape[axis]
            upper, lower = x.narrow(axis, min(1, size), max(size - 1, 0)), x.narrow(axis, 0, max(size - 1, 0))
            x = f.logical_xor(upper, lower) if x.raw.dtype.kind == "b" else f.sub(upper, lower)
        return x

    def _check_joined(self, part: Tensor, axis: int) -> None:
        """ShapeError if ``part`` cannot be joined to this tensor along ``axis``."""
        own, other = self.raw.shape, part.raw.shape
        if len(own) != len(other):
            raise ShapeError(
                "diff expects prepend or append to be the same dimension as input, but got shapes"
                f" {list(other)} and {list(own)}"
            )
        for a, (size, length) in enumerate(zip(own, other, strict=True)):
            if a != axis and size != length:
                raise ShapeError(
                    "diff expects the shape of tensor to prepend or append to match that of input except"
                    f" along the differencing dimension; input.size({a}) = {size}, but got tensor.size({a}) ="
                    f" {length}"
                )

    @as_function()
    def msort(self) -> Tensor:
        """Return a copy sorted in ascending order along the first axis: ``sort(0).values``."""
        return self.sort(0).values

    @as_function()
    @runs_in("float32", cuda="usual")
    def quantile(
        self,
        q: Tensor | float,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Tensor:
        """Return the quantiles ``q``, between 0 and 1, along ``dim``, or of all elements.

        Of a vector ``q``, they are along a new first axis. ``interpolation`` between two elements is
        "linear", "lower", "higher", "midpoint" or "nearest". NaN where an element is NaN.
        """
        return self._quantile(q, dim, keepdim, interpolation, skip_nan=False)

    @as_function()
    @runs_in("float32", cuda="usual")
    def nanquantile(
        self,
        q: Tensor | float,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Tensor:
        """Return the quantiles of the elements that are not NaN, with the parameters of ``quantile``."""
        return self._quantile(q, dim, keepdim, interpolation, skip_nan=True)

    def _quantile(
        self, q: Tensor | float, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool
    ) -> Tensor:
        need_flags("nanquantile" if skip_nan else "quantile", keepdim=keepdim)
        _check_quantile(self, q, interpolation)
        host = q._backend.to_host(q.raw) if isinstance(q, Value) else np.asarray(q, self.raw.dtype)
        if host.size and not (host.min() >= 0 and host.max() <= 1):
            raise ArgumentError(f"quantile() q values must be in the range [0, 1], got {host.tolist()}")
        points = q.reshape(-1).unbind(0) if isinstance(q, Value) else host.reshape(-1).tolist()
        rank = self.raw.ndim
        x = (
            self.reshape(-1)
            if dim is None
            else self.movedim(normalize_axis(dim, rank), -1)
            if rank
            else self.reshape(1)
        )
        if x.raw.shape[-1] == 0:
            raise ShapeError("quantile() input tensor must be non-empty")
        rows = x.sort(-1).values
        nan = f.isnan(rows)
        count = (
            f.logical_not(nan).sum(-1, True)
            if skip_nan
            else f.new_full(nan, shape=(1,), value=x.raw.shape[-1], dtype=np.dtype(np.int64))
        )
        top = f.sub(count, 1).to(x.dtype).clamp(min=0)
        results = [self._at(rows, f.mul(top, p), interpolation) for p in points]
        if not skip_nan:
            with_nan = nan.any(-1, True)
            results = [f.where(with_nan, float("nan"), v) for v in results]
        if dim is not None and rank:
            axis = normalize_axis(dim, rank)
            results = [v.movedim(-1, axis) if keepdim else v.squeeze(-1) for v in results]
        else:
            results = [v.reshape((1,) * rank if keepdim else ()) for v in results]
        return results[0] if host.ndim == 0 else f.stack(*results, axis=0)

    @staticmethod
    def _at(rows: Tensor, position: Tensor, interpolation: str) -> Tensor:
        """Interpolate sorted ``rows`` at a fractional ``position`` along the last axis."""
        shape = (*rows.raw.shape[:-1], 1)
        if interpolation == "nearest":
            return rows.gather(-1, f.expand(f.round(position).long(), shape=shape))
        low, high = f.floor(position), f.ceil(position)
        below, above = (rows.gather(-1, f.expand(p.long(), shape=shape)) for p in (low, high))
        if interpolation in ("lower", "higher"):
            return below if interpolation == "lower" else above
        weight = 0.5 if interpolation == "midpoint" else f.sub(position, low)
        return below.lerp(above, weight)

    @as_function()
    def nanmedian(self, dim: int | None = None, keepdim: bool = False) -> Any:  # a tensor if ``dim`` is None
        """Return the median of the elements that are not NaN; with ``dim``, the named tuple
        ``(values, indices)`` along it. Of an even number it is the lower one of the two in the middle."""
        need_flags("nanmedian", keepdim=keepdim)
        if dim is None:
            flat = self.reshape(-1)
            numbers = flat[f.logical_not(f.isnan(flat))]
            if not numbers.raw.size:
                return shared(flat, flat.detach()[0]) if flat.raw.size else flat.sum() * float("nan")
            return numbers.median()
        axis = normalize_axis(dim, self.raw.ndim)
        count = f.logical_not(f.isnan(self)).sum(axis, True)
        ordered = self.sort(axis)
        middle = f.floor_divide(f.sub(count, 1).clamp(min=0), 2)
        values, indices = ordered.values.gather(axis, middle), ordered.indices.gather(axis, middle)
        if not keepdim:
            values, indices = values.squeeze(axis), indices.squeeze(axis)
        return named_result("nanmedian", values=values, indices=indices)

    @as_function(out="exact", refusal="result")
    def mode(self, dim: int = -1, keepdim: bool = False) -> NamedResult:
        """Return the named tuple ``(values, indices)`` of the most frequent element along ``dim``, the
        smallest if there are several, and the last index at which it is."""
        need_flags("mode", keepdim=keepdim)
        axis = normalize_axis(dim, self.raw.ndim)
        if not self.raw.ndim:
            return named_result("mode", values=self.clone(), indices=f.argmax(self, axis=None))
        if not self.raw.shape[axis]:
            raise AxisError(f"mode(): Expected reduction dim {axis} to have non-zero size.")
        indices = f.mode_index(self, axis=axis)
        values = f.gather(self, indices, axis=axis)
        if not keepdim:
            values, indices = values.squeeze(axis), indices.squeeze(axis)
        return named_result("mode", values=values, indices=indices)

    @as_function()
    @watched_creation
    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
        """Return how many elements are in each of ``bins`` intervals of equal width between ``min`` and
        ``max``.

        If both are 0, they are the smallest and the largest element.
        """
        from tenon.tensors.creation.create import from_backend_array

        refuse_kinds("histc", "c", self.raw)
        if bins <= 0:
            raise ArgumentError(f"torch.histc(): bins must be > 0, got {bins}")
        if min > max:
            raise ArgumentError(f"torch.histc(): max must be larger than min, got min={min} and max={max}")
        host = self._backend.to_host(self.raw)
        low, high = (float(host.min()), float(host.max())) if min == max and host.size else (min, max)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise ArgumentError(f"torch.histc: range of [{low}, {high}] is not finite")
        if low == high:
            low, high = low - 1, high + 1
        counts, _ = np.histogram(host[(host >= low) & (host <= high)], bins, (low, high))
        return from_backend_array(self, counts.astype(host.dtype))

    @as_function()
    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:  # a tensor; a tuple with inverse indices and counts if they are requested
        """Return the elements without immediate repetitions as a vector; with ``dim``, the slices along that
        axis.

        With ``return_inverse`` or ``return_counts``, return a tuple: after the elements come the index of
        each input element (or slice) among them, and the lengths of the runs.
        """
        need_flags("unique_consecutive", return_inverse=return_inverse, return_counts=return_counts)
        x = self.reshape(-1) if dim is None else self.movedim(dim, 0)
        size = x.raw.shape[0]
        if size > 1:
            differs = f.ne(x.narrow(0, 1, size - 1), x.narrow(0, 0, size - 1))
            differs = differs.reshape(size - 1, -1).any(1) if x.raw.ndim > 1 else differs
            fresh = f.cat(f.new_full(differs, shape=(1,), value=True), differs, axis=0)
        else:
            fresh = f.new_full(x.detach(), shape=(size,), value=True, dtype=np.dtype(np.bool_))
        starts = fresh.nonzero().reshape(-1)
        distinct = x[starts]
        results = [distinct if dim is None else distinct.movedim(0, dim)]
        if return_inverse:
            inverse = f.sub(fresh.cumsum(0), 1)
            results.append(inverse.reshape(self.raw.shape) if dim is None else inverse)
        if return_counts:
            end = f.new_full(starts, shape=(1,), value=size)
            results.append(f.cat(starts, end, axis=0).diff() if size else starts)
        return results[0] if len(results) == 1 else tuple(results)

    @as_function()
    def cov(
        self, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
    ) -> Tensor:
        """Return the covariance matrix of the rows, which are variables; the columns are observations.

        The sums are divided by the number of observations less ``correction``. ``fweights`` are how often
        each observation counts, ``aweights`` how important it is.
        """
        if self.raw.ndim > 2:
            raise ShapeError(
                "cov(): expected input to have two or fewer dimensions but got an input with "
                f"{self.raw.ndim} dimensions"
            )
        x: Tensor = self if self.raw.ndim == 2 else self.reshape(1, -1)
        for name, each, kinds in (("fweights", fweights, "iu"), ("aweights", aweights, "f")):
            _check_weights(name, each, kinds, x.raw.shape[1])
        weights = aweights if fweights is None else fweights if aweights is None else fweights * aweights
        norm: Tensor | float
        if weights is None:
            count = x.raw.shape[1]
            centred = f.sub(x, f.div(x.sum(1, True), count))
            norm = float(max(count - correction, 0))
        else:
            total = weights.sum()
            centred = f.sub(x, f.div(f.mul(x, weights).sum(1, True), total))
            shrink = (
                correction if aweights is None else f.div(f.mul(weights, aweights).sum() * correction, total)
            )
            norm = f.clamp(f.sub(total, shrink), 0, None)
        left = centred if weights is None else f.mul(centred, weights)
        product = f.matmul(left, f.conj(centred.transpose(0, 1)))
        result = f.div(product, norm)
        return result if x.raw.shape[0] != 1 else result.reshape(())

    @as_function()
    def corrcoef(self) -> Tensor:
        """Return the matrix of the correlation coefficients of the rows: the covariances divided by the
        standard deviations, with 1 on the diagonal. A vector is a single row, for which the result is 0-d."""
        c = self.cov()
        if not c.raw.ndim:
            return f.div(c, c)
        deviation = f.sqrt(f.real(c.diagonal()))
        result = f.div(f.div(c, deviation.unsqueeze(1)), deviation)
        if result.raw.dtype.kind == "c":
            return f.rectangular(f.real(result).clamp(-1, 1), f.imag(result).clamp(-1, 1))
        return result.clamp(-1, 1)


def _check_weights(name: str, weights: Tensor | None, kinds: str, observations: int) -> None:
    if weights is None:
        return
    if weights.raw.ndim > 1:
        raise ShapeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights.raw.ndim}"
            " dimensions"
        )
    if weights.raw.dtype.kind not in kinds:
        expected = "integral" if kinds == "iu" else "floating point"
        raise DTypeError(
            f"cov(): expected {name} to have {expected} dtype but got {name} with {weights.dtype} dtype"
        )
    if weights.raw.size != observations:
        raise ShapeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got"
            f" {weights.raw.size} != {observations}"
        )
    if weights.device.type != "meta" and weights.raw.size and weights.min().item() < 0:
        raise ArgumentError(f"cov(): {name} cannot be negative")


def _check_quantile(x: Tensor, q: Tensor | float, interpolation: str) -> None:
    if x.raw.dtype.kind != "f" or x.raw.dtype.itemsize < 4:
        raise DTypeError(f"quantile() input tensor must be either float or double dtype, got {x.dtype}")
    if isinstance(q, Value) and q.raw.dtype != x.raw.dtype:
        raise DTypeError("quantile() q tensor must be same dtype as the input tensor")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise ArgumentError(
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
            + repr(interpolation)
        )
