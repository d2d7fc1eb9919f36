"""Embedding bags beyond the catalogue of tests/parity: counts by row, and dense gradients."""

import pytest

import tenon
from tenon.nn import functional as F


def test_a_row_of_a_bag_is_scaled_by_its_own_count():
    weight = tenon.randn(5, 3, requires_grad=True)
    indices = tenon.tensor([[0, 0, 4], [4, 0, 2]])

    F.embedding_bag(indices, weight, mode="sum", scale_grad_by_freq=True).sum().backward()

    assert weight.grad.tolist() == [[1.0] * 3, [0.0] * 3, [1.0] * 3, [0.0] * 3, [1.0] * 3]


def test_sparse_gradients_are_dense_and_say_so():
    weight = tenon.ones(4, 2, requires_grad=True)

    with pytest.warns(UserWarning, match="gradient of the table is dense"):
        F.embedding(tenon.tensor([1, 1]), weight, sparse=True).sum().backward()

    assert weight.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_table_of_no_width_has_a_gradient_of_its_shape():
    for rows, indices in ((0, []), (3, [1, 2])):
        weight = tenon.zeros(rows, 0, requires_grad=True)

        F.embedding(tenon.tensor(indices, dtype=tenon.int64), weight).sum().backward()

        assert weight.grad.shape == (rows, 0)


def test_offsets_that_decrease_are_refused():
    with pytest.raises(IndexError, match=r"offsets must not decrease, got \[0, 4, 2\]"):
        F.embedding_bag(tenon.arange(6), tenon.ones(6, 2), tenon.tensor([0, 4, 2]))


def test_the_first_of_equal_rows_gets_the_gradient_of_a_maximum():
    weight = tenon.ones(2, 3, requires_grad=True)

    F.embedding_bag(tenon.tensor([[0, 1, 0]]), weight, mode="max").sum().backward()

    assert weight.grad.tolist() == [[1.0] * 3, [0.0] * 3]


def test_a_table_that_exists_is_shared():
    table = tenon.ones(2, 3)
    bag = tenon.nn.EmbeddingBag.from_pretrained(table, mode="sum")
    table.fill_(2.0)

    assert not bag.weight.requires_grad
    assert bag(tenon.tensor([[0, 1]])).tolist() == [[4.0, 4.0, 4.0]]


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ([1, 4], r"offsets\[0\] has to be 0"),
        ([0, 9], r"offsets\[-1\] can not be greater than input's length 8"),
    ],
)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_offsets_begin_at_the_first_index_and_end_inside_of_the_row(offsets, text, mode):
    bag = tenon.nn.EmbeddingBag(10, 3, mode=mode)
    row = tenon.tensor([1, 2, 4, 5, 4, 3, 2, 9])

    with pytest.raises(RuntimeError, match=text):
        bag(row, tenon.tensor(offsets))

    assert bag(row, tenon.tensor([0, 8])).shape == (2, 3)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_that_are_all_empty_give_zeros_and_a_gradient_of_zeros(mode):
    bag = tenon.nn.EmbeddingBag(4, 2, mode=mode)

    made = bag(tenon.tensor([], dtype=tenon.int64), tenon.tensor([0, 0]))
    made.sum().backward()

    assert made.tolist() == [[0.0, 0.0]] * 2
    assert bag.weight.grad.tolist() == [[0.0, 0.0]] * 4


def test_an_index_that_is_in_no_table_is_named():
    for indices in ([[0, 7]], [[-1, 0]]):
        with pytest.raises(
            RuntimeError, match=rf"idx < num_embeddings but found idx to be {sum(indices[0])}"
        ):
            F.embedding_bag(tenon.tensor(indices), tenon.ones(5, 2))


def test_a_last_offset_ends_sums_but_not_what_skips_a_row():
    table, offsets = tenon.arange(10.0).reshape(5, 2), tenon.tensor([0, 2, 3])
    indices = tenon.tensor([0, 1, 2, 4])

    def last(**options):
        return F.embedding_bag(indices, table, offsets, include_last_offset=True, **options)[1].tolist()

    assert last(mode="sum") == last(mode="mean") == [4.0, 5.0]
    assert last(mode="max") == last(mode="max", padding_idx=3) == [8.0, 9.0]
    assert last(mode="sum", padding_idx=3) == [12.0, 14.0]


def test_the_older_function_says_where_its_bags_come_from():
    table, offsets = tenon.arange(10.0).reshape(5, 2), tenon.tensor([0, 0, 2])

    _, bags, sizes, rows = tenon.embedding_bag(
        table, tenon.tensor([3, 1, 4, 4]), offsets, mode=2, padding_idx=3
    )

    assert (bags.tolist(), sizes.tolist()) == ([1, 1, 2, 2], [0, 1, 2])
    assert rows.tolist() == [[0, 0], [1, 1], [4, 4]]
    with pytest.raises(RuntimeError, match=r"mode has to be 0 \(sum\), 1 \(mean\) or 2 \(max\), got 3"):
        tenon.embedding_bag(table, offsets, offsets, mode=3)
