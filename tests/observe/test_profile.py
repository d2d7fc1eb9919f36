"""``tenon.profiler.profile``: recorded events, their sums, and no effects after it ends."""

import contextlib
import json
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.distributed.communication import communicator
from tenon.engine.interceptor import SLOT
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, TraceError, UnsupportedError
from tenon.graph import program
from tenon.nn import call_listeners
from tenon.profiler import (
    ProfilerAction,
    merge,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)
from tenon.profiler.observe.scopes import OPEN

FULL = {"record_shapes": True, "profile_memory": True, "with_modules": True, "with_flops": True}


def named(prof, name, **wanted):
    """The only event of that name, or the first with these attributes."""
    found = [e for e in prof.events() if e.key == name and all(getattr(e, k) == v for k, v in wanted.items())]
    assert found, f"no {name} {wanted} among {sorted({e.key for e in prof.events()})}"
    return found[0]


def test_ops_know_their_module_phase_shapes_and_flops(training):
    with profile(**FULL) as prof:
        training.step()

    linear = named(prof, "tenon::linear", module="Net.head")
    assert linear.input_shapes == [[32, 16], [4, 16], [4]]
    assert linear.flops >= 2 * 32 * 16 * 4
    assert linear.phase == "forward"
    node = named(prof, "AddmmBackward0", module="Net.head")
    assert node.phase == "backward" and node.event.get("Node") == 1
    inner = [child for child in node.cpu_children if child.key == "tenon::matmul"]
    assert inner and all(child.phase == "backward" and child.module == "Net.head" for child in inner)
    assert named(prof, "Optimizer.step#SGD.step").phase == "optimizer"
    assert named(prof, "nn.Module: Linear_0").module == "Net.body.0"
    assert named(prof, "backward").cpu_time_total >= node.cpu_time_total


def test_each_gradient_of_a_convolution_costs_what_it_costs_itself():
    layer = nn.Conv2d(4, 6, 3, groups=2)
    x = tenon.randn(2, 4, 9, 9).requires_grad_()

    with profile(with_flops=True) as prof:
        layer(x).sum().backward()

    products = 2 * 6 * 7 * 7 * 2 * 3 * 3
    for name in ("tenon::convolution", "tenon::conv_input_grad", "tenon::conv_weight_grad"):
        assert named(prof, name).flops == pytest.approx(2 * products, rel=0.05), name


def test_without_shapes_and_modules_there_are_none(training):
    with profile() as prof:
        training.step()

    assert all(not e.input_shapes and not e.flops for e in prof.events())
    assert not any(e.key.startswith("nn.Module") for e in prof.events())
    assert named(prof, "tenon::linear").module == "Net.body.0"


def test_gradients_and_steps_have_the_bits_of_a_run_without_a_profile(make_training):
    results = []
    for options in ({}, FULL, None):
        tenon.manual_seed(3)
        training = make_training()
        with contextlib.nullcontext() if options is None else profile(**options):
            for _ in range(3):
                training.step()
        results.append([a.numpy() for p in training.model.parameters() for a in (p.grad, p.detach())])

    for plain, full, unwatched in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, unwatched)
        np.testing.assert_array_equal(full, unwatched)


def test_self_times_add_up_to_the_outermost_events(training):
    with profile(**FULL) as prof:
        training.step()

    events = prof.events()
    outermost = sum(e.cpu_time_total for e in events if e.cpu_parent is None)
    assert events.self_cpu_time_total == pytest.approx(outermost, rel=1e-9)
    assert all(e.self_cpu_time_total >= 0 for e in events)
    sums = prof.key_averages()
    assert sums.self_cpu_time_total == pytest.approx(outermost, rel=1e-9)
    assert sum(row.count for row in sums) == len(events)


def test_memory_returns_to_its_baseline(training):
    with profile(profile_memory=True) as prof:
        x = training.x * 2.0
        y = (x + 1.0).relu()
        held = y.numel() * 4
        del x, y

    changes = sorted((e for e in prof._all() if e.name == "[memory]"), key=lambda e: e.begin)
    baseline = sum(e.get("Bytes") for e in changes if e.get("Program"))  # of other tests, if they live
    totals = [e.get("Total Allocated") for e in changes]
    assert max(totals) >= baseline + 2 * held
    assert totals[-1] == baseline
    assert all(size >= 0 for size in totals)
    assert named(prof, "tenon::mul").self_cpu_memory_usage == held


