"""Conformance of optimizers: subclass, name the optimizer, and pytest runs every check on every backend.

::

    class TestTiger(OptimizerSuite):
        optimizer = "Tiger"

With ``reference``, one step in NumPy, values are compared too.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from _pytest.mark import ParameterSet

from tenon import dtypes, optim
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Op
from tenon.engine.types import Attrs, Operand
from tenon.errors import PluginTargetError
from tenon.kernels.backend import backend_named
from tenon.nn.parameter import Parameter
from tenon.optim import batch, update
from tenon.optim.optimizer import Optimizer
from tenon.optim.scheduler import LRScheduler
from tenon.optim.types import ParamsT
from tenon.plugins import registry
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import tensor
from tenon.tensors.creation.factories import zeros, zeros_like
from tenon.tensors.tensor import Tensor
from tenon.testing.assertions import assert_same, host

#: A matrix, a vector, a number, an empty parameter, and more small ones.
SHAPES = ((4, 3), (5,), (), (0, 2), (2, 1, 3))
#: A parameter that is too large to be updated together with others.
ALONE = (300, 400)


class OptimizerSuite:
    """Checks of ``optimizer``: a name in ``tenon.optim``, or a class."""

    #: The optimizer under test.
    optimizer: ClassVar[str | type[Optimizer]] = ""
    #: Options that differ from its defaults.
    options: ClassVar[Mapping[str, object]] = {}
    #: The dtypes of the trained parameters.
    dtypes: ClassVar[Sequence[str]] = ("float32", "float64")

    def reference(
        self, p: np.ndarray, g: np.ndarray, state: dict[str, np.ndarray], step: int, h: SimpleNamespace
    ) -> np.ndarray:
        """Return the parameter after one step, in NumPy; to be overridden.

        ``state`` belongs to the parameter and starts empty; ``step`` counts from 1; ``h`` has the options.
        """
        pytest.skip(f"{type(self).__name__} defines no reference(p, g, state, step, h) to compare with")

    # --- helpers of the checks ---

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize tests by backend; those whose hardware is absent are skipped with the reason."""
        if "backend" in metafunc.fixturenames:
            metafunc.parametrize("backend", list(_backends()))
        if "dtype" in metafunc.fixturenames:
            metafunc.parametrize("dtype", self.dtypes)

    @property
    def cls(self) -> type[Optimizer]:
        """The optimizer's class."""
        return getattr(optim, self.optimizer) if isinstance(self.optimizer, str) else self.optimizer

    # The optimizer's constructor states the types of its options.
    def make(self, params: ParamsT, **options: Any) -> Optimizer:
        """Create the optimizer of ``params``."""
        return self.cls(params, **({**self.options, **options}))

    def parameters(
        self, backend: str, dtype: str = "float32", shapes: Sequence[tuple[int, ...]] = SHAPES
    ) -> list[Parameter]:
        """Create parameters of ``shapes``, with the same values at every call."""
        rng = np.random.default_rng(0)
        return [Parameter(_tensor(rng.standard_normal(shape), dtype, backend)) for shape in shapes]

    def train(
        self,
        optimizer: Optimizer,
        params: list[Parameter],
        steps: int,
        first: int = 0,
        scheduler: LRScheduler | None = None,
    ) -> None:
        """Run the steps ``first``, ``first + 1``, ...; gradients depend on step number and shapes only."""
        for step in range(first, first + steps):
            for i, p in enumerate(params):
                p.grad = gradient(p, 100 * step + i)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()

    def needs_rule(self) -> None:
        """Skip a check that does not apply to optimizers that override ``step``."""
        if self.cls.step is not Optimizer.step:
            pytest.skip(f"{self.cls.__name__} overrides step and has no rule")

    # --- the checks ---

    def test_is_an_optimizer_with_a_docstring(self) -> None:
        """The class derives ``tenon.extend.Optimizer`` and has a docstring."""
        assert issubclass(self.cls, Optimizer)
        assert (self.cls.__doc__ or "").strip(), f"{self.cls.__name__} has no docstring"

    def test_an_unknown_option_is_refused(self) -> None:
        """It raises TypeError before any state is created."""
        with pytest.raises(TypeError):
            self.make([Parameter(zeros(1))], option_that_nobody_has=1)

    def test_decreases_a_quadratic(self, backend: str) -> None:
        """``sum((p - target) ** 2)`` is lower after 20 steps."""
        target = _tensor(np.linspace(-2, 2, 12).reshape(3, 4), "float32", backend)
        p = Parameter(zeros_like(target))
        optimizer = self.make([p])
        losses = []
        for _ in range(21):
            optimizer.zero_grad()
            loss = ((p - target) ** 2).sum()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()

        assert np.isfinite(losses).all()
        assert losses[-1] < losses[0], f"{losses[0]} before, {losses[-1]} after 20 steps"

    def test_follows_the_reference(self, backend: str, dtype: str) -> None:
        """Ten steps agree with ten of ``reference`` in float64."""
        params = self.parameters(backend, dtype)
        optimizer = self.make(params)
        expected = [host(p.detach()).astype(np.float64) for p in params]
        states: list[dict[str, np.ndarray]] = [{} for _ in params]
        h = SimpleNamespace(**optimizer.defaults)
        for step in range(10):
            for i, p in enumerate(params):
                g = host(gradient(p, 100 * step + i)).astype(np.float64)
                expected[i] = np.asarray(self.reference(expected[i], g, states[i], step + 1, h))
            self.train(optimizer, params, 1, step)

        for p, e in zip(params, expected, strict=True):
            assert_same(p.detach(), e, check_dtype=False, where=f"{self.cls.__name__}, shape {list(e.shape)}")

    def test_parameters_without_gradient_are_left_alone(self, backend: str) -> None:
        """They keep their value and have no state until they get a gradient; then they are updated."""
        params = self.parameters(backend)
        optimizer = self.make(params)
        waiting, before = params[0], host(params[0].detach()).copy()
        start = dict(optimizer.state.get(waiting, {}))
        self.train(optimizer, params[1:], 3)

        assert_same(waiting.detach(), before)
        assert dict(optimizer.state.get(waiting, {})) == start
        self.train(optimizer, params, 1, 3)
        assert (host(waiting.detach()) != before).any()

    def test_gradients_are_not_changed(self, backend: str) -> None:
        """A rule does not modify the gradient: not of small parameters, which may be copied together, and not
        of one that is updated by itself."""
        for shapes in (SHAPES, (ALONE,)):
            params = self.parameters(backend, shapes=shapes)
            optimizer = self.make(params)
            self.train(optimizer, params, 4)

            for i, p in enumerate(params):
                assert_same(p.grad, host(gradient(p, 300 + i)))

    def test_state_is_saved_and_loaded_with_reordered_parameters(self, backend: str, dtype: str) -> None:
        """A checkpoint with names is loaded for parameters in another order; training continues
        identically."""
        first, second = self.parameters(backend, dtype), self.parameters(backend, dtype)
        names = [f"layer{i}" for i in range(len(first))]
        saved = self.make(list(zip(names, first, strict=True)))
        self.train(saved, first, 4)
        resumed = self.make(list(zip(names, second, strict=True))[::-1])
        self.train(resumed, second[:2], 1, 50)
        with no_grad():
            for p, q in zip(second, first, strict=True):
                p.copy_(q)

        resumed.load_state_dict(copy.deepcopy(saved.state_dict()))
        self.train(saved, first, 4, 4)
        self.train(resumed, second, 4, 4)

        same_training(saved, first, resumed, second)

    def test_copies_and_pickles_continue_identically(self, backend: str) -> None:
        """Deep copies and pickles have parameters and state of their own and continue identically."""
        params = self.parameters(backend)
        optimizer = self.make(params)
        self.train(optimizer, params, 3)
        copies: list[Callable[[Optimizer], Optimizer]] = [
            copy.deepcopy,
            lambda o: pickle.loads(pickle.dumps(o)),
        ]
        twins = [make(optimizer) for make in copies]
        self.train(optimizer, params, 3, 3)

        for twin in twins:
            own = twin.param_groups[0]["params"]
            self.train(twin, own, 3, 3)
            same_training(optimizer, params, twin, own)

    def test_each_group_has_its_own_options(self, backend: str) -> None:
        """Two groups in one optimizer are trained as by two optimizers."""
        together, apart = self.parameters(backend), self.parameters(backend)
        changed = {n: 0.5 * v for n, v in self._rates().items()}
        groups: list[dict[str, object]] = [{"params": together[:2]}, {"params": together[2:], **changed}]
        one = self.make(groups)
        two = [self.make(apart[:2]), self.make(apart[2:], **changed)]
        self.train(one, together, 4)
        for step in range(4):
            for i, p in enumerate(apart):
                p.grad = gradient(p, 100 * step + i)
            for optimizer in two:
                optimizer.step()

        for p, q in zip(together, apart, strict=True):
            assert_same(p.detach(), host(q.detach()))

    def test_schedules_set_the_rate(self, backend: str) -> None:
        """A schedule has the effect of setting the rate directly."""
        if "lr" not in self._rates():
            pytest.skip(f"{self.cls.__name__} has no option lr")
        scheduled, by_hand = self.parameters(backend), self.parameters(backend)
        first, second = self.make(scheduled), self.make(by_hand)
        schedule = optim.lr_scheduler.LambdaLR(first, lambda step: 1 / (step + 1))
        base = second.param_groups[0]["lr"]
        self.train(first, scheduled, 4, scheduler=schedule)
        for step in range(4):
            second.param_groups[0]["lr"] = base * (1 / (step + 1))
            self.train(second, by_hand, 1, step)

        for p, q in zip(scheduled, by_hand, strict=True):
            assert_same(p.detach(), host(q.detach()))

    def test_memory_layout_does_not_matter(self, backend: str) -> None:
        """Transposed and strided parameters are trained like contiguous ones."""
        plain = self.parameters(backend, shapes=((4, 3), (6,)))
        wide = _tensor(np.zeros((6, 2)), "float32", backend)
        odd = [Parameter(plain[0].detach().t().clone().contiguous().t()), Parameter(wide[:, 1])]
        with no_grad():
            odd[1].copy_(plain[1])
        for params in (plain, odd):
            self.train(self.make(params), params, 4)

        for p, q in zip(odd, plain, strict=True):
            assert_same(p.detach(), host(q.detach()))
        assert_same(wide[:, 0], np.zeros(6, np.float32))

    def test_pieces_and_batches_give_the_whole_update_bit_for_bit(self, backend: str, dtype: str) -> None:
        """A rule with ``elementwise = True`` computes the same bits on pieces and on joined parameters."""
        self.needs_rule()
        if not self.cls.elementwise:
            pytest.skip(f"{self.cls.__name__} does not set elementwise = True, so it is never cut or joined")
        shapes = ((7, 11), (5,), (4, 2), ())
        results = []
        for piece, small in ((1 << 30, -1), (16, -1), (7, -1), (1 << 16, 1 << 12)):
            with sizes(piece, small):
                params = self.parameters(backend, dtype, shapes)
                optimizer = self.make(params)
                self.train(optimizer, params, 5)
                results.append([host(p.detach()).tobytes() for p in params])

        for result, setting in zip(results[1:], ("pieces of 16", "pieces of 7", "batches"), strict=True):
            assert result == results[0], (
                f"{setting} give other bits than whole parameters; set elementwise = False"
            )

    def test_a_watched_step_gives_the_same(self, backend: str, dtype: str) -> None:
        """The rule runs through ops too, where a recorder or profiler sees it."""
        self.needs_rule()
        quiet, watched = self.parameters(backend, dtype), self.parameters(backend, dtype)
        first, second = self.make(quiet), self.make(watched)
        self.train(first, quiet, 3)
        op_names: list[str] = []
        with watching(op_names):
            self.train(second, watched, 3)

        assert op_names, "no op was recorded: the rule must compute with f and operators only"
        same_training(first, quiet, second, watched)

    def _rates(self) -> dict[str, float]:
        """Options that are rates: numbers called ``lr``."""
        result = self.make([Parameter(zeros(1))])
        return {n: v for n, v in result.defaults.items() if n == "lr" and isinstance(v, (int, float))}


