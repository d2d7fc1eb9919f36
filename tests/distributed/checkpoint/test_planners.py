"""Planners and storages of a user's own, and failures of every step on every rank."""

import dataclasses
import io
import sys
from pathlib import Path

import pytest

import tenon as torch
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint import CheckpointException
from tenon.distributed.checkpoint.chunks import intersection, problem_of
from tenon.distributed.checkpoint.default_planner import (
    create_default_global_save_plan,
    create_default_local_load_plan,
    create_default_local_save_plan,
)
from tenon.distributed.checkpoint.flattening import flatten_state_dict, get_element, unflatten_state_dict
from tenon.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import LoadItemType, WriteItemType
from tenon.distributed.checkpoint.planner_helpers import (
    create_read_items_for_chunk_list,
    find_state_dict_object,
)
from tenon.distributed.checkpoint.storage import WriteResult
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import Shard
from tenon.futures import Future

sys.path.insert(0, str(Path(__file__).parent))

from states import WHOLE, equal, save_whole, sharded, zeros


def box(offsets, sizes):
    return ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))


def test_plans_of_one_rank():
    state = {"tensor": torch.rand(10), "value": [1, 2]}
    plan = create_default_local_save_plan(state, False)
    tensor, value = plan.items
    assert tensor.index == MetadataIndex("tensor", [0]) and tensor.type is WriteItemType.TENSOR
    assert tensor.tensor_data.chunk == box([0], [10]) and tensor.tensor_storage_size() == 40
    assert value.index == MetadataIndex("value") and value.type is WriteItemType.BYTE_IO
    assert value.tensor_storage_size() is None
    (plan,), metadata = create_default_global_save_plan([plan])
    assert plan.items[0].index.index == 0
    assert isinstance(metadata.state_dict_metadata["value"], BytesStorageMetadata)
    loads = create_default_local_load_plan(state, metadata).items
    assert [item.type for item in loads] == [LoadItemType.TENSOR, LoadItemType.BYTE_IO]


@pytest.mark.parametrize(
    ("saved", "own", "expected"),
    [
        ([box([0], [8]), box([8], [8])], box([4], [7]), [([0], [0], [4], [4]), ([8], [4], [0], [3])]),
        ([box([0], [16])], box([16], [16]), []),
        ([box([], [])], box([], []), [([], [], [], [])]),
        ([box([0, 0], [2, 3]), box([0, 3], [2, 3])], box([1, 2], [1, 2]),
         [([0, 0], [0, 0], [1, 2], [1, 1]), ([0, 3], [0, 1], [1, 0], [1, 1])]),
    ],
)  # fmt: skip
def test_what_is_read_of_saved_chunks(saved, own, expected):
    size = torch.Size([32] * len(own.sizes))
    described = TensorStorageMetadata(TensorProperties(), size, saved)
    items = create_read_items_for_chunk_list("w", described, [own])

    found = [
        (list(i.storage_index.offset), list(i.dest_offsets), list(i.storage_offsets), list(i.lengths))
        for i in items
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("size", "chunks", "problem"),
    [
        ([4], [box([0], [2]), box([2], [2])], None),
        ([], [box([], [])], None),
        ([0, 3], [box([0, 0], [0, 3])], None),
        ([0, 3], [], None),
        ([4], [box([0], [2]), box([2], [2]), box([4], [0])], None),
        ([2, 2], [box([0, 0], [1, 2]), box([1, 0], [1, 1]), box([1, 1], [1, 1])], None),
        ([2, 2, 2], [box([i, j, k], [1, 1, 1]) for i in (0, 1) for j in (0, 1) for k in (0, 1)], None),
        ([4], [], "0 elements of 4"),
        ([4], [box([0], [3])], "3 elements of 4"),
        ([4], [box([0], [3]), box([1], [1])], "overlap or leave gaps"),
        ([4], [box([0], [4]), box([0], [4])], "8 elements of 4"),
        ([4], [box([2], [3])], "out of bounds"),
        ([4], [box([-1], [2])], "out of bounds"),
        ([4], [box([0, 0], [2, 2])], "out of bounds"),
    ],
)
def test_whether_chunks_fill_a_tensor(size, chunks, problem):
    found = problem_of(size, chunks)

    assert found is None if problem is None else problem in found


def test_common_boxes():
    assert intersection(box([0], [2]), box([2], [2])) is None
    assert [list(each) for each in intersection(box([0], [4]), box([2], [4]))] == [[2], [0], [2]]
    assert intersection(box([2], [0]), box([0], [4])) is None


def test_flat_state_dicts():
    nested = {"a": {"b": [1, {"c": torch.ones(1)}]}, "d": [1, 2], 5: "x", "e": (1, {"f": 2}), "g": []}
    flat, paths = flatten_state_dict(nested)
    assert set(flat) == {"a.b.0", "a.b.1.c", "d", "5", "e", "g"}
    again = unflatten_state_dict(flat, paths)
    assert again["a"]["b"][1]["c"] is nested["a"]["b"][1]["c"] and again["5"] == "x"
    assert get_element(again, ("a", "b", 1, "c")).item() == 1
    assert get_element(again, ("a", "b", 7), "none") == "none" and get_element(again, ("d", "x")) is None