def test_after_a_profile_nobody_waits_for_the_end_of_arrays(training):
    with profile(profile_memory=True) as prof:
        kept = training.x * 2.0
        assert weakref.getweakrefcount(kept.raw) == 1

    assert weakref.getweakrefcount(kept.raw) == 0
    assert [e.get("Bytes") for e in prof._all() if e.get("Op") == "tenon::mul"] == [kept.raw.nbytes]
    with profile(profile_memory=True) as again:
        del kept
        own = training.x + 1.0
    sizes = [e.get("Bytes") for e in again._all() if e.name == "[memory]" and not e.get("Program")]
    assert sizes == [own.raw.nbytes]


def test_an_array_that_another_thread_lets_go_ends_once():
    with profile(profile_memory=True) as prof:
        held = [tenon.ones(8) + 1]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()

    sizes = [e.get("Bytes") for e in prof._all() if e.get("Op") == "tenon::add"]
    assert sizes == [32, -32]


def test_a_profile_of_nothing_is_empty(tmp_path):
    with profile(on_trace_ready=tensorboard_trace_handler(tmp_path)) as prof:
        pass

    assert (prof.events(), prof.key_averages()) == ([], [])
    assert prof.key_averages().total_average().count == 0
    assert "Self CPU time total: 0.000us" in prof.key_averages().table()
    assert len(list(tmp_path.glob("*.pt.trace.json*"))) == 1


def test_views_and_parameters_are_not_allocations(training):
    weight = training.model.head.weight.detach()

    with profile(profile_memory=True) as prof:
        views = [weight.t(), weight.reshape(-1), weight[1:]]

    assert len(views) == 3
    assert [e for e in prof._all() if e.name == "[memory]" and not e.get("Program")] == []


def test_record_function_is_a_context_and_a_decorator():
    @record_function("decorated")
    def work():
        return tenon.ones(3) + 1

    with profile() as prof:
        with record_function("outer"):
            work()
        work()

    outer = named(prof, "outer")
    assert [child.key for child in outer.cpu_children] == ["decorated"]
    assert sum(e.key == "decorated" for e in prof.events()) == 2
    assert work().tolist() == [2, 2, 2]  # also while nobody profiles


def test_averages_are_grouped_by_shape_stack_and_module(training):
    with profile(record_shapes=True, with_stack=True) as prof:
        for _ in range(3):
            training.step()

    whole = {row.key: row for row in prof.key_averages()}
    assert whole["tenon::linear"].count == 6
    shapes = [r for r in prof.key_averages(group_by_input_shape=True) if r.key == "tenon::linear"]
    assert sorted((str(r.input_shapes), r.count) for r in shapes) == [
        ("[[32, 16], [4, 16], [4]]", 3),
        ("[[32, 8], [16, 8], [16]]", 3),
    ]
    modules = [r for r in prof.key_averages(group_by_module=True) if r.key == "tenon::linear"]
    assert sorted(r.module for r in modules) == ["Net.body.0", "Net.head"]
    stacks = [r for r in prof.key_averages(group_by_stack_n=1) if r.key == "tenon::linear"]
    assert all("conftest.py" in r.stack[0] and r.stack[0].endswith(": forward") for r in stacks)


def test_tables_are_sorted_cut_and_say_what_they_cannot_sort_by(training):
    with profile(**FULL) as prof:
        training.step()

    text = prof.key_averages().table(sort_by="flops", row_limit=3)
    lines = text.splitlines()
    assert lines[1].split()[:1] == ["Name"] and "Total MFLOPs" in lines[1] and "CPU Mem" in lines[1]
    assert len(lines) == 3 + 3 + 2
    assert lines[-1].startswith("Self CPU time total: ")
    with pytest.raises(ArgumentError, match="sort_by='speed' is not one of cpu_time"):
        prof.key_averages().table(sort_by="speed")