def gradient(p: Tensor, number: int) -> Tensor:
    """Return gradient ``number`` for a parameter of the shape, dtype and device of ``p``."""
    values = np.random.default_rng(number).standard_normal(tuple(p.shape))
    return _tensor(values, str(p.dtype).removeprefix("torch."), p.device.type)


def same_training(
    first: Optimizer, params: list[Parameter], second: Optimizer, others: list[Parameter]
) -> None:
    """Assert that two optimizers have produced equal parameters and equal state."""
    for p, q in zip(params, others, strict=True):
        assert_same(q.detach(), host(p.detach()))
        state, other_state = first.state.get(p, {}), second.state.get(q, {})
        assert state.keys() == other_state.keys()
        for name, value in state.items():
            if isinstance(value, Tensor):
                assert_same(other_state[name].detach(), host(value.detach()), where=f"state {name!r}")
            else:
                assert other_state[name] == value, name


def _tensor(values: npt.ArrayLike, dtype: str, backend: str) -> Tensor:
    return tensor(np.asarray(values), dtype=getattr(dtypes, dtype), device=backend)


def _backends() -> Iterator[ParameterSet]:
    for name in registry.names("backends"):
        try:
            ok, reason = backend_named(name).is_available()
        except PluginTargetError as error:  # a broken backend is not this optimizer's fault
            ok, reason = False, str(error)
        yield pytest.param(name, marks=() if ok else pytest.mark.skip(reason=f"{name}: {reason}"))


@contextmanager
def sizes(piece: int, small: int) -> Iterator[None]:
    """Cut parameters into pieces of ``piece`` elements and join those of at most ``small``."""
    before = update.PIECE, batch.SMALL
    update.PIECE, batch.SMALL = piece, small
    try:
        yield
    finally:
        update.PIECE, batch.SMALL = before


@contextmanager
def watching(op_names: list[str]) -> Iterator[None]:
    """Append the name of every op that runs to ``op_names``."""

    class Watcher:
        def run(self, op: Op, args: tuple[Operand, ...], attrs: Attrs) -> Operand:
            op_names.append(op.name)
            return SLOT.below(self)(op, args, attrs)

    watcher = Watcher()
    SLOT.push(watcher)
    try:
        yield
    finally:
        SLOT.pop(watcher)