def test_objects_of_state_dicts():
    state = {"w": torch.ones(2), "n": 3}
    assert find_state_dict_object(state, MetadataIndex("n")) == 3
    assert find_state_dict_object(state, MetadataIndex("w", [0])) is state["w"]
    for index, message in [
        (MetadataIndex("x"), "Could not find FQN"),
        (MetadataIndex("n", [0]), "not a ShardedTensor or DTensor but a int"),
        (MetadataIndex("w", [1]), "no part at"),
    ]:
        with pytest.raises(ValueError, match=message):
            find_state_dict_object(state, index)


class RenameSave(dcp.DefaultSavePlanner):
    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        super().set_up_planner({"foo_" + k: v for k, v in state_dict.items()}, storage_meta, is_coordinator)


class HalfSave(dcp.DefaultSavePlanner):
    """Writes 16-bit numbers, and says so in the plan."""

    def create_local_plan(self):
        plan = super().create_local_plan()
        for item in plan.items:
            if item.tensor_data is not None:
                item.tensor_data.properties.dtype = torch.float16
        return plan

    def resolve_data(self, write_item):
        value = super().resolve_data(write_item)
        return value if write_item.type is WriteItemType.BYTE_IO else value.to(torch.float16)


def test_planners_that_rename_and_cast(tmp_path):
    state = {"w": torch.arange(3.0), "n": 1}
    dcp.save(state, checkpoint_id=tmp_path, planner=RenameSave())
    assert set(dcp.load_whole(checkpoint_id=tmp_path)) == {"foo_w", "foo_n"}
    dcp.save(state, checkpoint_id=tmp_path, planner=HalfSave())
    loaded = dcp.load_whole(checkpoint_id=tmp_path)
    assert loaded["w"].dtype is torch.float16 and loaded["w"].tolist() == [0, 1, 2] and loaded["n"] == 1


def test_a_planner_that_sends_data_of_its_own(tmp_path):
    seen = []

    class Extra(dcp.DefaultSavePlanner):
        def create_local_plan(self):
            plan = super().create_local_plan()
            return dataclasses.replace(plan, planner_data={"paths": self.mappings, "array": torch.ones(2)})

        def create_global_plan(self, all_plans):
            seen.extend(plan.planner_data["array"].tolist() for plan in all_plans)
            own = [dataclasses.replace(p, planner_data=p.planner_data["paths"]) for p in all_plans]
            return super().create_global_plan(own)

    run_ranks(2, lambda c: dcp.save({"a": 1}, checkpoint_id=tmp_path, planner=Extra()))
    assert seen == [[1, 1], [1, 1]]


def test_a_planner_that_sends_what_cannot_be_sent(tmp_path):
    class Bad(dcp.DefaultSavePlanner):
        def create_local_plan(self):
            return dataclasses.replace(super().create_local_plan(), planner_data=object())

    with pytest.raises(CheckpointException, match="object"):
        run_ranks(2, lambda c: dcp.save({"a": 1}, checkpoint_id=tmp_path, planner=Bad()))


def test_state_dicts_that_are_not_flattened(tmp_path):
    state = {"w": torch.ones(2), "n": {"deep": 1}}
    dcp.save(state, checkpoint_id=tmp_path, planner=dcp.DefaultSavePlanner(flatten_state_dict=False))
    loaded = {"w": torch.zeros(2), "n": 0}
    dcp.load(loaded, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(flatten_state_dict=False))

    assert loaded["w"].tolist() == [1, 1] and loaded["n"] == {"deep": 1}


class Memory:
    """What a storage in memory keeps, for all ranks: a value for every item, and the metadata."""

    def __init__(self):
        self.items, self.metadata = {}, None


class MemoryWriter(dcp.StorageWriter):
    def __init__(self, memory, fail=None):
        self.memory, self.fail = memory, fail or {}
        self.rank = 0

    def failing(self, step):
        if self.rank in self.fail.get(step, ()):
            raise ValueError(f"rank {self.rank} fails in {step}")

    def reset(self, checkpoint_id=None):
        pass

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        self.rank = kwargs["rank"]
        self.failing("set up")

    def prepare_local_plan(self, plan):
        self.failing("local plan")
        return plan

    def prepare_global_plan(self, plans):
        self.failing("global plan")
        return plans

    def write_data(self, plan, planner):
        self.failing("write")
        results = []
        for item in plan.items:
            value = planner.resolve_data(item)
            is_bytes = isinstance(value, io.BytesIO)
            self.memory.items[item.index] = value.getvalue() if is_bytes else value.clone()
            results.append(WriteResult(item.index, 1, {"by": self.rank}))
        future = Future()
        if self.rank in self.fail.get("write later", ()):
            future.set_exception(ValueError("later"))
        else:
            future.set_result(results)
        return future

    def finish(self, metadata, results):
        self.failing("finish")
        assert all(each.storage_data == {"by": rank} for rank, row in enumerate(results) for each in row)
        self.memory.metadata = metadata

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


