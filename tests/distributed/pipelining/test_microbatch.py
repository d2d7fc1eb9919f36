"""Batches split into microbatches, and outputs merged."""

import pytest

import tenon as torch
from tenon.distributed.pipelining.microbatch import (
    LossReducer,
    Replicate,
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
)
from tenon.errors import ArgumentError, ShapeError


def test_split_and_merge_give_the_batch_back():
    args = (torch.arange(10).reshape(5, 2), {"a": [torch.ones(7), "text"]}, None, 3)
    kwargs = {"mask": torch.zeros(5, 1), "flag": True}

    chunks, named = split_args_kwargs_into_chunks(args, kwargs, 3)

    assert [c[0].shape[0] for c in chunks] == [2, 2, 1] and [c[1]["a"][0].shape[0] for c in chunks] == [
        3,
        2,
        2,
    ]
    assert [c[1]["a"][1:] + list(c[2:]) for c in chunks] == [["text", None, 3]] * 3
    assert [n["flag"] for n in named] == [True] * 3
    merged = merge_chunks(chunks, None)
    assert torch.equal(merged[0], args[0]) and torch.equal(merged[1]["a"][0], args[1]["a"][0])
    assert merged[2:] == (None, 3) and torch.equal(merge_chunks(named, None)["mask"], kwargs["mask"])


def test_axes_and_replication_by_specs():
    x, y, mask = torch.arange(6).reshape(2, 3), torch.arange(6).reshape(3, 2), torch.ones(4)
    specs = (TensorChunkSpec(1), [TensorChunkSpec(0), Replicate])

    chunks, named = split_args_kwargs_into_chunks((x, [y, mask]), {"mask": mask}, 3, specs, {"mask": None})

    assert [tuple(c[0].shape) for c in chunks] == [(2, 1)] * 3
    assert all(c[1][1] is mask for c in chunks) and all(n["mask"] is mask for n in named)
    spec = (TensorChunkSpec(1), [TensorChunkSpec(-2), Replicate()])
    merged = merge_chunks(chunks, spec)
    assert torch.equal(merged[0], x) and torch.equal(merged[1][0], y) and torch.equal(merged[1][1], mask)


def test_specs_from_numbers():
    assert [s.split_dim for s in TensorChunkSpec.from_tuple((0, 2))] == [0, 2]
    assert TensorChunkSpec.from_dict({"x": (1,)})["x"][0].split_dim == 1
    assert str(TensorChunkSpec(3)) == "TensorChunkSpec(3)"


def test_fewer_rows_than_chunks_make_fewer_chunks():
    assert len(split_args_kwargs_into_chunks((torch.ones(2), torch.ones(9)), None, 4)[0]) == 2


def test_values_that_are_reduced_or_have_to_be_equal():
    chunks = [{"loss": torch.tensor(2.0), "n": 3}, {"loss": torch.tensor(3.0), "n": 3}]
    spec = {"loss": LossReducer(torch.tensor(0.0), lambda a, b: a + b), "n": Replicate()}

    assert merge_chunks(chunks, spec)["loss"].item() == 5 and merge_chunks(chunks, spec)["n"] == 3
    chunks[1]["n"] = 4
    with pytest.raises(ArgumentError, match="Expected 3, got 4"):
        merge_chunks(chunks, spec)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (((torch.ones(()),), None, 2), ShapeError, r"shape \[\] has no axis 0"),
        (((torch.ones(3),), None, 2, (TensorChunkSpec(1),)), ShapeError, r"\[3\] has no axis 1"),
        (((torch.ones(3),), None, 2, ()), ArgumentError, r"specs for \[\], but the arguments are \['0'\]"),
        (((), {"x": 1}, 2, None, {"y": Replicate()}), ArgumentError, "kwargs_chunk_spec has specs for"),
        (((7,), None, 2, (TensorChunkSpec(0),)), ArgumentError, "Unsupported chunk spec.*value: 7"),
        (
            (([torch.ones(2)] * 2,), None, 2, ([TensorChunkSpec(0)],)),
            ArgumentError,
            "argument 0 .*has 2 values",
        ),
        (((torch.ones(2),), None, 2, (0,)), ArgumentError, "chunk spec of argument 0 is 0"),
        (((torch.ones(0, 2),), None, 2), ShapeError, "a batch of 0 samples cannot be split"),
        (((torch.ones(2),), None, 0), ArgumentError, "one microbatch or more, not 0"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        split_args_kwargs_into_chunks(*call)


def test_outputs_that_cannot_be_merged():
    with pytest.raises(ShapeError, match="have no axis 0 to be concatenated"):
        merge_chunks([torch.tensor(1.0)] * 2, None)
    with pytest.raises(ArgumentError, match="an output of 2 values did not match"):
        merge_chunks([(1, 2)], (Replicate(),))


def test_gradients_of_the_batch_are_those_of_its_parts():
    x = torch.ones(5, requires_grad=True)
    for number, (part,) in enumerate(split_args_kwargs_into_chunks((x,), None, 2)[0]):
        (part * (number + 1)).sum().backward()

    assert x.grad.tolist() == [1, 1, 1, 2, 2]
