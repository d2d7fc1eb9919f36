"""Concurrent and interrupted calls of compiled functions: threads, errors, observers; long runs of whole models."""

import dataclasses
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import nn, optim
from tenon.engine.interceptor import SLOT
from tenon.engine.watchers import WATCHERS
from tenon.errors import CaptureError
from tenon.nn import functional as F
from tenon_cpu.jit.compiler import llvm


class Counter:
    """An interceptor that records the ops that it receives."""

    def __init__(self):
        self.seen = []

    def run(self, op, args, attrs):
        self.seen.append(op.name)
        return SLOT.below(self)(op, args, attrs)


def test_an_interceptor_sees_every_op_and_the_program_goes_on_after(twins):
    model = twins.mlp()
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled, eager = tenon.compile(step, fullgraph=True), Counter()
    for i in range(5):
        compiled(twins.batch(i))
    counter = Counter()
    for function, watcher in ((step, eager), (compiled, counter)):
        SLOT.push(watcher)
        try:
            function(twins.batch(9))
        finally:
            SLOT.pop(watcher)
    compiled(twins.batch(10))

    assert counter.seen == eager.seen
    assert len(counter.seen) > 10
    assert len(compiled.programs) == 1


def test_an_interceptor_that_its_thread_has_removed_passes_ops_on():
    removed, other = Counter(), Counter()
    SLOT.push(removed)
    top = SLOT.top  # as another thread reads it, which is held up until the interceptor is gone
    SLOT.pop(removed)

    assert top.run(tenon.ops.mul, (tenon.ones(2), 3.0), {}).tolist() == [3, 3]
    SLOT.push(other)
    try:
        assert top.run(tenon.ops.mul, (tenon.ones(2), 3.0), {}).tolist() == [3, 3]
    finally:
        SLOT.pop(other)
    assert other.seen == ["mul"]


def test_calls_under_anomaly_detection_are_eager(twins):
    model = tenon.compile(twins.mlp(), fullgraph=True)
    for i in range(5):
        model(twins.batch(i))
    expected = model(twins.batch(7))

    with tenon.autograd.set_detect_anomaly(True):
        watched = model(twins.batch(7))
        watched.sum().backward()

    assert "CompiledFunction" in str(expected.grad_fn)
    assert "CompiledFunction" not in str(watched.grad_fn)
    assert tenon.allclose(expected, watched, atol=1e-6)  # sums near 0 keep the rounding of their terms


def test_threads_share_one_compiled_function(twins):
    model = twins.mlp()
    compiled = tenon.compile(model)
    expected = [model(twins.batch(i)).detach().numpy() for i in range(30)]
    wrong = []

    def work(number):
        try:
            with tenon.set_grad_enabled(bool(number % 2)):
                for i in range(30):
                    found = compiled(twins.batch(i)).detach().numpy()
                    if not np.allclose(found, expected[i], atol=1e-5):
                        wrong.append((number, i))
        except Exception as error:  # shown by the assertion below
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
    assert compiled.programs


