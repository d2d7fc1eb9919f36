"""``async_save``: the state may change while it is written, and its errors are not lost."""

import os
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint import CheckpointException, background
from tenon.distributed.checkpoint.staging import (
    BlockingAsyncStager,
    DefaultStager,
    StagedPlanner,
    StagingOptions,
)
from tenon.distributed.checkpoint.state_dict_loader import load_whole
from tenon.distributed.checkpoint.state_dict_saver import AsyncSaveResponse
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import Shard
from tenon.engine import pending_copies
from tenon.errors import CheckpointWarning

sys.path.insert(0, str(Path(__file__).parent))

from states import WHOLE, equal, sharded, zeros

IN_BACKGROUND = StagingOptions(use_async_staging=True)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    background.wait()


class Slow(dcp.FileSystemWriter):
    """Writes when it is told to."""

    def __init__(self, path):
        super().__init__(path)
        self.go = threading.Event()

    def write_data(self, plan, planner):
        self.go.wait(20)
        return super().write_data(plan, planner)


def loaded(folder):
    state = {"w": torch.zeros(3), "step": 0}
    dcp.load(state, checkpoint_id=folder)
    return state["w"].tolist(), state["step"]


def test_what_was_there_at_the_call_is_saved(tmp_path):
    writer = Slow(tmp_path)
    weight = torch.ones(3)
    future = dcp.async_save({"w": weight, "step": 1}, storage_writer=writer)
    assert isinstance(future, Future) and not future.done()
    weight += 1
    writer.go.set()
    metadata = future.result(20)

    assert loaded(tmp_path) == ([1, 1, 1], 1) and set(metadata.state_dict_metadata) == {"w", "step"}


def test_on_several_ranks(tmp_path):
    def work(communicator):
        state = {"model": sharded(WHOLE, (3,), [Shard(0)]), "step": 3}
        futures = []
        for step in range(3):
            state["step"] = step
            futures.append(dcp.async_save(state, checkpoint_id=tmp_path))
            communicator.all_reduce(1.0).wait()  # beside the thread's
            for value in state["model"].values():
                value.to_local().add_(0)
        for future in futures:
            future.result(20)
        for value in state["model"].values():
            value.to_local().zero_()
        target = {"model": sharded(zeros(), (3,), [Shard(1)]), "step": 0}
        dcp.load(target, checkpoint_id=tmp_path)
        return equal(target["model"]), target["step"]

    assert run_ranks(3, work) == [(True, 2)] * 3
    assert len(list(tmp_path.iterdir())) == 4


def test_one_checkpoint_is_written_at_a_time(tmp_path):
    writer = Slow(tmp_path / "a")
    first = dcp.async_save({"w": torch.ones(3), "step": 1}, storage_writer=writer)
    threading.Timer(0.2, writer.go.set).start()
    start = time.monotonic()
    second = dcp.async_save({"w": torch.ones(3), "step": 2}, checkpoint_id=tmp_path / "b")
    assert first.done() and time.monotonic() - start > 0.1
    second.result(20)

    assert loaded(tmp_path / "b")[1] == 2


def test_memory_is_kept_for_the_next(tmp_path):
    stager = DefaultStager(StagingOptions(use_async_staging=False))
    for step in range(2):
        dcp.async_save(
            {"w": torch.ones(999), "step": step}, checkpoint_id=tmp_path, async_stager=stager
        ).result(20)
        memory = stager.memory
        assert memory.nbytes >= 999 * 4
    dcp.async_save({"w": torch.ones(3), "step": 9}, checkpoint_id=tmp_path, async_stager=stager).result(20)
    assert stager.memory is memory and loaded(tmp_path)[1] == 9
    stager.close()
    assert stager.memory.nbytes == 0


