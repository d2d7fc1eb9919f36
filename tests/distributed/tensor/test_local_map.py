"""``local_map``: functions of plain tensors that are called with the parts of DTensors."""

import pytest

import tenon as torch
from tenon.distributed import DeviceMesh, init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.nn.functional import all_reduce
from tenon.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from tenon.distributed.tensor.experimental import local_map
from tenon.errors import ArgumentError, OptionError

ROWS, COLUMNS, WHOLE = [Shard(0)], [Shard(1)], [Replicate()]


def tensors(x_placements=COLUMNS, w_placements=ROWS):
    """Two matrices and the DTensors of them."""
    mesh = init_device_mesh("cpu", (2,))
    x, w = torch.arange(24.0).reshape(6, 4), torch.arange(8.0).reshape(4, 2)
    return mesh, x, w, distribute_tensor(x, mesh, x_placements), distribute_tensor(w, mesh, w_placements)


@local_map(out_placements=WHOLE, in_placements=(None, COLUMNS, ROWS))
def summed_product(mesh, x, w):
    """The product of the parts, summed over the ranks."""
    return all_reduce(x @ w, group=mesh.get_group())


def test_a_function_with_a_collective_of_its_own():
    def work(communicator):
        mesh, x, w, parts_of_x, parts_of_w = tensors()
        result = summed_product(mesh, parts_of_x, parts_of_w)
        assert result.placements == (Replicate(),) and torch.equal(result.to_local(), x @ w)
        assert summed_product.func.__name__ == "_call" and summed_product.__name__ == "summed_product"

    run_ranks(2, work)


def test_inputs_are_redistributed_if_that_is_wanted():
    def work(communicator):
        _, x, w, rows_of_x, columns_of_w = tensors(ROWS, COLUMNS)
        options = {"out_placements": [Partial()], "in_placements": (COLUMNS, ROWS)}
        result = local_map(torch.mm, **options, redistribute_inputs=True)(rows_of_x, columns_of_w)
        assert torch.equal(result.full_tensor(), x @ w)
        with pytest.raises(ArgumentError, match="set redistribute_inputs=True"):
            local_map(torch.mm, **options)(rows_of_x, columns_of_w)

    run_ranks(2, work)


@pytest.mark.parametrize("given", [ROWS, WHOLE], ids=["rows", "whole"])
def test_gradients_have_the_placements_that_are_stated(given):
    def work(communicator):
        _, x, w, parts, whole = tensors(given, WHOLE)
        parts.requires_grad_()
        whole.requires_grad_()
        product = local_map(
            torch.mm,
            out_placements=ROWS,
            in_placements=(ROWS, WHOLE),
            in_grad_placements=(ROWS, [Partial()]),
            redistribute_inputs=True,
        )
        product(parts, whole).to_local().sum().backward()
        assert torch.equal(whole.grad.full_tensor(), x.sum(0)[:, None].expand(4, 2))
        assert torch.equal(parts.grad.full_tensor(), w.sum(1).expand(6, 4))

    run_ranks(2, work)


def test_several_results_and_values_that_are_no_tensors():
    def work(communicator):
        _, x, _, parts, _ = tensors(ROWS)
        function = local_map(lambda part, by: (part * by, [len(part)]), out_placements=(ROWS, None))
        scaled, (count,) = function(parts, 2)
        assert count == 3 and torch.equal(scaled.full_tensor(), x * 2)
        assert local_map(torch.mm, out_placements=ROWS)(x, x.T).shape == (6, 6)
        other = init_device_mesh("cpu", (1, 2))
        moved = local_map(lambda part: part, out_placements=[Replicate(), Shard(0)], device_mesh=other)
        assert moved(parts).device_mesh == other and torch.equal(moved(parts).full_tensor(), x)

    run_ranks(2, work)


def test_what_is_refused():
    mesh = DeviceMesh("cpu", [0])
    x = distribute_tensor(torch.ones(2), mesh)

    def call(*args, function=lambda *parts: parts[0], **options):
        with pytest.raises(AssertionError) as caught:
            local_map(function, **{"out_placements": WHOLE} | options)(*args)
        assert isinstance(caught.value, OptionError)
        return str(caught.value)

    assert "does not match the number of input args 1" in call(x, in_placements=(WHOLE, WHOLE))
    assert "expects placements, but" in call(x, in_placements=(None,))
    assert "expects None placements" in call(x, 2, in_placements=(WHOLE, WHOLE))
    assert "expects placements of its gradient" in call(x, in_grad_placements=(None,))
    assert "returned 1 values" in call(x, out_placements=(WHOLE, WHOLE))
    assert "returned a int" in call(x, function=lambda part: 3)
    assert "returned a DTensor" in call(x, function=lambda part: DTensor.from_local(part, mesh))