def test_threads_take_turns_in_one_compiled_step(twins):
    model = twins.mlp()
    optimizer = optim.SGD(model.parameters(), lr=0.0)
    total = tenon.zeros(())

    @tenon.compile(fullgraph=True)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        total.add_(1.0)
        return loss

    x = twins.batch(0)
    losses = [step(x).item() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda: [losses.append(step(x).item()) for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert total.item() == len(losses) == 204
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


def test_an_error_in_a_run_changes_nothing_and_the_next_call_works():
    table = nn.Embedding(5, 3)
    optimizer = optim.SGD(table.parameters(), lr=0.1, momentum=0.9)

    @tenon.compile(fullgraph=True)
    def step(places):
        optimizer.zero_grad()
        loss = table(places).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        step(tenon.tensor([1, 2]))
    held = optimizer.state[table.weight]["momentum_buffer"]
    before = table.weight.detach().clone(), held.clone(), table.weight._version
    with pytest.raises(IndexError, match="index out of range") as failed:
        step(tenon.tensor([1, 9]))

    assert any("test_compile_calls.py" in note for note in failed.value.__notes__)
    assert tenon.equal(table.weight, before[0])
    assert tenon.equal(held, before[1])
    assert table.weight._version == before[2]
    assert step(tenon.tensor([1, 2])).isfinite().item()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_interrupted_calls_leave_nothing_broken():
    program = Path(__file__).parent / "programs" / "interrupted.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "nothing is broken\n"


def test_an_interrupt_while_a_recording_ends_leaves_nothing_behind(monkeypatch):
    compiled, times, pop = tenon.compile(lambda x: x * 2), [], type(SLOT).pop

    def interrupted(slot, recorder):
        times.append(recorder)
        if len(times) == 1:
            raise KeyboardInterrupt
        pop(slot, recorder)

    monkeypatch.setattr(type(SLOT), "pop", interrupted)
    compiled(tenon.ones(2))
    with pytest.raises(KeyboardInterrupt):
        compiled(tenon.ones(2))

    assert WATCHERS.recorder is None and SLOT.top is None
    for _ in range(3):
        compiled(tenon.ones(2))
    assert len(compiled.programs) == 1


def test_outputs_are_apart_from_arguments_buffers_and_each_other():
    compiled = tenon.compile(lambda x: (x.view(-1), x[0], x.T, (x + 1)[0], x + 1), fullgraph=True)
    for _ in range(4):
        kept = compiled(tenon.ones(2, 2))
    values = [each.tolist() for each in kept]
    x = tenon.full((2, 2), 7.0)
    later = compiled(x)
    for each in later:
        each.zero_()

    assert [each.tolist() for each in kept] == values
    assert x.tolist() == [[7.0, 7.0], [7.0, 7.0]]


def test_explain_prints_every_recording_with_its_reason(capsys):
    compiled = tenon.compile(lambda x: x * 2, explain=True)
    for size in (2, 3):
        for _ in range(4):
            compiled(tenon.ones(size))

    lines = capsys.readouterr().err.splitlines()
    assert [line.rsplit(": ", 1)[-1] for line in lines] == [
        *compiled.reasons[:1],
        "(float32[3])",
        compiled.reasons[2],
    ]


def test_kinds_of_calls_are_bounded_and_the_rest_stays_eager():
    compiled = tenon.compile(lambda x: x * 2)
    with pytest.warns(UserWarning, match="more than 8 kinds of calls"):
        for size in range(1, 13):
            for _ in range(4):
                assert compiled(tenon.ones(size)).tolist() == [2.0] * size

    assert len(compiled.programs) == 8


def words(i, *shape, high=20):
    return tenon.tensor(np.random.default_rng(i).integers(0, high, shape))


class Block(nn.Module):
    """Causal attention and a feed-forward part."""

    def __init__(self, width=16):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = (
            each.unflatten(2, (2, 8)).transpose(1, 2) for each in self.qkv(self.norm1(x)).split(16, dim=2)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out(seen))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


def mlp():
    net = nn.Sequential(
        nn.Linear(10, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(32), nn.Linear(32, 3)
    )
    return net, optim.AdamW(net.parameters(), lr=1e-3), lambda i: (tenon.randn(16, 10), words(i, 16, high=3))


def cnn():
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3),
        nn.ReLU(), nn.Dropout2d(0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return net, optimizer, lambda i: (tenon.randn(4, 1, 10, 10), words(i, 4, high=10))


def gpt():
    net = nn.Sequential(
        nn.Embedding(20, 16), nn.Dropout(0.1), Block(), Block(), nn.LayerNorm(16), nn.Linear(16, 20)
    )
    return net, optim.AdamW(net.parameters(), lr=1e-3), lambda i: (words(2 * i, 3, 8), words(2 * i + 1, 3, 8))


@pytest.mark.parametrize("model", [pytest.param(m, marks=pytest.mark.slow) for m in (mlp, cnn, gpt)])
def test_200_steps_of_whole_models_stay_with_the_eager_ones(model):
    losses = []
    for compiled in (False, True):
        tenon.manual_seed(0)
        net, optimizer, batch = model()
        schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)

        def step(x, y, net=net, optimizer=optimizer, schedule=schedule):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x).flatten(0, -2), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            return loss

        run = tenon.compile(step, fullgraph=True) if compiled else step
        losses.append([run(*batch(i)).item() for i in range(200)])

    assert len(run.programs) == 1, run.reasons
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-4)


@pytest.mark.skipif(not llvm.available(), reason="llvmlite is not installed")
def test_a_forward_without_gradients_keeps_nothing_for_them_and_fuses():
    model = nn.Sequential(nn.LayerNorm(64), nn.GELU()).eval()
    compiled = tenon.compile(model, fullgraph=True)
    x = tenon.randn(32, 64)

    with tenon.no_grad():
        for _ in range(4):
            found = compiled(x)

        np.testing.assert_allclose(found.numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6)
    (program,) = compiled.programs
    assert [call.label for call in program.graph.calls] == ["layer_norm+gelu"]


def test_what_is_kept_from_the_compiler_runs_at_every_call():
    layer, calls = tenon.nn.Linear(2, 2), []
    note = tenon.compiler.disable(reason="it counts")(lambda x: calls.append(1) or x)
    compiled = tenon.compile(lambda x: note(layer(x)))

    with pytest.warns(UserWarning, match=r"disable \(it counts\)") as seen:
        results = [compiled(tenon.ones(2)) for _ in range(6)]

    assert len(seen) == 1 and len(calls) == 6
    assert tenon.equal(results[5], layer(tenon.ones(2)))
    assert tenon._dynamo.disable(layer) is layer
    strict = tenon.compile(layer, fullgraph=True)
    with pytest.raises(CaptureError, match="forward is excluded from compilation"):
        [strict(tenon.ones(2)) for _ in range(4)]
    with pytest.raises(ValueError, match="takes a function or a module, got int"):
        tenon.compiler.disable(3)


