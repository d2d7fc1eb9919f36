"""``save`` and ``load``: any layout into any other, values of all kinds, and what is refused."""

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint import CheckpointException, FileSystemReader, FileSystemWriter
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from tenon.errors import ArgumentError, CheckpointError, CheckpointWarning

sys.path.insert(0, str(Path(__file__).parent))

from states import LAYOUTS, WHOLE, equal, save_whole, sharded, zeros


@pytest.mark.parametrize("saved", range(len(LAYOUTS)))
def test_every_layout_loads_into_every_other(tmp_path, saved):
    save_whole(tmp_path, LAYOUTS[saved])

    def work(communicator, shape, placements):
        state = {"model": sharded(zeros(), shape, placements), "step": 0}
        dcp.load(state, checkpoint_id=tmp_path)
        return equal(state["model"]), state["step"]

    for size, shape, placements in LAYOUTS:
        assert run_ranks(size, work, shape, placements) == [(True, 3)] * size
    plain = {"model": zeros(), "step": 0}
    dcp.load(plain, checkpoint_id=tmp_path)
    assert equal(plain["model"])
    assert equal(dcp.load_whole(checkpoint_id=tmp_path)["model"])


def test_a_file_is_written_by_every_rank_that_has_something(tmp_path):
    save_whole(tmp_path, LAYOUTS[3])
    names = sorted(os.listdir(tmp_path))

    assert names[0] == "manifest.json" and len(names) == 5
    found = torch.load(tmp_path / names[1])
    assert any(name.startswith("model.matrix[0:2,0:5]") for name in found)


def test_what_all_ranks_have_is_written_once_and_shared_out(tmp_path):
    def work(communicator):
        state = {f"w{n}": torch.full((1000,), float(n)) for n in range(6)}
        dcp.save(state, checkpoint_id=tmp_path)

    run_ranks(3, work)
    names = [name for name in os.listdir(tmp_path) if name != "manifest.json"]
    assert [len(torch.load(tmp_path / name)) for name in names] == [2, 2, 2]
    run_ranks(
        3,
        lambda c: dcp.save(
            {"a": torch.ones(9), "b": torch.ones(9)},
            checkpoint_id=tmp_path,
            planner=dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True),
        ),
    )
    assert len(os.listdir(tmp_path)) == 2


class Counter:
    """An object with a state."""

    def __init__(self, count):
        self.count = count

    def state_dict(self):
        return {"count": self.count, "history": [1, (2, 3)], "files": [io.BytesIO(b"log")]}

    def load_state_dict(self, state):
        self.count = state["count"] if state["files"][0].getvalue() == b"log" else -1


def test_values_of_all_kinds(tmp_path):
    tied = torch.arange(6.0)
    content = {
        "nested": {"a": {"b": torch.ones(2), 3: "three"}, "list": [torch.zeros(1), {"x": None}], "empty": {}},
        "tuple": (1, torch.ones(2), "s"),
        "floats": [float("inf"), -0.0, 1e-320],
        "blob": io.BytesIO(b"bytes"),
        "raw": b"\x00\xff",
        "strided": torch.arange(12.0).reshape(3, 4).t()[1:],
        "scalar": torch.tensor(2.5),
        "complex": torch.tensor([1 + 2j], dtype=torch.complex128),
        "flag": torch.tensor([True, False]),
        "tied": [tied, tied, tied[2:4]],
        "counter": Counter(7),
        "dots.in.name": 1,
    }
    dcp.save(content, checkpoint_id=tmp_path)
    counter = Counter(0)
    loaded = {
        "nested": {"a": {"b": torch.zeros(2), "3": ""}, "list": [torch.ones(1), {"x": 5}], "empty": {}},
        "tuple": 0, "floats": 0, "blob": 0, "raw": 0,
        "strided": torch.zeros(3, 3), "scalar": torch.tensor(0.0),
        "complex": torch.zeros(1, dtype=torch.complex128), "flag": torch.tensor([False, True]),
        "tied": [torch.zeros(6), torch.zeros(6), torch.zeros(2)], "counter": counter, "dots.in.name": 0,
    }  # fmt: skip
    place = loaded["nested"]["a"]["b"]
    dcp.load(loaded, checkpoint_id=tmp_path)

    assert loaded["nested"]["a"]["b"] is place and place.tolist() == [1, 1]
    assert loaded["nested"]["a"]["3"] == "three" and loaded["nested"]["list"][1] == {"x": None}
    assert loaded["tuple"][1].tolist() == [1, 1] and loaded["floats"] == [float("inf"), 0.0, 1e-320]
    assert loaded["blob"].getvalue() == b"bytes" and loaded["raw"] == b"\x00\xff"
    assert torch.equal(loaded["strided"], content["strided"].contiguous()) and loaded["scalar"].item() == 2.5
    assert loaded["complex"].tolist() == [1 + 2j] and loaded["flag"].tolist() == [True, False]
    assert [t.tolist() for t in loaded["tied"]] == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [2, 3]]
    assert counter.count == 7 and loaded["counter"] is counter and loaded["dots.in.name"] == 1