def model_and_optimizer():
    model = nn.Linear(1 << 15, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    return model, torch.optim.SGD(model.parameters(), lr=1.0)


def test_an_optimizer_waits_for_the_copy_in_the_background(tmp_path, monkeypatch):
    model, optimizer = model_and_optimizer()
    copying, go = threading.Event(), threading.Event()
    original = StagedPlanner.copy_rest

    def copy(planner):
        copying.set()
        go.wait(20)
        original(planner)

    monkeypatch.setattr(StagedPlanner, "copy_rest", copy)
    state = {"w": model.weight, "step": 1}
    response = dcp.async_save(state, checkpoint_id=tmp_path, async_stager=DefaultStager(IN_BACKGROUND))
    assert isinstance(response, AsyncSaveResponse)
    assert copying.wait(20) and not response.staging_completion.done()
    model(torch.ones(1, 1 << 15)).sum().backward()
    threading.Timer(0.2, go.set).start()
    optimizer.step()
    assert response.staging_completion.done()
    response.upload_completion.result(20)

    assert (model.weight == 0).all()
    state = {"w": torch.zeros(1, 1 << 15), "step": 0}
    dcp.load(state, checkpoint_id=tmp_path)
    assert (state["w"] == 1).all()


def test_a_compiled_step_waits_for_the_copy_in_the_background(tmp_path, monkeypatch):
    model = nn.Linear(130, 130)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(10):
        step(torch.ones(2, 130))
    assert len(step.programs) == 1
    before, go = model.weight.detach().clone(), threading.Event()
    original = StagedPlanner.copy_rest
    monkeypatch.setattr(StagedPlanner, "copy_rest", lambda p: (go.wait(20) and None) or original(p))
    response = dcp.async_save(
        {"w": model.weight}, checkpoint_id=tmp_path, async_stager=DefaultStager(IN_BACKGROUND)
    )
    threading.Timer(0.2, go.set).start()
    step(torch.ones(2, 130))
    response.upload_completion.result(20)

    assert len(step.programs) == 1 and not torch.equal(model.weight, before)
    state = {"w": torch.zeros(130, 130)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert torch.equal(state["w"], before) and not pending_copies.PENDING


@pytest.fixture
def slow_copies(monkeypatch):
    """Copies in the background begin a while after a call of this."""
    original, go = StagedPlanner.copy_rest, threading.Event()

    def copy(planner):
        go.wait(20)
        original(planner)

    monkeypatch.setattr(StagedPlanner, "copy_rest", copy)
    yield lambda: threading.Timer(0.05, go.set).start()
    go.set()


def through_numpy(weight):
    weight.numpy()[:] = 5


def by_a_gradient(weight):
    leaf = torch.zeros(weight.shape, requires_grad=True)
    leaf.grad = weight
    (leaf * 2).sum().backward()


@torch.compile
def tripled(weight):
    return weight.mul_(3)


WRITERS = {
    "an operation": lambda w: w.add_(1),
    "a view": lambda w: w[1:, ::2].mul_(3),
    "an index": lambda w: w.__setitem__(slice(3), 7.0),
    "out=": lambda w: torch.add(w, 1, out=w),
    "random numbers": lambda w: w.normal_(),
    "data": lambda w: w.data.zero_(),
    "new data": lambda w: setattr(w, "data", torch.zeros(2, 2)),
    "another storage": lambda w: w.set_(torch.zeros(3)),
    "a turn": lambda w: w.t_(),
    "NumPy": through_numpy,
    "a gradient": by_a_gradient,
    "a program": lambda w: tripled(w),
    "several": lambda w: torch._foreach_mul_([w], [2.0]),
    "a layer's initialisation": lambda w: nn.init.trunc_normal_(w),
    "DLPack": lambda w: torch.from_dlpack(w).zero_(),
    "a vector": lambda w: nn.utils.vector_to_parameters(torch.zeros(w.numel()), [w]),
    "a loaded state": lambda w: torch.nn.ParameterList([w]).load_state_dict({"0": torch.zeros(w.shape)}),
    "a collective": lambda w: torch.distributed.all_gather([w], torch.zeros(w.shape)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_writers_wait_for_the_copy(tmp_path, slow_copies, writer):
    weight = torch.arange(300.0 * 300).reshape(300, 300).clone()
    before = weight.clone()
    for _ in range(5):
        tripled(torch.ones(300, 300))
    assert tripled.programs
    future = dcp.async_save({"w": weight}, checkpoint_id=tmp_path)
    assert isinstance(future, Future) and pending_copies.PENDING
    slow_copies()
    WRITERS[writer](weight)
    assert not torch.equal(weight, before)
    future.result(20)

    assert torch.equal(load_whole(["w"], checkpoint_id=tmp_path)["w"], before)


def test_writers_to_parts_wait_for_the_copy(tmp_path, slow_copies):
    def work(communicator):
        weight = sharded({"w": torch.ones(1 << 16)}, (2,), [Shard(0)])["w"]
        same = torch.ones(1 << 15)
        future = dcp.async_save({"w": weight.detach(), "same": same}, checkpoint_id=tmp_path)
        slow_copies()
        weight.to_local().zero_()
        torch.distributed.all_reduce(same)
        future.result(20)
        return same.sum().item()

    assert run_ranks(2, work) == [1 << 16] * 2
    found = load_whole(["w", "same"], checkpoint_id=tmp_path)
    assert found["w"].sum() == 1 << 16 and found["same"].sum() == 1 << 15


def test_what_others_may_write_to_is_copied_at_once(tmp_path, slow_copies):
    array = np.ones(1 << 16, np.float32)
    exported = torch.ones(1 << 16)
    view = exported.numpy()
    future = dcp.async_save({"a": torch.from_numpy(array), "b": exported}, checkpoint_id=tmp_path)
    array[:] = view[:] = 5
    slow_copies()
    future.result(20)

    found = load_whole(["a", "b"], checkpoint_id=tmp_path)
    assert found["a"].sum() == found["b"].sum() == 1 << 16


def test_the_data_of_ones_own_planner_is_copied_at_once(tmp_path, slow_copies):
    class Hidden(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item):
            return hidden.view(hidden.shape)

    hidden = torch.ones(1 << 16)
    hidden_array = np.asarray(hidden.raw)
    future = dcp.async_save({"w": torch.zeros(1 << 16)}, checkpoint_id=tmp_path, planner=Hidden())
    hidden_array[:] = 5
    slow_copies()
    future.result(20)
    assert load_whole(["w"], checkpoint_id=tmp_path)["w"].sum() == 1 << 16


def test_a_change_that_did_not_wait_is_an_error(tmp_path, slow_copies):
    weight = torch.ones(1 << 15)
    with pytest.warns(CheckpointWarning, match=r"async_save of .* failed"):
        future = dcp.async_save({"w": weight, "step": 1}, checkpoint_id=tmp_path)
        torch.autograd.graph.increment_version(weight)
        slow_copies()
        with pytest.raises(CheckpointException, match="w changed while async_save was copying it"):
            future.result(20)
    assert not (tmp_path / "manifest.json").exists()


def test_small_tensors_may_change_during_the_copy_in_the_background(tmp_path, monkeypatch):
    norm = nn.BatchNorm1d(3)
    turned = torch.arange(6.0).reshape(2, 3).t()
    changed = threading.Event()
    original = StagedPlanner.copy_rest
    monkeypatch.setattr(StagedPlanner, "copy_rest", lambda p: (changed.wait(20) and None) or original(p))
    response = dcp.async_save(
        {
            "norm": norm.state_dict(),
            "large": torch.ones(1 << 15),
            "turned": turned,
            "scale": torch.tensor(2.0),
        },
        checkpoint_id=tmp_path,
        async_stager=DefaultStager(IN_BACKGROUND),
    )
    norm(torch.full((4, 3), 5.0))
    turned.zero_()
    changed.set()
    response.upload_completion.result(20)

    assert norm.running_mean.tolist() == [0.5, 0.5, 0.5]
    found = load_whole(["norm", "large", "turned", "scale"], checkpoint_id=tmp_path)
    assert found["norm"]["running_mean"].tolist() == [0, 0, 0] and found["norm"]["num_batches_tracked"] == 0
    assert found["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["large"].sum() == 1 << 15 and found["scale"] == 2


def test_stagers_of_ones_own(tmp_path):
    weight = torch.ones(3)
    writer = Slow(tmp_path)
    future = dcp.async_save(
        {"w": weight, "step": 4}, storage_writer=writer, async_stager=BlockingAsyncStager()
    )
    weight += 1
    writer.go.set()
    future.result(20)

    assert loaded(tmp_path) == ([1, 1, 1], 4)


class Full(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        raise OSError(28, "No space left on device", "shard")


def test_an_error_that_nobody_asked_for_is_raised_by_the_next_call(tmp_path):
    with pytest.warns(CheckpointWarning, match="No space left"):
        dcp.async_save({"step": 1}, storage_writer=Full(tmp_path))
        with pytest.raises(CheckpointException, match="No space left"):
            dcp.async_save({"step": 2}, checkpoint_id=tmp_path)
    dcp.async_save({"w": torch.ones(3), "step": 3}, checkpoint_id=tmp_path).result(20)
    assert loaded(tmp_path)[1] == 3


def test_an_error_of_one_rank_is_raised_on_all(tmp_path):
    def work(communicator):
        writer = (Full if communicator.rank == 1 else dcp.FileSystemWriter)(tmp_path)
        future = dcp.async_save({"a": torch.ones(4), "b": torch.ones(4)}, storage_writer=writer)
        error = future.exception(20)
        return list(error.failures)

    with pytest.warns(CheckpointWarning):
        assert run_ranks(2, work) == [[1], [1]]


@pytest.mark.parametrize("options", [StagingOptions(use_async_staging=False), IN_BACKGROUND])
def test_what_cannot_be_saved_fails_on_all_ranks(tmp_path, options):
    def work(communicator):
        state = {"w": torch.ones(3), "function": print}  # which one of the ranks would write
        saved = dcp.async_save(state, checkpoint_id=tmp_path, async_stager=DefaultStager(options))
        error = getattr(saved, "upload_completion", saved).exception(20)
        return str(error)

    with pytest.warns(CheckpointWarning):
        texts = run_ranks(2, work)
    assert texts[0] == texts[1] and "function" in texts[0]


def test_errors_of_the_plan_are_raised_by_the_call(tmp_path):
    with pytest.raises(CheckpointException, match="duplicated flatten key"):
        dcp.async_save({"a": {"b": 1}, "a.b": 2}, checkpoint_id=tmp_path)


def test_an_mpi_for_one_thread_writes_while_the_caller_waits(tmp_path, monkeypatch):
    def work(communicator):
        communicator.beside = lambda: None
        future = dcp.async_save({"w": torch.ones(3), "step": 8}, checkpoint_id=tmp_path)
        assert future.done()
        return loaded(tmp_path)[1]

    with pytest.warns(CheckpointWarning, match="MPI_THREAD_MULTIPLE"):
        assert run_ranks(2, work) == [8, 8]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_does_not_wait_for_copies_of_its_parent(tmp_path, slow_copies):
    weight = torch.ones(1 << 16)
    future = dcp.async_save({"w": weight}, checkpoint_id=tmp_path)
    child = os.fork()
    if child == 0:
        weight.add_(1)
        os._exit(0 if not pending_copies.PENDING else 1)
    assert os.waitpid(child, 0)[1] == 0
    slow_copies()
    future.result(20)
    assert load_whole(["w"], checkpoint_id=tmp_path)["w"].sum() == 1 << 16