class MemoryReader(dcp.StorageReader):
    def __init__(self, memory, fail=None):
        self.memory, self.fail = memory, fail or {}
        self.rank = torch.distributed.get_rank()

    def failing(self, step):
        if self.rank in self.fail.get(step, ()):
            raise ValueError(f"rank {self.rank} fails in {step}")

    def reset(self, checkpoint_id=None):
        pass

    def read_metadata(self):
        self.failing("metadata")
        return self.memory.metadata

    def set_up_storage_reader(self, metadata, is_coordinator):
        self.failing("set up")

    def prepare_local_plan(self, plan):
        self.failing("local plan")
        return plan

    def prepare_global_plan(self, plans):
        self.failing("global plan")
        return plans

    def check_data(self, plan):
        self.failing("check")

    def read_data(self, plan, planner):
        self.failing("read")
        for item in plan.items:
            value = self.memory.items[item.storage_index]
            if item.type is LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(value))
                continue
            for axis, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                value = value.narrow(axis, start, length)
            target = planner.resolve_tensor(item)
            target.copy_(value)
            planner.commit_tensor(item, target)
        future = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


def test_a_storage_of_ones_own():
    memory = Memory()

    def work(communicator):
        state = {"model": sharded(WHOLE, (3,), [Shard(0)]), "step": 3}
        dcp.save(state, storage_writer=MemoryWriter(memory))
        target = {"model": sharded(zeros(), (3,), [Shard(1)]), "step": 0}
        dcp.load(target, storage_reader=MemoryReader(memory))
        return equal(target["model"]), target["step"]

    assert run_ranks(3, work) == [(True, 3)] * 3


@pytest.mark.parametrize("coordinator", [0, 1])
@pytest.mark.parametrize(
    ("step", "ranks"),
    [
        ("set up", [0]), ("local plan", [1, 2]), ("global plan", "coordinator"), ("write", [2]),
        ("write later", [0, 1]), ("finish", "coordinator"),
    ],
)  # fmt: skip
def test_a_failure_of_saving_is_raised_on_all_ranks(coordinator, step, ranks):
    expected = [coordinator] if ranks == "coordinator" else ranks

    def work(communicator):
        writer = MemoryWriter(Memory(), {step: expected})
        with pytest.raises(CheckpointException) as caught:
            dcp.save_state_dict({"a": torch.ones(2), "b": 1}, writer, coordinator_rank=coordinator)
        assert list(caught.value.failures) == expected
        assert all(type(error) is ValueError for error, _ in caught.value.failures.values())

    run_ranks(3, work)


@pytest.mark.parametrize("step", ["metadata", "set up", "local plan", "global plan", "check", "read"])
def test_a_failure_of_loading_is_raised_on_all_ranks(step):
    memory = Memory()
    dcp.save({"a": torch.ones(2), "b": 1}, storage_writer=MemoryWriter(memory))
    failing = [0] if step == "global plan" else [1]

    def work(communicator):
        state = {"a": torch.zeros(2), "b": 0}
        with pytest.raises(CheckpointException) as caught:
            dcp.load(state, storage_reader=MemoryReader(memory, {step: failing}))
        assert list(caught.value.failures) == failing
        assert step == "read" or (state["a"].tolist() == [0, 0] and state["b"] == 0)

    run_ranks(3, work)


def test_ranks_that_fail_alike_are_reported_once(tmp_path):
    def work(communicator):
        with pytest.raises(CheckpointException) as caught:
            dcp.load({"a": 1}, checkpoint_id=tmp_path / "none")
        return str(caught.value)

    text = run_ranks(4, work)[3]
    assert text.count("no such folder") == 1 and "ranks 0, 1, 2, 3: CheckpointError" in text


class OddError(Exception):
    """Not one of Python's or tenon's."""


def test_exceptions_of_other_classes_arrive_by_name(tmp_path):
    class Failing(dcp.DefaultSavePlanner):
        def __init__(self, error):
            super().__init__()
            self.error = error

        def create_local_plan(self):
            raise self.error

    def work(communicator, error):
        planner = Failing(error) if communicator.rank else None
        with pytest.raises(CheckpointException) as caught:
            dcp.save({"a": 1}, checkpoint_id=tmp_path, planner=planner)
        return caught.value.failures[1][0]

    found = run_ranks(2, work, OddError("odd"))
    assert type(found[0]) is RuntimeError and "OddError: odd" in str(found[0]) and type(found[1]) is OddError
    for error in (KeyError("x"), OSError(28, "No space", "f"), UnicodeDecodeError("utf8", b"", 0, 1, "no")):
        assert str(error) in str(run_ranks(2, work, error)[0])


def test_loading_without_memory_of_the_whole(tmp_path):
    """A rank holds its part, and one chunk at a time."""
    save_whole(tmp_path)
    reader = dcp.FileSystemReader(tmp_path)
    dcp.load({"model": zeros(), "step": 0}, storage_reader=reader)
    assert reader._open == {}