def test_an_empty_state_dict(tmp_path):
    run_ranks(2, lambda c: (dcp.save({}, checkpoint_id=tmp_path), dcp.load({}, checkpoint_id=tmp_path)))
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_keys_in_another_order_on_each_rank(tmp_path):
    def work(communicator):
        names = ["a", "b", "c"]
        order = names[communicator.rank :] + names[: communicator.rank]
        state = {
            name: distribute_tensor(torch.arange(6.0) + ord(name), None, [Shard(0)]) for name in sorted(order)
        }
        dcp.save({name: state[name] for name in order}, checkpoint_id=tmp_path)
        target = {name: torch.zeros(6) for name in reversed(order)}
        dcp.load(target, checkpoint_id=tmp_path)
        return [target[name][0].item() for name in names]

    from tenon.distributed import init_device_mesh

    def with_mesh(communicator):
        with init_device_mesh("cpu", (3,)):
            return work(communicator)

    assert run_ranks(3, with_mesh) == [[97.0, 98.0, 99.0]] * 3


def test_meta_tensors_get_memory(tmp_path):
    save_whole(tmp_path)
    state = {"model": {"matrix": torch.empty(7, 5, device="meta")}}
    dcp.load(state, checkpoint_id=tmp_path)

    assert torch.equal(state["model"]["matrix"], WHOLE["matrix"])


def test_a_tensor_of_another_dtype_is_cast(tmp_path):
    save_whole(tmp_path)
    state = {"model": {"matrix": torch.zeros(7, 5, dtype=torch.float64)}}
    dcp.load(state, checkpoint_id=tmp_path)

    assert torch.equal(state["model"]["matrix"], WHOLE["matrix"].double())