def test_schedule_records_the_steps_that_it_says(training):
    saved = []
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)

    with profile(schedule=plan, on_trace_ready=lambda p: saved.append(p.step_num)) as prof:
        for _ in range(12):
            training.step()
            prof.step()

    assert saved == [5, 9]
    assert [e.key for e in prof.events() if e.key.startswith("ProfilerStep")] == [
        "ProfilerStep#7",
        "ProfilerStep#8",
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"wait": 1, "warmup": 1, "active": 2, "repeat": 1, "skip_first": 1},
        {"wait": 1, "warmup": 1, "active": 2, "skip_first": 2, "skip_first_wait": 1},
        {"wait": 0, "warmup": 0, "active": 3},
        {"wait": 2, "warmup": 1, "active": 1, "repeat": 2},
        {"wait": -1, "warmup": 0, "active": 1},
        {"wait": 1, "warmup": 0, "active": 0},
    ],
)
@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
def test_schedules_are_torchs(options):
    torch_profiler = pytest.importorskip("torch.profiler")
    try:
        theirs = torch_profiler.schedule(**options)
    except AssertionError:
        with pytest.raises(AssertionError):
            schedule(**options)
        return

    ours = schedule(**options)

    assert [ours(i).name for i in range(15)] == [theirs(i).name for i in range(15)]
    assert ours(0) in ProfilerAction


def test_the_parts_of_a_step_add_up_to_its_time(training):
    from tenon_profiler import overview

    with profile(schedule=schedule(wait=0, warmup=1, active=4), **FULL) as prof:
        for _ in range(5):
            with WATCHERS.spanning("enumerate(DataLoader)#x.__next__", "data"):
                tenon.randn(64, 8) + 1
            training.step()
            prof.step()

    found = overview.steps(prof._all())
    assert [name for name, _, _ in found] == [f"ProfilerStep#{i}" for i in range(1, 5)]
    for _, duration, parts in found:
        assert sum(parts.values()) == pytest.approx(duration, rel=0.05)
        assert parts["compute"] > 0 and parts["data"] > 0 and parts["optimizer"] > 0 and parts["other"] > 0
        assert parts["wait"] == parts["communication"] == 0


def test_compiled_programs_show_their_kernels_with_source_ops():
    @tenon.compile
    def work(x):
        return ((x * 2.0 + 1.0).tanh() @ x.t()).sum()

    x = tenon.randn(200, 100)
    for _ in range(4):
        expected = work(x)
    assert work.programs

    with profile(record_shapes=True) as prof:
        result = work(x)
    after = work(x)

    assert result.tolist() == expected.tolist() == after.tolist()
    program = named(prof, "tenon::program")
    kernels = [child for child in program.cpu_children if child.event.get("Kernel")]
    sources = [op for kernel in kernels for op in kernel.event.get("Source ops")]
    assert {"matmul", "tanh"} <= set(sources)
    fused = next(k for k in kernels if "tanh" in k.event.get("Source ops"))
    assert fused.key.startswith("tenon::fused_") and "mul" in fused.key
    assert "test_profile.py:" in fused.event.get("Source")
    assert sum(k.cpu_time_total for k in kernels) <= program.cpu_time_total
    assert "_mark" not in work.programs[0]._run.__code__.co_names


class Gated(nn.Module):
    """Two modules whose elementwise ops become one kernel."""

    class Half(nn.Module):
        def forward(self, x):
            return x.sigmoid() * 2.0

    def __init__(self):
        super().__init__()
        self.left, self.right = Gated.Half(), Gated.Half()

    def forward(self, x):
        return self.left(x) + self.right(x + 1.0)


def test_a_fused_kernel_names_ops_modules_and_lines_of_all_its_source_ops():
    model, x = Gated().eval(), tenon.randn(64, 256)
    work = tenon.compile(lambda x: model(x))
    with tenon.no_grad():
        for _ in range(3):
            work(x)
        with profile() as prof:
            work(x)

    (kernel,) = (e for e in prof.events() if e.event.get("Kernel"))
    get = kernel.event.get
    found = list(zip(get("Source ops"), get("Source modules"), get("Source lines"), strict=True))
    first = Gated.Half.forward.__code__.co_firstlineno + 1
    last = Gated.forward.__code__.co_firstlineno + 1
    assert [(op, module, Path(line).name) for op, module, line in found] == [
        ("sigmoid", "left", f"test_profile.py:{first}"),
        ("mul", "left", f"test_profile.py:{first}"),
        ("add", "Gated", f"test_profile.py:{last}"),
        ("sigmoid", "right", f"test_profile.py:{first}"),
        ("mul", "right", f"test_profile.py:{first}"),
    ]
    assert kernel.sources[0] == f"sigmoid at test_profile.py:{first} in left"
    table = prof.key_averages().table(max_src_column_width=400)
    assert "Source Ops" in table and ", ".join(kernel.sources) in table
    assert "tenon::fused_sigmoid_mul_add" in table