@pytest.fixture
def stance():
    yield tenon.compiler.set_stance
    tenon.compiler.set_stance("default")


def test_a_stance_holds_from_now_on_in_a_block_or_in_a_function(stance):
    double = tenon.compile(lambda x: x * 2)
    with stance("force_eager"):
        for _ in range(4):
            double(tenon.ones(2))
    assert not double.programs
    for _ in range(3):
        double(tenon.ones(2))

    stance("fail_on_recompile")
    assert double(tenon.ones(2)).tolist() == [2, 2]
    with pytest.raises(CaptureError, match="stance is 'fail_on_recompile'"):
        double(tenon.ones(3))
    with stance("force_eager"):
        assert double(tenon.ones(3)).tolist() == [2, 2, 2]
    stance("default")
    other = stance("eager_on_recompile")(lambda size: double(tenon.ones(size)))
    assert [other(size).numel() for size in (5, 5, 5, 5, 2)] == [5, 5, 5, 5, 2]
    assert len(double.programs) == 1
    for _ in range(4):
        double(tenon.ones(5))

    assert len(double.programs) == 2
    with pytest.raises(ValueError, match="invalid stance 'fast'"):
        stance("fast")
    with pytest.raises(ValueError, match="force_backend"):
        stance(force_backend="eager")


def test_programs_are_forgotten_when_the_compiler_is_reset():
    double = tenon.compile(lambda x: x * 2)
    for _ in range(4):
        double(tenon.ones(2))
    assert double.programs

    tenon._dynamo.reset()

    assert not double.programs and not double.reasons
    assert [double(tenon.ones(2)).tolist() for _ in range(4)] == [[2, 2]] * 4
    assert len(double.programs) == 1


@dataclasses.dataclass
class Answer:
    loss: tenon.Tensor


@pytest.mark.parametrize("make", [Answer, lambda y: y.numpy()], ids=["dataclass", "array"])
def test_objects_with_tensors_that_are_made_anew_at_every_call_are_never_those_of_a_recording(make):
    compiled = tenon.compile(lambda x: {"made": make(x.detach() * 2), "x": x})
    answers = []

    with pytest.warns(UserWarning, match=r"runs eagerly: (.*a new Answer in every call|Python reads)"):
        for i in (1, 1, 1, 1, 1, 1, 1, 2, 3):
            made = compiled(tenon.full((2,), i))["made"]
            answers.append(float(np.asarray(getattr(made, "loss", made))[0]))

    assert answers == [2, 2, 2, 2, 2, 2, 2, 4, 6] and not compiled.programs


def test_plain_objects_are_returned_from_programs():
    compiled = tenon.compile(lambda x: (x * 2, x.shape, x.device, x.dtype, float("nan"), b"b", range(3)))

    found = [compiled(tenon.ones(2)) for _ in range(5)][-1]

    assert len(compiled.programs) == 1 and np.isnan(found[4])
    assert found[1:4] == (tenon.Size([2]), tenon.device("cpu"), tenon.float32) and found[5:] == (
        b"b",
        range(3),
    )


def test_fullgraph_makes_numbers_that_change_and_arguments_of_no_kind_errors():
    numbers = iter(range(100))
    strict = tenon.compile(lambda x: x * float(next(numbers)), fullgraph=True)

    with pytest.raises(
        CaptureError, match=r"cannot be compiled \(fullgraph=True\): two calls recorded.* in mul"
    ):
        [strict(tenon.ones(2)) for _ in range(12)]
    before = next(numbers)
    with pytest.raises(CaptureError, match="fullgraph=True"):
        strict(tenon.ones(2))
    assert next(numbers) == before + 1, "it is known, and not tried again"
    with pytest.raises(CaptureError, match="neither a tensor nor hashable"):
        tenon.compile(lambda x, a: x, fullgraph=True)(tenon.ones(2), np.ones(2))


@pytest.mark.parametrize("name", ["fmod", "xlogy"])
def test_numpy_scalars_count_as_the_python_numbers_that_they_are(name):
    function, whole = getattr(tenon, name), tenon.ones(3, dtype=tenon.uint8)
    for scalar in (np.float64(2.5), np.float16(2.5), np.int64(2), np.bool_(True)):
        compiled = tenon.compile(lambda x, scalar=scalar: function(x, scalar))

        found = {str(compiled(whole).dtype) for _ in range(3)}

        assert found == {str(function(whole, scalar.item()).dtype)}, type(scalar)