def test_modules_and_optimizers_as_values(tmp_path):
    def make(seed):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        return model, torch.optim.Adam(model.parameters(), lr=0.1 + seed)

    def step(model, optimizer):
        model(torch.arange(12.0).reshape(4, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = make(0)
    step(model, optimizer)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=tmp_path)
    other, fresh = make(1)
    dcp.load({"model": other, "optimizer": fresh}, checkpoint_id=tmp_path)
    assert fresh.param_groups[0]["lr"] == 0.1 and fresh.state[other[0].weight]["step"].item() == 1
    step(model, optimizer)
    step(other, fresh)

    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_an_optimizer_that_had_no_state_loads_as_one(tmp_path):
    model = nn.Linear(2, 1)
    dcp.save({"optimizer": torch.optim.Adam(model.parameters())}, checkpoint_id=tmp_path)
    optimizer = torch.optim.Adam(model.parameters())
    dcp.load({"optimizer": optimizer}, checkpoint_id=tmp_path)

    assert not optimizer.state


def test_only_a_part_is_loaded(tmp_path):
    save_whole(tmp_path)
    state = {"model": {"matrix": torch.zeros(7, 5)}}
    dcp.load(state, checkpoint_id=tmp_path)

    assert torch.equal(state["model"]["matrix"], WHOLE["matrix"])
    assert list(dcp.load_whole("model.short", checkpoint_id=tmp_path)["model"]) == ["short"]
    assert dcp.load_whole({"step"}, checkpoint_id=tmp_path) == {"step": 3}


def test_missing_values_and_other_shapes_change_nothing(tmp_path):
    save_whole(tmp_path)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())

    def load(extra):
        state = {"model": zeros() | extra, "step": 0}
        with pytest.raises(CheckpointException) as caught:
            dcp.load(state, checkpoint_id=tmp_path)
        assert state["step"] == 0 and (state["model"]["matrix"] == 77).all()
        return str(caught.value)

    assert "Missing key in checkpoint state_dict: model.other" in load({"other": torch.ones(1)})
    assert "saved [2, 2] and current: [2, 3] for model.short" in load({"short": torch.ones(2, 3)})
    assert "model.short is a tensor of [2, 2] in the checkpoint and a int" in load({"short": 5})
    with pytest.raises(CheckpointException):
        dcp.load({"optimizer": optimizer, "more": 1}, checkpoint_id=tmp_path)
    assert not optimizer.state
    state = {"model": zeros() | {"other": torch.ones(1)}}
    dcp.load(state, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert equal(state["model"]) and state["model"]["other"].item() == 1


def test_one_rank_with_another_shape_fails_all(tmp_path):
    save_whole(tmp_path)

    def work(communicator):
        state = {"model": {"short": torch.zeros(2, 2 + communicator.rank)}}
        with pytest.raises(CheckpointException) as caught:
            dcp.load(state, checkpoint_id=tmp_path)
        error, trace = caught.value.failures[1]
        assert isinstance(error, CheckpointError) and trace
        return list(caught.value.failures), bool(state["model"]["short"].any())

    assert run_ranks(2, work) == [([1], False)] * 2


def test_partial_results_are_refused(tmp_path):
    def work(communicator):
        from tenon.distributed import init_device_mesh

        mesh = init_device_mesh("cpu", (2,))
        dcp.save({"w": DTensor.from_local(torch.ones(2), mesh, [Partial()])}, checkpoint_id=tmp_path)

    with pytest.raises(CheckpointException, match="partial result"):
        run_ranks(2, work)


def test_a_part_that_no_rank_saves_is_found(tmp_path):
    def work(communicator):
        whole = sharded({"w": torch.arange(8.0)}, (2,), [Shard(0)])
        dcp.save({} if communicator.rank else whole, checkpoint_id=tmp_path)

    with pytest.raises(
        CheckpointException, match=r"w of \[8\]: its chunks overlap or leave gaps: they have 4"
    ):
        run_ranks(2, work)
    assert not (tmp_path / "manifest.json").exists()


def test_two_values_of_one_flat_name(tmp_path):
    with pytest.raises(CheckpointException, match=r"duplicated flatten key a\.b"):
        dcp.save({"a": {"b": 1}, "a.b": 2}, checkpoint_id=tmp_path)


def test_values_that_cannot_be_saved(tmp_path):
    with pytest.raises(CheckpointException, match="function"):
        dcp.save({"model": torch.ones(1), "activation": torch.nn.functional.relu}, checkpoint_id=tmp_path)
    assert not (tmp_path / "manifest.json").exists()


def test_saves_and_loads_have_names(tmp_path):
    writer, reader = FileSystemWriter(tmp_path), dcp.FileSystemReader(tmp_path)
    dcp.save({"step": 1}, storage_writer=writer)
    first = writer.save_id
    dcp.save({"step": 2}, storage_writer=writer)
    meta = reader.read_metadata().storage_meta

    assert first != writer.save_id == meta.save_id and reader.load_id == meta.load_id
    assert meta.checkpoint_id == str(tmp_path)


def test_where_to_save(tmp_path):
    with pytest.raises(ArgumentError, match="Cannot detect"):
        dcp.save({}, checkpoint_id="s3://bucket/run")
    with pytest.raises(ArgumentError, match="Cannot detect"):
        dcp.load({}, checkpoint_id="s3://bucket/run")
    with pytest.raises(ArgumentError, match="must be specified"):
        dcp.save({})
    dcp.save({"step": 1}, storage_writer=FileSystemWriter(tmp_path / "new" / "folder"))
    writer = FileSystemWriter(tmp_path / "new" / "folder", overwrite=False)
    with pytest.raises(CheckpointException, match=r"Checkpoint already exists in .*, and overwrite=False"):
        dcp.save({"step": 2}, storage_writer=writer)
    state = {"step": 0}
    dcp.load(state, storage_reader=FileSystemReader(tmp_path / "new" / "folder"))
    assert state == {"step": 1}


def test_ranks_that_save_to_different_folders(tmp_path):
    with pytest.raises(CheckpointException, match=r"different folders: rank 0 to .*, rank 1 to"):
        run_ranks(2, lambda c: dcp.save({"a": 1}, checkpoint_id=tmp_path / str(c.rank)))


def test_a_process_of_several_saves_alone(tmp_path):
    def work(communicator):
        folder = tmp_path / str(communicator.rank)
        dcp.save({"rank": communicator.rank}, checkpoint_id=folder, no_dist=True)
        state = {"rank": -1}
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        return state["rank"]

    assert run_ranks(2, work) == [0, 1]


def test_random_states_of_every_rank(tmp_path):
    def work(communicator, size):
        np.random.seed(communicator.rank)
        torch.manual_seed(5)
        dcp.save({"random": dcp.RandomStates()}, checkpoint_id=tmp_path)
        communicator.barrier()
        return torch.default_generator.get_state().tolist()

    saved = run_ranks(1, work, 1)[0]
    torch.manual_seed(9)
    dcp.load({"random": dcp.RandomStates()}, checkpoint_id=tmp_path)
    assert torch.default_generator.get_state().tolist() == saved
    torch.manual_seed(9)
    run_ranks(2, lambda c: dcp.load({"random": dcp.RandomStates()}, checkpoint_id=tmp_path))
    assert torch.initial_seed() == 5


class Growing:
    """An object whose state has more keys the further it is."""

    def __init__(self, done=0):
        self.done, self.loaded = done, None

    def state_dict(self):
        return {"done": self.done, **{f"epoch {n}": {"loss": n} for n in range(self.done)}}

    def load_state_dict(self, state):
        self.loaded = state


def test_objects_whose_keys_depend_on_how_far_they_are(tmp_path):
    dcp.save({"object": Growing(3), "step": 1}, checkpoint_id=tmp_path)
    fresh = Growing()
    dcp.load({"object": fresh, "step": 0}, checkpoint_id=tmp_path)
    assert fresh.loaded == Growing(3).state_dict()
    assert dcp.load_whole(checkpoint_id=tmp_path)["object"] == Growing(3).state_dict()
    plain = {"object": {"done": 0}}
    dcp.load(plain, checkpoint_id=tmp_path)
    assert plain["object"] == Growing(3).state_dict()


def test_values_that_an_object_does_not_know_are_named(tmp_path):
    wide, narrow = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)
    dcp.save({"model": wide}, checkpoint_id=tmp_path)
    with pytest.warns(
        CheckpointWarning, match=r"has model\.bias, which are not in state_dict\(\) of the Linear"
    ):
        dcp.load({"model": narrow}, checkpoint_id=tmp_path)
    assert torch.equal(narrow.weight, wide.weight)


