"""Where collectives write: into the memory of the output tensor, unless it cannot take the result as it is."""

import pytest

import tenon
import tenon.distributed as dist
from tenon.distributed.communication.threaded import run_ranks

SIZE = 3


def gathered(rank):
    return [float(each) for other in range(SIZE) for each in (other, other + 10)]


def strided():
    return tenon.zeros(2 * SIZE, 2)[:, 1]


def transposed():
    return tenon.zeros(2, SIZE).t()


@pytest.mark.parametrize("make", [lambda: tenon.zeros(2 * SIZE), strided, transposed])
def test_outputs_of_any_layout_get_the_result(make):
    def each(rank):
        own = tenon.tensor([rank, rank + 10.0])
        out = make()
        version = out._version
        handle = dist.all_gather_into_tensor(out, own, async_op=True)
        assert handle.wait() and handle.result()[0] is out and out._version > version
        assert out.reshape(-1).tolist() == gathered(rank)

        sums = make()
        dist.all_to_all_single(sums, out.contiguous())
        assert sums.reshape(-1).tolist() == [float(v) for v in (rank, rank + 10)] * SIZE

    run_ranks(SIZE, lambda communicator: each(communicator.rank))


def test_input_and_output_may_be_the_same_memory():
    def each(rank):
        out = tenon.zeros(2 * SIZE)
        own = out[2 * rank : 2 * rank + 2]
        own += tenon.tensor([rank, rank + 10.0])
        dist.all_gather_into_tensor(out, own)
        assert out.tolist() == gathered(rank)

        dist.reduce_scatter_tensor(own, out)
        assert own.tolist() == [SIZE * rank, SIZE * (rank + 10)]

        rows = tenon.arange(float(SIZE)) + 10 * rank
        dist.all_to_all_single(rows, rows)
        assert rows.tolist() == [rank + 10.0 * other for other in range(SIZE)]

    run_ranks(SIZE, lambda communicator: each(communicator.rank))


def test_outputs_of_another_dtype_and_empty_ones_get_the_result():
    def each(rank):
        wide = tenon.zeros(2, dtype=tenon.float64)
        dist.reduce_scatter_tensor(wide, tenon.ones(2 * SIZE))
        assert wide.tolist() == [SIZE, SIZE]

        nothing = tenon.zeros(0)
        dist.all_gather_into_tensor(nothing, tenon.zeros(0))
        dist.reduce_scatter_tensor(nothing, tenon.zeros(0))
        dist.all_to_all_single(nothing, nothing)

    run_ranks(SIZE, lambda communicator: each(communicator.rank))
