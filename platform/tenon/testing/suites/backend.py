"""Conformance of backends: subclass, name the device type, and pytest runs every op's samples there.

::

    class TestMyBackend(BackendSuite):
        backend = "mine"

Values are compared with the samples' NumPy references, gradients with finite differences. If the backend is
not available, all tests but the one of its availability are skipped with the backend's reason. The last test
prints a coverage table (shown by ``pytest -s``).

Next: ``samples/placement.py`` places arguments on a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

import tenon.ops  # noqa: F401 - defines the ops
from tenon import dtypes
from tenon.device import Device
from tenon.engine.aval import aval_of
from tenon.engine.op import Composite, Kind, Op, Primitive
from tenon.engine.op import table as ops
from tenon.engine.types import Operand, OpNamespace
from tenon.graph.cluster import Builder, Namespace
from tenon.kernels.backend import Availability, Backend, backend_for, backend_named
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor
from tenon.testing import samples
from tenon.testing.assertions import as_tuple, assert_same, host
from tenon.testing.gradcheck import check_gradients
from tenon.testing.samples.placement import placed
from tenon.testing.samples.table import Sample

#: Every op with samples; ``to_device`` names its device in its attributes and has tests of its own below.
NAMES = sorted({s.op for s in samples.everything()} - {"to_device"})
#: Ops whose kernel is a function of the array namespace, to which in-place methods pass ``out=``.
_IN_PLACE = [
    n for n in NAMES if isinstance(op := ops[n], Primitive) and op.ufunc and op.kind is Kind.ELEMENTWISE
]


class BackendSuite:
    """Checks of a backend, op by op."""

    backend: ClassVar[str] = "cpu"
    #: Floating dtypes that values are checked in, and the half-width ones for samples that allow them.
    wide: ClassVar[tuple[str, ...]] = ("float64", "float32")
    narrow: ClassVar[tuple[str, ...]] = ("float16", "bfloat16")
    #: The order up to which gradients are checked.
    order: ClassVar[int] = 1
    #: Ops that the backend does not support, with the reason.
    missing: ClassVar[dict[str, str]] = {}
    _covered: ClassVar[dict[str, dict[str, int]]]

    @classmethod
    def setup_class(cls) -> None:
        """Create a coverage table for every subclass."""
        cls._covered = {name: {"values": 0, "gradients": 0} for name in NAMES}

    def device(self) -> Device:
        """Return the device under test; skip the test if it is not available."""
        available = self.instance().is_available()
        if not available:
            pytest.skip(available.reason)
        return Device(self.backend)

    def instance(self) -> Backend:
        """Return the backend under test."""
        return backend_named(self.backend)

    def test_availability_is_answered_with_a_reason(self) -> None:
        """``is_available`` returns an answer with a reason and never raises."""
        answer = self.instance().is_available()

        assert isinstance(answer, Availability)
        assert isinstance(answer.ok, bool) and answer.reason
        assert bool(self.instance().devices()) == answer.ok

    @pytest.mark.parametrize("name", NAMES)
    def test_values(self, name: str) -> None:
        """Every sample in every dtype returns the reference's values and does not modify its inputs."""
        device, op = self._op(name)
        for sample in samples.of(name):
            for kind in self._dtypes(sample):
                self._check_values(device, op, sample, kind)

    @pytest.mark.parametrize("name", NAMES)
    def test_gradients(self, name: str) -> None:
        """Gradients of every differentiable sample agree with finite differences in float64."""
        device, op = self._op(name)
        for sample in samples.of(name):
            order = min(sample.order, self.order)
            if sample.active and order:
                arrays = sample.arrays(np.float64)
                check_gradients(
                    op,
                    arrays,
                    sample.attrs,
                    active=sample.active,
                    order=order,
                    device=device,
                    outputs=sample.graded,
                )
                self._covered[name]["gradients"] += 1

    @pytest.mark.parametrize("name", _IN_PLACE)
    def test_out_receives_the_result(self, name: str) -> None:
        """A kernel that is a function of the array namespace fills ``out=`` and returns it."""
        device, op = self._op(name)
        sample = next(s for s in samples.of(name) if all(isinstance(d, samples.Draw) for d in s.inputs))
        arguments = [placed(sample, i, np.float32, device) for i in range(len(sample.inputs))]
        expected = op(*arguments)
        backend = self.instance()
        out = backend.empty(tuple(expected.shape), expected.raw.dtype, device)

        result = backend.kernels[op](*(getattr(a, "raw", a) for a in arguments), out=out, **sample.attrs)

        assert result is out
        assert_same(backend.to_host(out), expected, where=str(sample))

    @pytest.mark.parametrize("kind", dtypes.ALL, ids=lambda d: d.name)
    @pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (2, 1, 3)], ids=str)
    def test_values_survive_a_round_trip(self, kind: dtypes.dtype, shape: tuple[int, ...]) -> None:
        """Any dtype, shape and memory layout; the device's copy does not change with the host's array."""
        device, backend = self.device(), self.instance()
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind.numpy)

        for source in (array, array.T, array[..., ::-1] if shape else array):
            original = source.copy()
            on_device = backend.from_host(source, device)
            if self.backend != "cpu":
                source[...] = 1
            back = backend.to_host(on_device)

            assert isinstance(back, np.ndarray) and back.dtype == original.dtype
            assert_same(back, original)
            source[...] = original

    def test_shared_memory_is_detected(self) -> None:
        """Views of one array overlap, separate arrays do not, and each has a device."""
        device, backend = self.device(), self.instance()
        base = wrap(np.arange(6.0).reshape(2, 3), device)
        other = wrap(np.arange(6.0).reshape(2, 3), device)

        assert backend.shares_memory(base.raw, base[0].raw)
        assert not backend.shares_memory(base.raw, other.raw)
        base[0].fill_(7)
        assert host(base).tolist() == [[7, 7, 7], [3, 4, 5]]
        assert backend_for(base.device) is backend and base.device.type == self.backend

    def test_gradients_flow_between_host_and_device(self) -> None:
        """A leaf on the host gets the gradient of operations on the device, and vice versa."""
        device = self.device()
        on_host, on_device = wrap(np.array([1.0, 2.0])), wrap(np.array([3.0, 4.0]), device)
        on_host.requires_grad_()
        on_device.requires_grad_()

        (on_host.to(device) * on_device).to("cpu").sum().backward()

        assert on_host.grad.device.type == "cpu" and on_host.grad.tolist() == [3, 4]
        assert on_device.grad.device == on_device.device and host(on_device.grad).tolist() == [1, 2]

    def test_waiting_and_marking_and_memory(self) -> None:
        """Synchronising returns, marks increase, and memory, if reported, is consistent."""
        device, backend = self.device(), self.instance()
        before = backend.mark(device)
        wrap(np.ones(1000), device).sum()
        backend.synchronize(device)

        assert int(backend.mark(device)) >= int(before)
        if type(backend).memory is Backend.memory:
            return  # the backend reports no memory
        stats = backend.memory(device)
        assert 0 <= stats.used <= stats.peak and (stats.total is None or stats.peak <= stats.total)

    @pytest.mark.parametrize("name", ["exp", "affine", "softmax"])
    def test_fused_kernels_compute_what_their_ops_do(self, name: str) -> None:
        """Where the backend's compiler fuses a cluster, the kernel computes the values of the ops."""
        device, backend = self.device(), self.instance()
        if backend.compiler is None:
            pytest.skip(f"backend {self.backend!r} has no compiler: programs run by its kernels")
        builder = Builder()
        f: OpNamespace = Namespace(builder)
        x, y = (builder.input((64, 96), np.float32) for _ in range(2))
        outcome = {
            "exp": lambda: f.exp(x),
            "affine": lambda: x * y + y,
            "softmax": lambda: f.softmax(x, axis=1),
        }
        kernel = backend.compiler.fuse(builder.build([outcome[name]()]))
        if kernel is None:
            pytest.skip(f"backend {self.backend!r} does not fuse {name}")
        draws = np.random.default_rng(0)
        arrays = [backend.from_host(draws.normal(size=(64, 96)).astype(np.float32), device) for _ in range(2)]
        out = backend.empty((64, 96), np.dtype(np.float32), device)

        kernel(*arrays, out)

        f, (x, y) = backend.raw, arrays
        assert_same(backend.to_host(out), backend.to_host(outcome[name]()), loose=4)

    def test_coverage(self) -> None:
        """Print what was checked; every op in ``missing`` exists."""
        self.device()
        print("\n" + self.coverage())

        assert not [n for n in self.missing if n not in ops.by_name], (
            "the list of missing ops names unknown ones"
        )

    def coverage(self) -> str:
        """Return a table: op, origin of its kernel, number of samples with compared values and gradients."""
        own = set(self.instance().overrides())
        rows = [f"{'op':32} {'kernel':8} {'values':>6} {'gradients':>9}"]
        for name in sorted(ops.by_name):
            counts = self._covered.get(name, {"values": 0, "gradients": 0})
            kernel = "own" if name in own else "parts" if isinstance(ops[name], Composite) else "shared"
            kernel = "missing" if name in self.missing else kernel
            rows.append(f"{name:32} {kernel:8} {counts['values']:6} {counts['gradients']:9}")
        return "\n".join(rows)

    def _op(self, name: str) -> tuple[Device, Op]:
        device = self.device()
        if name in self.missing:
            pytest.skip(self.missing[name])
        return device, ops[name]

    def _dtypes(self, sample: Sample) -> tuple[str, ...]:
        if not any(getattr(d, "floating", False) for d in sample.inputs):
            return self.wide[:1]
        narrow = (
            sample.narrow
            and sample.reference is not None
            and not sample.tags & {"integer", "extreme", "large"}
        )
        return (*self.wide, *self.narrow) if narrow else self.wide

    def _check_values(self, device: Device, op: Op, sample: Sample, kind: str) -> None:
        numpy_type = dtypes.BY_NAME[kind].numpy
        arrays = sample.arrays(numpy_type)
        arguments = [placed(sample, i, numpy_type, device) for i in range(len(arrays))]
        where = f"{sample} in {kind} on {device}"

        with no_grad():
            results = as_tuple(op(*arguments, **sample.attrs))

        for result, expected in zip(results, self._expected(op, sample, arrays, kind), strict=True):
            assert result.device.type == device.type, f"{where}: the result is on {result.device}"
            # The inputs of a narrow sample are rounded, so its result is too, once more.
            loose = sample.loose if kind in self.wide else 2 * sample.loose
            assert_same(result, expected, loose=loose, where=where)
        self._check_dtypes(op, sample, arguments, results, where)
        for argument, array in zip(arguments, arrays, strict=True):
            if not isinstance(array, np.ndarray):
                continue
            assert host(argument).tobytes() == array.tobytes(), f"{where}: an input was changed"
            if not op.view:
                shared = [r for r in results if self.instance().shares_memory(r.raw, argument.raw)]
                assert not shared, (
                    f"{where}: the result shares memory with an input, but {op.name} is not a view"
                )
        self._covered[op.name]["values"] += 1

    def _expected(self, op: Op, sample: Sample, arrays: list[Operand], kind: str) -> tuple[np.ndarray, ...]:
        if sample.reference is None:
            with no_grad():
                result = op(
                    *(wrap(a.copy()) if isinstance(a, np.ndarray) else a for a in arrays), **sample.attrs
                )
            return tuple(host(m) for m in as_tuple(result))
        if kind in self.wide:
            return tuple(np.asarray(e) for e in as_tuple(sample.expected(arrays)))
        narrow = dtypes.BY_NAME[kind].numpy
        precise = [
            a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype == narrow else a for a in arrays
        ]
        results = [np.asarray(e) for e in as_tuple(sample.expected(precise))]
        return tuple(
            e.astype(narrow) if e.dtype == np.float32 and "dtype" not in sample.attrs else e for e in results
        )

    def _check_dtypes(
        self, op: Op, sample: Sample, arguments: list[Operand], results: Sequence[Tensor], where: str
    ) -> None:
        """Assert that shapes and dtypes of the results are those that the shape rule infers."""
        if op.promotion is not None or op.name == "nonzero":
            return
        inferred = as_tuple(op.infer(*(aval_of(getattr(a, "raw", a)) for a in arguments), **sample.attrs))
        for result, aval in zip(results, inferred, strict=True):
            assert tuple(result.shape) == tuple(aval.shape), (
                f"{where}: {list(result.shape)}, its shape rule infers {aval}"
            )
            assert result.raw.dtype == aval.dtype, (
                f"{where}: {result.raw.dtype}, its shape rule infers {aval}"
            )