def test_the_plan_is_kept_while_the_tensors_are_the_same(tmp_path, monkeypatch):
    planned = []
    original = dcp.DefaultSavePlanner.create_global_plan
    monkeypatch.setattr(
        dcp.DefaultSavePlanner,
        "create_global_plan",
        lambda self, plans: planned.append(len(plans)) or original(self, plans),
    )

    def work(communicator):
        loaded = []
        for number in range(5):
            values = {name: value + number for name, value in WHOLE.items()}
            state = {"model": sharded(values, (3,), [Shard(0)]), "step": number}
            if number == 2:
                state["new"] = torch.ones(2)
            if number == 4 and communicator.rank == 1:
                state["own"] = torch.ones(3)
            dcp.save(state, checkpoint_id=tmp_path / str(number))
            found = dcp.load_whole(checkpoint_id=tmp_path / str(number))
            expected = WHOLE["matrix"] + number
            loaded.append((found["step"], torch.equal(found["model"]["matrix"], expected), sorted(found)))
        return loaded

    found = run_ranks(3, work)
    plain = ["model", "step"]
    expected = [(0, True, plain), (1, True, plain), (2, True, ["model", "new", "step"]), (3, True, plain)]
    assert found == [[*expected, (4, True, ["model", "own", "step"])]] * 3
    assert planned == [3] * 4  # not the second


def test_a_plan_that_failed_is_not_kept(tmp_path):
    def work(communicator):
        good = {"w": torch.ones(2)}
        dcp.save(good, checkpoint_id=tmp_path)
        with pytest.raises(CheckpointException):
            dcp.save({"a": {"b": 1}, "a.b": 1} if communicator.rank else good, checkpoint_id=tmp_path)
        dcp.save({"w": torch.full((2,), 2.0)}, checkpoint_id=tmp_path)
        return dcp.load_whole(checkpoint_id=tmp_path)["w"].tolist()

    assert run_ranks(2, work) == [[2, 2]] * 2
