"""PowerSGD: gradients as products of two thin matrices (Vogels et al., 2019), with torch's names.

A matrix ``M`` becomes ``P Q^T``: ``P = M Q`` is averaged and orthogonalised, then ``Q = M^T P`` is averaged.
The error of the product is added to the next gradient (error feedback), and ``Q`` starts from that of the
last step (warm start), so that one step of the power iteration per training step is enough. Vectors, and
matrices that would not become smaller, are sent uncompressed.

The first ``start_powerSGD_iter`` steps are not compressed, as gradients are large and change fast then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tenon import Tensor
from tenon.errors import CommunicatorError
from tenon.extend import Communicator
from tenon.extend import distributed_parts as parts

GradBucket = parts.GradBucket
Future = parts.Future
__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


class PowerSGDState:
    """Options of the hook, and its state between steps; each model needs its own.

    ``compression_stats()`` returns how much was saved. ``orthogonalization_epsilon``, if not 0, is added to
    the norms in Gram-Schmidt, which then replaces QR. Matrices are multiplied one by one, whatever
    ``batch_tensors_with_same_shape`` is: batching them gains nothing on the host.
    """

    def __init__(
        self,
        process_group: Communicator | None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if matrix_approximation_rank < 1:
            raise CommunicatorError(
                f"matrix_approximation_rank={matrix_approximation_rank} must be at least 1."
            )
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because"
                " PowerSGD can only be applied after the first two iterations in DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.rng = np.random.default_rng(random_seed)
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.error_dict: dict[int, np.ndarray] = {}
        self.q_memory_dict: dict[int, list[np.ndarray]] = {}
        self.iter = 0
        self.total_numel_before_compression = 0
        self.total_numel_after_compression = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count the step at its last bucket."""
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self) -> tuple[float, int, int]:
        """Return the compression ratio, and the numbers of elements before and after compression."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0.0), before, after

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "process_group"}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore a state without its group: it communicates with all ranks."""
        self.__dict__.update(state, process_group=None)


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """Compress each gradient of the bucket as a matrix whose rows are its first axis."""

    def matrices(flat: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        gradients = [parts.to_host(gradient) for gradient in bucket.gradients()]
        compressed = [
            g for g in gradients if g.ndim > 1 and _shrinks(g.shape[0], math.prod(g.shape[1:]), state)
        ]
        compressed_ids = {id(g) for g in compressed}
        return [g.reshape(len(g), -1) for g in compressed], [
            g.reshape(-1) for g in gradients if id(g) not in compressed_ids
        ]

    return _run(state, bucket, matrices)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """Compress the bucket as one square matrix: fewer messages and less work, but less accuracy."""

    def matrices(flat: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        side = math.ceil(math.sqrt(flat.size))
        square = np.zeros((side, side), flat.dtype)
        square.reshape(-1)[: flat.size] = flat
        return [square], []

    return _run(state, bucket, matrices)


def _run(
    state: PowerSGDState | None,
    bucket: GradBucket,
    matrices: Callable[[np.ndarray], tuple[list[np.ndarray], list[np.ndarray]]],
) -> Future[Tensor]:
    """Average the bucket; ``matrices`` splits its data into matrices to compress and other arrays."""
    if not isinstance(state, PowerSGDState):
        raise CommunicatorError(
            f"PowerSGD needs a PowerSGDState, not {state!r}: "
            "model.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=2), 'powersgd')."
        )
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return parts.allreduce_hook(state.process_group, bucket)
    buffer = bucket.buffer()
    flat = parts.to_host(buffer)
    index = bucket.index()
    if state.use_error_feedback:
        error = state.error_dict.get(index)
        if error is not None and error.size == flat.size:
            flat += error
        state.error_dict[index] = flat.copy()
    compressed, uncompressed = matrices(flat)
    communicator = parts.group(state.process_group)
    _average(communicator, uncompressed, f"uncompressed {bucket.name()}")
    qs = _initial_q(state, index, compressed)
    ps = [m @ q for m, q in zip(compressed, qs, strict=True)]
    _average(communicator, ps, f"P of {bucket.name()}")
    for p in ps:
        _orthogonalize(p, state.orthogonalization_epsilon)
    for number, (m, p) in enumerate(zip(compressed, ps, strict=True)):
        qs[number] = m.T @ p
    _average(communicator, qs, f"Q of {bucket.name()}")
    for m, p, q in zip(compressed, ps, qs, strict=True):
        np.matmul(p, q.T, out=m)
        if not np.shares_memory(m, flat):
            flat[...] = m.reshape(-1)[: flat.size]
    if state.use_error_feedback:
        state.error_dict[index] -= flat
    if state.warm_start:
        state.q_memory_dict[index] = qs
    state.total_numel_before_compression += flat.size
    state.total_numel_after_compression += sum(a.size for a in (*ps, *qs, *uncompressed))
    state.maybe_increase_iter(bucket)
    return parts.done(buffer)


def _shrinks(rows: int, columns: int, state: PowerSGDState) -> bool:
    """Whether compressing a matrix saves at least ``min_compression_rate``."""
    rank = min(rows, columns, state.matrix_approximation_rank)
    return (rows + columns) * rank * state.min_compression_rate < rows * columns


def _initial_q(state: PowerSGDState, index: int, matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return orthonormal ``Q`` to start from: the last step's, or random ones that are equal on all ranks."""
    shapes = [(m.shape[1], min(*m.shape, state.matrix_approximation_rank)) for m in matrices]
    factors = state.q_memory_dict.get(index)
    if factors is None or [q.shape for q in factors] != shapes:
        factors = [
            state.rng.standard_normal(shape).astype(m.dtype)
            for shape, m in zip(shapes, matrices, strict=True)
        ]
    for q in factors:
        _orthogonalize(q, state.orthogonalization_epsilon)
    return factors


def _orthogonalize(matrix: np.ndarray, epsilon: float) -> None:
    """Replace the columns of ``matrix`` by orthonormal ones that span the same space."""
    if epsilon == 0:
        matrix[...] = np.linalg.qr(matrix.astype(np.float64))[0]
        return
    for i in range(matrix.shape[1]):
        column = matrix[:, i]
        column /= np.linalg.norm(column) + epsilon
        matrix[:, i + 1 :] -= np.outer(column, column @ matrix[:, i + 1 :])


def _average(communicator: Communicator, arrays: Sequence[np.ndarray], name: str) -> None:
    """Replace ``arrays`` by their means over the ranks, in one message."""
    if not arrays:
        return
    message = np.concatenate([array.reshape(-1) for array in arrays])
    communicator.all_reduce(message, "mean", out=message, name=name)
    start = 0
    for array in arrays:
        array[...] = message[start : start + array.size].reshape(array.shape)
        start += array.size


for _hook in (powerSGD_hook, batched_powerSGD_hook):
    _hook.make_state = PowerSGDState  # type: ignore[attr-defined]