def test_kernels_of_a_compiled_training_step_have_the_phase_of_their_source(make_training):
    training = make_training()
    step = tenon.compile(training.step)
    for _ in range(4):
        step()
    assert step.programs

    with profile() as prof:
        step()

    kernels = [e for e in prof.events() if e.event.get("Kernel")]
    sources = {phase: set() for phase in ("forward", "backward", "optimizer")}
    for kernel in kernels:
        sources[kernel.event.get("Phase")].update(kernel.event.get("Source ops"))
    assert "linear" in sources["forward"] and not {"matmul", "sub"} & sources["forward"]
    assert "matmul" in sources["backward"] and "sub" in sources["optimizer"]
    assert "linear" not in sources["backward"] | sources["optimizer"]


def test_nothing_is_left_when_the_block_raises(training):
    with pytest.raises(ZeroDivisionError), profile(**FULL):
        training.step()
        1 / 0  # noqa: B018

    assert SLOT.top is None and OPEN.tap is None and call_listeners.active is None
    assert WATCHERS.around_visit is WATCHERS.span is communicator.around_call is program.on_bind is None
    assert "linear" not in vars(training.x._backend.raw)
    training.step()
    with profile() as prof:  # and another one can be opened
        training.step()
    assert named(prof, "tenon::linear")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_records_nothing(training):
    with profile() as prof:
        child = os.fork()
        if child == 0:
            training.step()
            os._exit(0 if SLOT.top is None and OPEN.tap is None else 1)
        _, status = os.waitpid(child, 0)
        training.step()

    assert status == 0
    assert sum(e.key == "tenon::linear" for e in prof.events()) == 2


def test_a_second_profile_is_refused_and_the_first_goes_on(tmp_path, training):
    handler = tensorboard_trace_handler(tmp_path)

    with profile() as prof:
        with pytest.raises(UnsupportedError, match="already enabled"), profile(on_trace_ready=handler):
            pass
        training.step()

    assert named(prof, "tenon::linear")
    assert list(tmp_path.iterdir()) == []


def test_questions_that_cannot_be_answered_say_so(tmp_path, training):
    prof = profile()
    with pytest.raises(TraceError, match="Profiler must be initialized before accessing events"):
        prof.events()
    with prof:
        training.step()
    with pytest.raises(TraceError, match="with_stack=True"):
        prof.export_stacks(tmp_path / "stacks")
    with pytest.raises(TraceError, match="profile_memory=True"):
        prof.export_memory_timeline(tmp_path / "memory.html")
    with pytest.raises(TraceError, match="no traces in"):
        merge(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_stacks_and_memory_timelines_are_written(tmp_path, training):
    with profile(profile_memory=True, with_stack=True) as prof:
        training.step()

    prof.export_stacks(tmp_path / "stacks")
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)
    assert any("forward;tenon::linear " in line for line in lines)
    for name in ("m.html", "m.json", "m.json.gz", "m.raw.json.gz"):
        prof.export_memory_timeline(tmp_path / name)
    times, sizes = json.loads((tmp_path / "m.json").read_text())
    assert len(times) == len(sizes) and max(map(sum, sizes)) > 0
    assert "<polygon" in (tmp_path / "m.html").read_text()
    with pytest.raises(ArgumentError, match="expected a name that ends with"):
        prof.export_memory_timeline(tmp_path / "m.csv")


def test_the_older_face_profiles_unless_it_is_disabled(training):
    from tenon.autograd import profiler

    with profiler.profile(record_shapes=True) as prof, profiler.record_function("mine"):
        training.step()
    assert str(prof) == prof.table() and "mine" in str(prof)
    with profiler.profile(enabled=False) as nothing:
        training.step()

    assert "mine" in prof.table() and prof.function_events
    assert nothing.current_action is ProfilerAction.NONE and SLOT.top is None
